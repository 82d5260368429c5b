//! Decompression of pages. Claimed sizes are not trusted: memory grows with the decompressed data.

use flate2::read::MultiGzDecoder;
use parquet::basic::Compression;
use ruzstd::decoding::StreamingDecoder;
use std::io::Read;

/// Maximum size of a page after decompression. Writers make pages of about a megabyte.
const MAX_PAGE: usize = 512 << 20;

/// Maximum expansion of Snappy, whose shortest copy has 3 bytes and yields 64.
const SNAPPY_EXPANSION: usize = 22;

/// Maximum expansion of LZ4, whose lengths grow by 255 for each byte.
const LZ4_EXPANSION: usize = 255;

/// Returns an error if pages of a codec cannot be read.
pub(super) fn check(codec: Compression) -> Result<(), String> {
    use Compression::{GZIP, LZ4_RAW, SNAPPY, UNCOMPRESSED, ZSTD};
    match codec {
        UNCOMPRESSED | SNAPPY | GZIP(_) | ZSTD(_) | LZ4_RAW => Ok(()),
        other => Err(format!(
            "it is compressed with {}, but grove reads only Snappy, Zstandard, gzip and LZ4_RAW; write it again with \
             one of these",
            other.to_string().split('(').next().unwrap_or_default()
        )),
    }
}

/// Decompresses a page.
pub(super) fn decompress(codec: Compression, bytes: &[u8]) -> Result<Vec<u8>, String> {
    match codec {
        Compression::UNCOMPRESSED => Ok(bytes.to_vec()),
        Compression::SNAPPY => snappy(bytes),
        Compression::GZIP(_) => read_all(MultiGzDecoder::new(bytes), MAX_PAGE),
        Compression::ZSTD(_) => zstd(bytes),
        Compression::LZ4_RAW => lz4(bytes),
        other => check(other).map(|()| vec![]),
    }
}

fn snappy(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let claimed = snap::raw::decompress_len(bytes).map_err(|error| error.to_string())?;
    if claimed > bytes.len().saturating_mul(SNAPPY_EXPANSION).min(MAX_PAGE) {
        return Err(format!("a page of {} bytes claims to have {claimed}", bytes.len()));
    }
    snap::raw::Decoder::new().decompress_vec(bytes).map_err(|error| error.to_string())
}

/// Decompresses the frames of a page; writers make one.
fn zstd(mut bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut all = vec![];
    while !bytes.is_empty() {
        let frame = StreamingDecoder::new(&mut bytes).map_err(|error| error.to_string())?;
        all.append(&mut read_all(frame, MAX_PAGE - all.len())?);
    }
    Ok(all)
}

/// Decompresses a block whose size is not stored: the buffer doubles until the block fits.
fn lz4(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let most = bytes.len().saturating_mul(LZ4_EXPANSION).min(MAX_PAGE);
    let mut size = bytes.len().saturating_mul(4).clamp(64, most.max(64));
    loop {
        let mut page = vec![0; size];
        match lz4_flex::block::decompress_into(bytes, &mut page) {
            Ok(length) => {
                page.truncate(length);
                return Ok(page);
            }
            Err(lz4_flex::block::DecompressError::OutputTooSmall { .. }) if size < most => {
                size = size.saturating_mul(2).min(most);
            }
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// Reads a stream to its end, which must come after at most `most` bytes.
fn read_all(stream: impl Read, most: usize) -> Result<Vec<u8>, String> {
    let mut bytes = vec![];
    stream.take(most as u64 + 1).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
    match bytes.len() > most {
        true => Err(format!("a page has more than {most} bytes, which is the maximum")),
        false => Ok(bytes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn page_sizes_are_checked_before_allocation() {
        // Snappy's length as a varint: 2^31 - 1 bytes.
        let claim = [0xff, 0xff, 0xff, 0xff, 0x07, 0x00, b'a'];
        let error = decompress(Compression::SNAPPY, &claim).expect_err("refused");
        assert!(error.contains("claims to have 2147483647"), "{error}");
        let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
        gzip.write_all(&[0; 1001]).expect("compressed");
        let bomb = gzip.finish().expect("compressed");
        assert_eq!(read_all(MultiGzDecoder::new(&bomb[..]), 1001).map(|page| page.len()), Ok(1001));
        let error = read_all(MultiGzDecoder::new(&bomb[..]), 1000).expect_err("refused");
        assert!(error.contains("more than 1000 bytes"), "{error}");
        assert!(decompress(Compression::LZ4_RAW, &[0xff; 40]).is_err());
        assert!(decompress(Compression::ZSTD(Default::default()), b"\x28\xb5\x2f\xfd\xff").is_err());
    }

    #[test]
    fn lz4_blocks_of_unknown_size() {
        let text = vec![b'a'; 100_000];
        let block = lz4_flex::block::compress(&text);
        assert!(block.len() < 1000);
        assert_eq!(decompress(Compression::LZ4_RAW, &block), Ok(text));
    }
}
