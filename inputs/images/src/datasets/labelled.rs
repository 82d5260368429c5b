//! Labelled images from folders, from MNIST and CIFAR files, and from memory.

use image::RgbImage;
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    CifarKind, ImageSet,
    idx::{mnist_images, read_idx},
    read_cifar,
};
use crate::{ImageError, ImageFolder, Limits, decode, open};

/// An image with its class. The image is read on demand.
#[derive(Clone, Debug)]
pub struct LabelledImage {
    source: Source,
    /// Index of the class in [`LabelledImages::labels`].
    pub class: usize,
}

#[derive(Clone, Debug)]
enum Source {
    File(PathBuf),
    Set(Arc<ImageSet>, usize),
    Encoded { bytes: Arc<[u8]>, name: Arc<Path> },
}

impl LabelledImage {
    /// Creates a labelled image from the bytes of an image file, such as a record of a Parquet file has.
    ///
    /// - `name`: place of the image, for errors
    /// - `class`: index of the class in [`LabelledImages::labels`]
    pub fn from_bytes(bytes: &[u8], name: &Path, class: usize) -> Self {
        Self { source: Source::Encoded { bytes: bytes.into(), name: name.into() }, class }
    }

    /// Reads the image.
    ///
    /// # Errors
    /// The file cannot be read as an image.
    pub fn read(&self) -> Result<RgbImage, ImageError> {
        match &self.source {
            Source::File(path) => open(path, &Limits::default()),
            Source::Set(set, i) => {
                let beyond = || ImageError::BadOption(format!("there is no image {i}"));
                set.image(*i).ok_or_else(beyond)
            }
            Source::Encoded { bytes, name } => decode(bytes, name, &Limits::default()),
        }
    }
}

/// Images with their classes, from one folder per class, MNIST's idx files, CIFAR's binary files, or memory.
#[derive(Clone, Debug)]
pub struct LabelledImages {
    /// Class names.
    pub labels: Vec<String>,
    /// The images.
    pub examples: Vec<LabelledImage>,
    /// Channels, height and width, if they are the same for all images.
    pub size: Option<[usize; 3]>,
}

impl LabelledImages {
    /// Hashes the data set's identity, so that a resumed run notices other data.
    ///
    /// Image files contribute their names (below the folder of their class), sizes and classes, which are known without
    /// reading them. A file of many images contributes all pixels, and an image in memory its bytes.
    pub fn hash_into(&self, mut add: impl FnMut(&[u8])) {
        let mut sets: Vec<&Arc<ImageSet>> = Vec::new();
        for LabelledImage { source, class } in &self.examples {
            match source {
                Source::File(path) => {
                    let name = path.file_name().unwrap_or_default();
                    let size = std::fs::metadata(path).map_or(0, |file| file.len());
                    add(name.as_encoded_bytes());
                    add(&size.to_le_bytes());
                }
                Source::Set(set, i) => {
                    let known = sets.iter().position(|known| Arc::ptr_eq(known, set));
                    let number = known.unwrap_or_else(|| {
                        add(&set.pixels);
                        sets.push(set);
                        sets.len() - 1
                    });
                    add(&number.to_le_bytes());
                    add(&i.to_le_bytes());
                }
                Source::Encoded { bytes, .. } => {
                    add(&bytes.len().to_le_bytes());
                    add(bytes);
                }
            }
            add(&class.to_le_bytes());
        }
    }

    /// Returns the same images with class indices in `labels`, which can have additional classes.
    ///
    /// # Errors
    /// The class of an image is not among the labels.
    pub fn relabelled(mut self, labels: &[String]) -> Result<Self, ImageError> {
        let indices: Vec<Option<usize>> =
            self.labels.iter().map(|label| labels.iter().position(|known| known == label)).collect();
        for example in &mut self.examples {
            let place = indices.get(example.class).copied().flatten();
            example.class = place.ok_or_else(|| {
                ImageError::BadOption(format!(
                    "the held-out images have the classes {}, but the other images have {}",
                    self.labels.join(", "),
                    labels.join(", ")
                ))
            })?;
        }
        Ok(Self { labels: labels.to_vec(), ..self })
    }
}

