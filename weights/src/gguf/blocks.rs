//! Decoding of quantized values on request.

#[cfg(feature = "gguf")]
use std::borrow::Cow;

use burn::tensor::DType;
#[cfg(feature = "gguf")]
use candle_core::CpuStorage;

use super::BlockType;
use crate::convert::convert;
use crate::entry::{Entry, element_count};
use crate::mapped::MappedFile;

/// Number of values decoded at a time: a whole number of blocks of every type, and small enough for the cache.
const CHUNK: usize = 1 << 14;

/// The blocks of a quantized tensor, decoded on request.
#[derive(Clone, Debug)]
pub(crate) struct Blocks<'a> {
    file: &'a MappedFile,
    kind: BlockType,
    /// Position of the first block, in bytes.
    start: usize,
    /// Number of values.
    count: usize,
}

impl<'a> Blocks<'a> {
    /// Creates the blocks of an entry; `None` if they extend beyond the file.
    pub(crate) fn new(file: &'a MappedFile, entry: &Entry, kind: BlockType) -> Option<Self> {
        let count = element_count(&entry.shape)?;
        let end = kind.row_bytes(count)?.checked_add(entry.offset)?;
        (end <= file.bytes().len()).then_some(Self { file, kind, start: entry.offset, count })
    }

    pub(crate) fn kind(&self) -> BlockType {
        self.kind
    }

    /// Returns the number of values.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Writes values of type `to`, from value `first` on, until `target` is full.
    ///
    /// # Errors
    /// Returns the reason, if `to` is not a float type or candle cannot decode this block type.
    pub(crate) fn write(&self, first: usize, target: &mut [u8], to: DType) -> Result<(), String> {
        let mut first = first;
        let mut room = Vec::new();
        for target in target.chunks_mut(CHUNK * to.size()) {
            let last = first + target.len() / to.size();
            // The blocks that contain these values, and the number of earlier values in the first block.
            let (block, skipped) = (first / self.kind.values_per_block(), first % self.kind.values_per_block());
            let end = last.div_ceil(self.kind.values_per_block());
            let bytes =
                self.start + block * self.kind.bytes_per_block()..self.start + end * self.kind.bytes_per_block();
            let values = decode(self.kind, &self.file.bytes()[bytes.clone()], &mut room)?;
            let values = &values[skipped..skipped + last - first];
            convert(bytemuck::cast_slice(values), DType::F32, target, to)?;
            self.file.release(bytes);
            first = last;
        }
        Ok(())
    }

    /// Releases the pages of all blocks.
    pub(crate) fn release(&self) {
        let bytes = self.kind.row_bytes(self.count).unwrap_or_default();
        self.file.release(self.start..self.start + bytes);
    }
}

/// Decodes whole blocks. They are first copied into `room`, because candle requires alignment, which a file may lack.
#[cfg(feature = "gguf")]
fn decode(kind: BlockType, bytes: &[u8], room: &mut Vec<u64>) -> Result<Vec<f32>, String> {
    let candle = kind.candle().ok_or_else(|| format!("blocks of {kind} are not decoded"))?;
    room.resize(bytes.len().div_ceil(8), 0);
    let aligned = &mut bytemuck::cast_slice_mut(room)[..bytes.len()];
    aligned.copy_from_slice(bytes);
    let count = bytes.len() / kind.bytes_per_block() * kind.values_per_block();
    match candle.from_data(Cow::Borrowed(aligned)).dequantize(count) {
        Ok(CpuStorage::F32(values)) => Ok(values),
        Ok(_) => Err(format!("candle decodes {kind} to something else than f32")),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns an error: without the feature `gguf`, nothing is decoded.
#[cfg(not(feature = "gguf"))]
fn decode(kind: BlockType, _: &[u8], _: &mut Vec<u64>) -> Result<Vec<f32>, String> {
    Err(format!("blocks of {kind} are decoded by grove's feature `gguf`, which this program was built without"))
}

#[cfg(all(test, feature = "gguf"))]
mod tests {
    use super::*;
    use crate::entry::{Form, StoredDtype};

    #[test]
    fn any_stretch_of_values_is_decoded() {
        // More than two chunks of Q8_0, whose blocks are a scale (1) and 32 integers; the data starts at an odd byte.
        let count = 2 * CHUNK + 3 * 32;
        let number = |value: usize| (value % 251) as u8 as i8;
        let mut content = vec![7u8; 5];
        for block in 0..count / 32 {
            content.extend([0x00, 0x3c]);
            content.extend((0..32).map(|i| number(block * 32 + i) as u8));
        }
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), content).expect("written");
        let file = MappedFile::open(file.path()).expect("opened");
        let entry = |count: usize| Entry {
            dtype: StoredDtype::F32,
            shape: vec![count],
            strides: vec![1],
            offset: 5,
            form: Form::Blocks(BlockType::Q8_0),
        };
        assert!(Blocks::new(&file, &entry(count + 32), BlockType::Q8_0).is_none(), "beyond the end");
        let blocks = Blocks::new(&file, &entry(count), BlockType::Q8_0).expect("inside");
        for (first, last) in [(0, count), (1, 2), (31, 33), (32, 64), (CHUNK - 1, 2 * CHUNK + 1), (count - 1, count)] {
            let mut target = vec![0; (last - first) * 4];
            blocks.write(first, &mut target, DType::F32).expect("decoded");
            let expected: Vec<u8> = (first..last).flat_map(|value| f32::from(number(value)).to_le_bytes()).collect();
            assert!(target == expected, "{first}..{last}");
        }
        assert!(blocks.write(0, &mut [0; 4], DType::I32).is_err(), "floats are not integers");
    }
}
