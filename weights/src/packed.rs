//! Values whose bytes in the file differ from memory: deflated, big-endian, or both.

use std::borrow::Cow;
use std::io::Read;

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use crate::mapped::MappedFile;
use crate::zip::{Method, Record};

/// Maximum expansion of deflate: 258 bytes from two bits.
const MAX_PER_BYTE: usize = 258 * 8 / 2;

/// An archive entry that is unpacked each time its values are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    /// The entry in the archive: position, size and compression.
    pub(crate) record: Record,
    /// Size in bytes of big-endian values; 1 if the bytes are in native order.
    pub(crate) reversed: usize,
}

impl Packed {
    /// Returns the content of the entry, with the values from byte `start` on in native byte order.
    ///
    /// # Errors
    /// Returns the reason, if the compressed data is corrupted or does not match the archive's directory.
    pub(crate) fn unpack(&self, file: &MappedFile, start: usize) -> Result<Vec<u8>, String> {
        let bytes = file.bytes().get(self.record.range.clone()).unwrap_or_default();
        let mut content = match self.record.method {
            Method::Deflated => inflate(bytes, self.record.size, self.record.checksum)?,
            Method::Stored | Method::Other => copy(bytes)?,
        };
        file.release(self.record.range.clone());
        if self.reversed > 1 {
            let numbers = content.get_mut(start..).unwrap_or_default();
            numbers.chunks_exact_mut(self.reversed).for_each(<[u8]>::reverse);
        }
        Ok(content)
    }
}

/// Returns at most `count` bytes from the start of an entry's content.
///
/// # Errors
/// Returns the reason, if the compression method is not supported, the data is corrupted, or the claimed size is
/// impossible.
pub(crate) fn head<'a>(record: &Record, file: &'a [u8], count: usize) -> Result<Cow<'a, [u8]>, String> {
    let bytes = file.get(record.range.clone()).unwrap_or_default();
    match record.method {
        Method::Stored => Ok(Cow::Borrowed(&bytes[..bytes.len().min(count)])),
        Method::Deflated if record.size > bytes.len().saturating_mul(MAX_PER_BYTE) => Err(format!(
            "it claims to hold {} bytes in {} compressed ones, too many for deflate",
            record.size,
            bytes.len()
        )),
        Method::Deflated => inflate_some(bytes, count).map(Cow::Owned),
        Method::Other => {
            Err("it is encrypted, or compressed by another method than deflate; save it with numpy.savez".into())
        }
    }
}

/// Unpacks a whole compressed entry of exactly `size` bytes.
fn inflate(bytes: &[u8], size: usize, checksum: u32) -> Result<Vec<u8>, String> {
    // One byte more than allowed, to detect excess data.
    let content = inflate_some(bytes, size.saturating_add(1))?;
    if content.len() != size {
        let found = if content.len() > size { "more".into() } else { content.len().to_string() };
        return Err(format!("its compressed data has {found} bytes instead of {size}"));
    }
    let mut crc = Crc::new();
    crc.update(&content);
    match crc.sum() == checksum {
        true => Ok(content),
        false => Err("its compressed data does not have the check sum that the archive gives".into()),
    }
}

/// Unpacks at most `limit` bytes, into memory that grows with the actual content.
fn inflate_some(bytes: &[u8], limit: usize) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    let limit = u64::try_from(limit).unwrap_or(u64::MAX);
    match DeflateDecoder::new(bytes).take(limit).read_to_end(&mut content) {
        Ok(_) => Ok(content),
        Err(error) => Err(format!("its compressed data is broken: {error}")),
    }
}

fn copy(bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut content = Vec::new();
    content.try_reserve_exact(bytes.len()).map_err(|_| format!("no memory for its {} bytes", bytes.len()))?;
    content.extend_from_slice(bytes);
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn deflated(content: &[u8]) -> Vec<u8> {
        let mut packed = Vec::new();
        let level = flate2::Compression::best();
        flate2::bufread::DeflateEncoder::new(content, level).read_to_end(&mut packed).expect("packed");
        packed
    }

    #[test]
    fn only_what_was_promised_is_unpacked() {
        let content = vec![7; 100_000];
        let packed = deflated(&content);
        let mut crc = Crc::new();
        crc.update(&content);
        assert_eq!(inflate(&packed, content.len(), crc.sum()), Ok(content));
        for (bytes, size, checksum, word) in [
            (&packed[..], 99_999, crc.sum(), "has more bytes instead of 99999"),
            (&packed, 100_001, crc.sum(), "has 100000 bytes instead of 100001"),
            (&packed, 100_000, crc.sum() ^ 1, "check sum"),
            (&packed[..packed.len() / 2], 100_000, crc.sum(), "broken"),
            (&[0xff; 20], 100_000, crc.sum(), "broken"),
            (&[], 100_000, crc.sum(), "broken"),
        ] {
            let reason = inflate(bytes, size, checksum).expect_err(word);
            assert!(reason.contains(word), "{reason}");
        }
    }

    #[test]
    fn heads_are_short_and_impossible_claims_are_refused() {
        let packed = deflated(&vec![7; 100_000]);
        let record = |method, size| Record { range: 0..packed.len(), method, size, checksum: 0 };
        let short = head(&record(Method::Deflated, 100_000), &packed, 10).map(Cow::into_owned);
        assert_eq!(short, Ok(vec![7; 10]));
        assert_eq!(head(&record(Method::Stored, packed.len()), &packed, 3).map(|head| head.len()), Ok(3));
        let reason = head(&record(Method::Deflated, 1 << 40), &packed, 10).expect_err("a bomb");
        assert!(reason.contains("1099511627776"), "{reason}");
        assert!(head(&record(Method::Other, 10), &packed, 10).is_err());
    }
}