/// Opens the data set at a path, and its evaluation part, if it has one.
///
/// The path is a folder with one folder per class, or with such folders in `train` and `val` (`validation`, `test`); a
/// folder or a single image file of MNIST's idx format; or CIFAR's binary files. `warn` is called with a sentence for
/// each folder without images.
///
/// # Errors
/// A file cannot be read, is damaged or lacks its labels, or there are fewer than two classes.
pub fn open_labelled(
    path: &Path,
    mut warn: impl FnMut(String),
) -> Result<(LabelledImages, Option<LabelledImages>), ImageError> {
    if !path.is_dir() {
        return Ok((set(path)?, None));
    }
    let within = |names: &[&str]| names.iter().map(|name| path.join(name)).find(|path| path.exists());
    if let Some(file) = mnist_images(path, "train") {
        let held_out = mnist_images(path, "t10k").map(|file| set(&file)).transpose()?;
        return Ok((set(&file)?, held_out));
    }
    let batches = (1..=5).map(|i| path.join(format!("data_batch_{i}.bin"))).filter(|file| file.exists());
    let sets = batches.map(|file| set(&file)).collect::<Result<Vec<_>, _>>()?;
    let joined = sets.into_iter().reduce(|mut all, set| {
        all.examples.extend(set.examples);
        all
    });
    if let Some(all) = joined {
        let held_out = within(&["test_batch.bin"]).map(|file| set(&file)).transpose()?;
        return Ok((all, held_out));
    }
    if let Some(file) = within(&["train.bin"]) {
        let held_out = within(&["test.bin"]).map(|file| set(&file)).transpose()?;
        return Ok((set(&file)?, held_out));
    }
    if let Some(train) = within(&["train"]).filter(|path| path.is_dir()) {
        let held_out = within(&["val", "validation", "test"]).map(|path| folder(&path, &mut warn)).transpose()?;
        return Ok((folder(&train, &mut warn)?, held_out));
    }
    Ok((folder(path, &mut warn)?, None))
}

fn folder(path: &Path, mut warn: impl FnMut(String)) -> Result<LabelledImages, ImageError> {
    let ImageFolder { classes, samples, empty } = ImageFolder::open(path)?;
    for folder in empty {
        warn(format!("left out: {} has no images", folder.display()));
    }
    let example = |(path, class)| LabelledImage { source: Source::File(path), class };
    Ok(LabelledImages { labels: classes, examples: samples.into_iter().map(example).collect(), size: None })
}

const CIFAR10: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// Reads a file of many images.
fn set(path: &Path) -> Result<LabelledImages, ImageError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (set, labels) = match name.ends_with(".bin") {
        true => {
            let kind = if name.contains("batch") { CifarKind::Ten } else { CifarKind::HundredFine };
            let set = read_cifar(path, kind)?;
            let labels = match kind {
                CifarKind::Ten => CIFAR10.iter().map(|&name| name.to_owned()).collect(),
                _ => (0..100).map(|class| class.to_string()).collect(),
            };
            (set, labels)
        }
        false => {
            let set = read_idx(path)?;
            let classes = set.labels.iter().max().map_or(0, |&class| usize::from(class) + 1);
            (set, (0..classes).map(|class| class.to_string()).collect::<Vec<_>>())
        }
    };
    if labels.len() < 2 || set.n == 0 {
        return Err(ImageError::BadOption(format!(
            "{}: a classifier needs images of at least two classes",
            path.display()
        )));
    }
    let size = Some([set.channels, set.height, set.width]);
    let set = Arc::new(set);
    let example = |i: usize| LabelledImage { source: Source::Set(set.clone(), i), class: usize::from(set.labels[i]) };
    Ok(LabelledImages { labels, examples: (0..set.n).map(example).collect(), size })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datasets::{write_idx_images, write_idx_labels};

    #[test]
    fn reads_idx_files_of_a_folder_and_their_evaluation_part() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let set = |n: usize| ImageSet { n, channels: 1, height: 2, width: 2, pixels: vec![7; 4 * n], labels: vec![] };
        for (prefix, labels) in [("train", vec![0, 1, 2]), ("t10k", vec![1, 0])] {
            let named = |what: &str| directory.path().join(format!("{prefix}-{what}-ubyte"));
            write_idx_images(named("images-idx3"), &set(labels.len())).expect("written");
            write_idx_labels(named("labels-idx1"), &labels).expect("written");
        }
        let (training, held_out) = open_labelled(directory.path(), |_| ()).expect("readable");
        let held_out = held_out.expect("an evaluation part");
        assert_eq!((training.examples.len(), held_out.examples.len()), (3, 2));
        assert_eq!((training.labels.len(), training.size), (3, Some([1, 2, 2])));
        assert_eq!(training.examples[2].read().expect("an image").dimensions(), (2, 2));
        let held_out = held_out.relabelled(&training.labels).expect("known classes");
        assert_eq!(held_out.labels, training.labels);
        assert!(training.relabelled(&["0".to_owned(), "1".to_owned()]).is_err());
    }
}
