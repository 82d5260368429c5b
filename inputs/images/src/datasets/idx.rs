//! MNIST's idx files (<https://yann.lecun.org/exdb/mnist/>): two zero bytes, the type code of the values, the number of
//! dimensions, the dimensions as 32-bit big-endian integers, and the values.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use grove_files::{FileError, write_atomically};

use super::ImageSet;
use crate::error::{ImageError, Result};

const FORMAT: &str = "MNIST idx";
/// Type code of unsigned bytes.
const BYTES: u8 = 0x08;
/// Maximum size of the values in bytes, more than in any data set of this kind. A compressed file could claim, and
/// contain, any size.
const MAX_BYTES: u64 = 4 << 30;

/// Reads the images and labels of a part of MNIST, `train` or `t10k`, from its files, plain or compressed with gzip. Data
/// sets with the same file names work too: Fashion-MNIST, KMNIST, ….
///
/// ```no_run
/// let digits = grove_images::datasets::read_mnist("data/MNIST/raw", "train")?;
/// assert_eq!(digits.pixels.len(), digits.n * 28 * 28);
/// assert_eq!(digits.labels.len(), digits.n);
/// # Ok::<(), grove_images::ImageError>(())
/// ```
///
/// # Errors
/// The directory lacks a file, a file is damaged (see [`read_idx_images`]), or the numbers of images and labels differ.
pub fn read_mnist(directory: impl AsRef<Path>, part: &str) -> Result<ImageSet> {
    let directory = directory.as_ref();
    let images = mnist_images(directory, part).ok_or_else(|| {
        let directory = directory.display();
        ImageError::BadOption(format!(
            "{directory} has no {part}-images-idx3-ubyte, plain or .gz: give a directory of MNIST's files, and the part train \
             or t10k"
        ))
    })?;
    read_idx(&images)
}

/// Returns the file of the images of a part of MNIST, if it exists.
pub(super) fn mnist_images(directory: &Path, part: &str) -> Option<PathBuf> {
    ["", ".gz"]
        .map(|end| directory.join(format!("{part}-images-idx3-ubyte{end}")))
        .into_iter()
        .find(|file| file.exists())
}

/// Reads images from an idx file, and their labels from the file beside it.
pub(super) fn read_idx(images: &Path) -> Result<ImageSet> {
    let name = images.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let mut set = read_idx_images(images)?;
    let beside = images.with_file_name(name.replace("images", "labels").replace("idx3", "idx1"));
    if beside == images {
        return Err(ImageError::BadOption(format!(
            "{}: which file has its labels cannot be told, as there is no `images` in the name",
            images.display()
        )));
    }
    set.labels = read_idx_labels(&beside)?;
    if set.labels.len() != set.n {
        return Err(ImageError::BadOption(format!(
            "{} has {} labels, and {} has {} images",
            beside.display(),
            set.labels.len(),
            images.display(),
            set.n
        )));
    }
    Ok(set)
}

/// Reads images from an idx file, plain or compressed with gzip (detected by content): MNIST, Fashion-MNIST, EMNIST,
/// ….
///
/// # Errors
/// The file does not exist, has another magic number, is shorter or longer than its header states, or is larger than 4
/// GiB.
pub fn read_idx_images(path: impl AsRef<Path>) -> Result<ImageSet> {
    let ([n, height, width], pixels) = read::<3>(path.as_ref())?;
    Ok(ImageSet { n, channels: 1, height, width, pixels, labels: Vec::new() })
}

/// Reads labels from an idx file, plain or compressed with gzip.
///
/// # Errors
/// As [`read_idx_images`].
pub fn read_idx_labels(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    Ok(read::<1>(path.as_ref())?.1)
}

/// Writes the images of a set, which must be greyscale, as an idx file. Writes atomically.
///
/// # Errors
/// The images have colour, their sizes do not match the number of pixels, or the file cannot be written.
pub fn write_idx_images(path: impl AsRef<Path>, set: &ImageSet) -> Result<()> {
    if set.channels != 1 {
        return Err(ImageError::BadOption(format!("an idx file has grey images, not {} channels", set.channels)));
    }
    write(path.as_ref(), &[set.n, set.height, set.width], &set.pixels)
}

/// Writes labels as an idx file. Writes atomically.
///
/// # Errors
/// The file cannot be written.
pub fn write_idx_labels(path: impl AsRef<Path>, labels: &[u8]) -> Result<()> {
    write(path.as_ref(), &[labels.len()], labels)
}

