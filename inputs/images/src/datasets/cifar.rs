//! The binary files of CIFAR-10 and CIFAR-100 (<https://www.cs.toronto.edu/~kriz/cifar.html>).

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::ImageSet;
use crate::error::{ImageError, Result};
use grove_files::FileError;

const FORMAT: &str = "CIFAR binary";
const SIDE: usize = 32;
const PIXELS: usize = 3 * SIDE * SIDE;
/// Maximum file size in bytes, more than ten times that of the largest CIFAR file.
const MAX_BYTES: u64 = 2 << 30;

/// Data set, and for CIFAR-100 the set of labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CifarKind {
    /// CIFAR-10: `data_batch_1.bin` … `test_batch.bin`.
    Ten,
    /// CIFAR-100 with its 100 classes: `train.bin`, `test.bin`.
    HundredFine,
    /// CIFAR-100 with its 20 groups of classes.
    HundredCoarse,
}

impl CifarKind {
    /// Returns the number of label bytes before each image, the index of the relevant one, and the number of classes.
    fn labels(self) -> (usize, usize, u8) {
        match self {
            Self::Ten => (1, 0, 10),
            Self::HundredFine => (2, 1, 100),
            Self::HundredCoarse => (2, 0, 20),
        }
    }
}

/// Reads one of CIFAR's binary files: 32×32 colour images and their labels.
///
/// # Errors
/// The file does not exist, its length is not a whole number of images, a label is out of range, or the file is larger
/// than 2 GiB.
pub fn read_cifar(path: impl AsRef<Path>, kind: CifarKind) -> Result<ImageSet> {
    let path = path.as_ref();
    let wrong = |reason: String| ImageError::dataset(path, FORMAT, reason);
    let file = File::open(path).map_err(FileError::io("open", path))?;
    let metadata = file.metadata().map_err(FileError::io("read", path))?;
    if metadata.is_dir() {
        return Err(wrong("it is a directory; name one of its .bin files".into()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(FileError::io("read", path))?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(wrong("it is larger than 2 GiB".into()));
    }
    let (labels, which, classes) = kind.labels();
    let record = labels + PIXELS;
    if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
        let length = bytes.len();
        return Err(wrong(format!(
            "{length} bytes are not a whole number of images of {record} bytes; download it again"
        )));
    }
    let n = bytes.len() / record;
    let mut set = ImageSet {
        n,
        channels: 3,
        height: SIDE,
        width: SIDE,
        pixels: Vec::with_capacity(n * PIXELS),
        labels: Vec::with_capacity(n),
    };
    for (i, record) in bytes.chunks_exact(record).enumerate() {
        let label = record[which];
        if label >= classes {
            return Err(wrong(format!("image {i} has the label {label}, but there are only {classes} classes")));
        }
        set.labels.push(label);
        set.pixels.extend_from_slice(&record[labels..]);
    }
    Ok(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(bytes: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        file
    }

    /// Returns a record: labels, then 1024 values each of red, green and blue.
    fn record(labels: &[u8], colour: [u8; 3]) -> Vec<u8> {
        let planes = colour.into_iter().flat_map(|level| [level; 1024]);
        labels.iter().copied().chain(planes).collect()
    }

    #[test]
    fn images_and_labels() {
        let ten = [record(&[3], [1, 2, 3]), record(&[9], [4, 5, 6])].concat();
        let set = read_cifar(saved(&ten).path(), CifarKind::Ten).unwrap();
        assert_eq!((set.n, set.labels.as_slice()), (2, &[3, 9][..]));
        assert_eq!(set.image(1).unwrap().get_pixel(31, 31).0, [4, 5, 6]);
        let hundred = record(&[19, 99], [1, 2, 3]);
        assert_eq!(read_cifar(saved(&hundred).path(), CifarKind::HundredFine).unwrap().labels, [99]);
        assert_eq!(read_cifar(saved(&hundred).path(), CifarKind::HundredCoarse).unwrap().labels, [19]);
    }

    #[test]
    fn broken_files_are_errors() {
        let ten = record(&[3], [1, 2, 3]);
        let message = |bytes: &[u8], kind| read_cifar(saved(bytes).path(), kind).unwrap_err().to_string();
        assert!(message(&ten[..3000], CifarKind::Ten).contains("3000 bytes"));
        assert!(message(&ten, CifarKind::HundredFine).contains("3074"));
        assert!(message(&[], CifarKind::Ten).contains("0 bytes"));
        assert!(message(&record(&[10], [0; 3]), CifarKind::Ten).contains("label 10"));
    }
}