fn read<const RANK: usize>(path: &Path) -> Result<([usize; RANK], Vec<u8>)> {
    let wrong = |reason: String| ImageError::dataset(path, FORMAT, reason);
    let file = File::open(path).map_err(FileError::io("open", path))?;
    let metadata = file.metadata().map_err(FileError::io("read", path))?;
    if metadata.is_dir() {
        return Err(wrong("it is a directory".into()));
    }
    let mut file = BufReader::new(file);
    let start = std::io::BufRead::fill_buf(&mut file).map_err(FileError::io("read", path))?;
    let compressed = start.starts_with(&[0x1f, 0x8b]);
    let mut data: Box<dyn Read> = if compressed { Box::new(MultiGzDecoder::new(file)) } else { Box::new(file) };

    let ended = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::UnexpectedEof => wrong("it ends early (truncated); download it again".into()),
        _ if compressed => wrong(format!("it cannot be decompressed: {e}; download it again")),
        _ => FileError::io("read", path)(e).into(),
    };
    let mut magic = [0; 4];
    data.read_exact(&mut magic).map_err(ended)?;
    if magic != [0, 0, BYTES, RANK as u8] {
        let what = if RANK == 3 { "images" } else { "labels" };
        return Err(wrong(format!("it begins with {magic:?}; {what} begin with [0, 0, {BYTES}, {RANK}]")));
    }
    let mut sizes = [0; RANK];
    for size in &mut sizes {
        let mut bytes = [0; 4];
        data.read_exact(&mut bytes).map_err(ended)?;
        *size = u32::from_be_bytes(bytes) as usize;
    }
    let needed = sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64));
    let Some(needed) = needed.filter(|&needed| needed <= MAX_BYTES) else {
        return Err(wrong(format!("its header says {sizes:?}, which is more than 4 GiB")));
    };
    let header = 4 + 4 * RANK as u64;
    if !compressed && metadata.is_file() && metadata.len() != header + needed {
        return Err(wrong(format!("its header says {sizes:?}, {needed} bytes; {} follow", metadata.len() - header)));
    }
    // Memory grows with the data that arrives, not with the size in the header.
    let mut values = Vec::new();
    data.take(needed + 1).read_to_end(&mut values).map_err(ended)?;
    if values.len() as u64 != needed {
        let found =
            if values.len() as u64 > needed { "more follow".into() } else { format!("{} follow", values.len()) };
        return Err(wrong(format!("its header says {sizes:?}, {needed} bytes; {found}")));
    }
    Ok((sizes, values))
}

fn write(path: &Path, sizes: &[usize], values: &[u8]) -> Result<()> {
    let fits = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size)) == Some(values.len());
    let sizes: Option<Vec<u32>> = sizes.iter().map(|&size| u32::try_from(size).ok()).collect();
    let Some(sizes) = sizes.filter(|_| fits) else {
        return Err(ImageError::BadOption(format!("{} values are not of the sizes given", values.len())));
    };
    Ok(write_atomically(path, |out| {
        out.write_all(&[0, 0, BYTES, sizes.len() as u8])?;
        for size in sizes {
            out.write_all(&size.to_be_bytes())?;
        }
        out.write_all(values)
    })?)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    // Two hand-written images of 1×3.
    const IMAGES: &[u8] = &[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 3, 10, 20, 30, 40, 50, 60];

    fn saved(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    #[test]
    fn plain_and_compressed_files_are_read() {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(IMAGES).unwrap();
        for bytes in [IMAGES.to_vec(), gzip.finish().unwrap()] {
            let set = read_idx_images(saved(&bytes).path()).unwrap();
            assert_eq!((set.n, set.channels, set.height, set.width), (2, 1, 1, 3));
            assert_eq!(set.get(1), Some(&[40, 50, 60][..]));
            assert_eq!(set.get(2), None);
            assert_eq!(set.image(0).unwrap().into_raw(), [10, 10, 10, 20, 20, 20, 30, 30, 30]);
        }
        assert_eq!(read_idx_labels(saved(&[0, 0, 8, 1, 0, 0, 0, 2, 7, 9]).path()).unwrap(), [7, 9]);
    }

    #[test]
    fn writes_the_format() {
        let dir = tempfile::tempdir().unwrap();
        let (images, labels) = (dir.path().join("images"), dir.path().join("labels"));
        let pixels = vec![10, 20, 30, 40, 50, 60];
        let set = ImageSet { n: 2, channels: 1, height: 1, width: 3, pixels, labels: vec![7, 9] };
        write_idx_images(&images, &set).unwrap();
        write_idx_labels(&labels, &set.labels).unwrap();
        assert_eq!(std::fs::read(&images).unwrap(), IMAGES);
        assert_eq!(std::fs::read(&labels).unwrap(), [0, 0, 8, 1, 0, 0, 0, 2, 7, 9]);
        assert!(write_idx_images(&images, &ImageSet { n: 3, ..set }).is_err());
    }

    #[test]
    fn parts_of_mnist_have_their_labels() {
        let directory = tempfile::tempdir().unwrap();
        let named = |name: &str| directory.path().join(name);
        let missing = read_mnist(directory.path(), "t10k").unwrap_err().to_string();
        assert!(missing.contains("t10k-images-idx3-ubyte"), "{missing}");
        std::fs::write(named("t10k-images-idx3-ubyte"), IMAGES).unwrap();
        write_idx_labels(named("t10k-labels-idx1-ubyte"), &[7, 9]).unwrap();
        let set = read_mnist(directory.path(), "t10k").unwrap();
        assert_eq!((set.n, &set.labels[..]), (2, &[7, 9][..]));
        write_idx_labels(named("t10k-labels-idx1-ubyte"), &[7]).unwrap();
        assert!(read_mnist(directory.path(), "t10k").unwrap_err().to_string().contains("1 labels"));
    }

    #[test]
    fn broken_files_are_errors() {
        let message = |bytes: &[u8]| read_idx_images(saved(bytes).path()).unwrap_err().to_string();
        for length in 0..IMAGES.len() {
            message(&IMAGES[..length]);
        }
        assert!(message(&[IMAGES, &[1]].concat()).contains("7 follow"));
        assert!(message(&[0, 0, 8, 1, 0, 0, 0, 0]).contains("images begin with"));
        let huge = [0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(message(&huge).contains("more than 4 GiB"));
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(IMAGES).unwrap();
        let gzip = gzip.finish().unwrap();
        for length in 2..gzip.len() {
            message(&gzip[..length]);
        }
    }
}
