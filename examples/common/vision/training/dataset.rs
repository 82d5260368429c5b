//! Data sets of images and their classes.

use clap::Args;
use grove::{
    images::{
        ImageError, ImageFolder, Limits, RgbImage,
        datasets::{CifarKind, ImageSet, read_cifar, read_idx_images, read_idx_labels},
        open,
    },
    prelude::*,
    train::DataIdentity,
};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    common::{Exit, failure, shipped},
    labelled,
    training::fraction,
};

/// Held-out data.
#[derive(Args, Debug)]
pub struct HeldOutArgs {
    /// Pictures for the evaluation, in the form of --data; without them, those that --data has for it, else some of its own
    #[arg(long, value_name = "PATH")]
    pub held_out: Option<PathBuf>,

    /// Fraction of each class that is held out, where no other data is; with 0 there is no evaluation
    #[arg(long, default_value_t = 0.1, value_name = "FRACTION", conflicts_with = "held_out")]
    pub held_out_part: f64,
}

impl HeldOutArgs {
    /// Checks the options alone, before any file is read.
    pub fn check(&self) -> Result<(), String> {
        fraction("held-out-part", self.held_out_part)
    }
}

/// A picture of a class.
#[derive(Clone)]
pub struct Example {
    source: Source,
    pub class: usize,
}

#[derive(Clone)]
enum Source {
    File(PathBuf),
    Set(Arc<ImageSet>, usize),
}

impl Example {
    pub fn read(&self) -> Result<RgbImage, ImageError> {
        match &self.source {
            Source::File(path) => open(path, &Limits::default()),
            Source::Set(set, i) => {
                let beyond = || ImageError::BadOption(format!("there is no picture {i}"));
                set.image(*i).ok_or_else(beyond)
            }
        }
    }
}

/// Pictures and their classes.
#[derive(Clone)]
pub struct Dataset {
    pub labels: Vec<String>,
    pub examples: Vec<Example>,
    /// Channels, height and width, where all pictures have the same.
    pub size: Option<[usize; 3]>,
}

impl Dataset {
    /// Identity of the images. Of files it tells names (below the folder of their class), sizes and classes, which is
    /// known without reading them all.
    pub fn identity(&self) -> String {
        let mut identity = DataIdentity::new();
        let mut sets: Vec<&Arc<ImageSet>> = Vec::new();
        for Example { source, class } in &self.examples {
            match source {
                Source::File(path) => {
                    let name = path.file_name().unwrap_or_default();
                    let size = std::fs::metadata(path).map_or(0, |file| file.len());
                    identity.add(name.as_encoded_bytes());
                    identity.add(&size.to_le_bytes());
                }
                Source::Set(set, i) => {
                    let known = sets.iter().position(|known| Arc::ptr_eq(known, set));
                    let number = known.unwrap_or_else(|| {
                        identity.add(&set.pixels);
                        sets.push(set);
                        sets.len() - 1
                    });
                    identity.add(&number.to_le_bytes());
                    identity.add(&i.to_le_bytes());
                }
            }
            identity.add(&class.to_le_bytes());
        }
        format!("{} pictures ({})", self.examples.len(), identity.finish())
    }
}

/// Training data and held-out data.
pub struct Split {
    pub training: Dataset,
    pub held_out: Option<Dataset>,
}

impl Split {
    /// Reads what `--data` names, the digits that ship where it names nothing.
    pub fn open(data: Option<&Path>, asked: &HeldOutArgs, seed: u64) -> Result<Self, Exit> {
        let digits = shipped("digits");
        let (training, found) = open_both(data.unwrap_or(&digits))?;
        let held_out = match &asked.held_out {
            Some(path) => Some(open_both(path)?.0),
            None => found,
        };
        if let Some(held_out) = held_out {
            let held_out = held_out.relabelled(&training.labels)?;
            return Ok(Self { training, held_out: Some(held_out) });
        }
        if asked.held_out_part == 0.0 {
            return Ok(Self { training, held_out: None });
        }
        let examples = training.examples.iter().map(|example| (example.class, example.clone())).collect();
        let key = Key::new(seed).fold_in(4);
        let (rest, held) = labelled::split(examples, asked.held_out_part, key);
        if held.is_empty() {
            return Err(failure(format!(
                "{} pictures are too few to hold out {} of each class: give more, or a larger --held-out-part, or 0",
                rest.len(),
                asked.held_out_part
            )));
        }
        let part = |examples| Dataset { examples, ..training.clone() };
        Ok(Self { held_out: Some(part(held)), training: part(rest) })
    }
}

impl Dataset {
    /// The same pictures, their classes numbered as these. Classes of which there is no picture may be lacking.
    fn relabelled(mut self, labels: &[String]) -> Result<Self, Exit> {
        let places: Vec<Option<usize>> =
            self.labels.iter().map(|label| labels.iter().position(|known| known == label)).collect();
        for example in &mut self.examples {
            let place = places.get(example.class).copied().flatten();
            example.class = place.ok_or_else(|| {
                failure(format!(
                    "the classes of the held-out pictures are {}, and those of the others {}",
                    self.labels.join(", "),
                    labels.join(", ")
                ))
            })?;
        }
        Ok(Self { labels: labels.to_vec(), ..self })
    }
}

/// Opens the data set of a path, and its evaluation part, if it has one.
fn open_both(path: &Path) -> Result<(Dataset, Option<Dataset>), Exit> {
    if !path.is_dir() {
        return Ok((set(path)?, None));
    }
    let within = |names: &[&str]| names.iter().map(|name| path.join(name)).find(|path| path.exists());
    let suffixed = |name: &str| within(&[name, &format!("{name}.gz")]);
    if let Some(file) = suffixed("train-images-idx3-ubyte") {
        let held_out = suffixed("t10k-images-idx3-ubyte").map(|file| set(&file)).transpose()?;
        return Ok((set(&file)?, held_out));
    }
    let batches: Vec<PathBuf> =
        (1..=5).map(|i| path.join(format!("data_batch_{i}.bin"))).filter(|file| file.exists()).collect();
    if !batches.is_empty() {
        let sets = batches.iter().map(|file| set(file)).collect::<Result<Vec<_>, _>>()?;
        let held_out = within(&["test_batch.bin"]).map(|file| set(&file)).transpose()?;
        let mut sets = sets.into_iter();
        let mut all = sets.next().ok_or_else(|| failure("no batches"))?;
        sets.for_each(|set| all.examples.extend(set.examples));
        return Ok((all, held_out));
    }
    if let Some(file) = within(&["train.bin"]) {
        let held_out = within(&["test.bin"]).map(|file| set(&file)).transpose()?;
        return Ok((set(&file)?, held_out));
    }
    if let Some(train) = within(&["train"]).filter(|path| path.is_dir()) {
        let held_out = within(&["val", "validation", "test"]).map(|path| folder(&path)).transpose()?;
        return Ok((folder(&train)?, held_out));
    }
    Ok((folder(path)?, None))
}

fn folder(path: &Path) -> Result<Dataset, Exit> {
    let ImageFolder { classes, samples, empty } = ImageFolder::open(path).map_err(failure)?;
    for folder in empty {
        eprintln!("left out: {} holds no pictures, and is no class", folder.display());
    }
    let example = |(path, class)| Example { source: Source::File(path), class };
    Ok(Dataset { labels: classes, examples: samples.into_iter().map(example).collect(), size: None })
}

const CIFAR10: [&str; 10] = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];

/// A file that holds many pictures.
fn set(path: &Path) -> Result<Dataset, Exit> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (set, labels) = match name.ends_with(".bin") {
        true => {
            let kind = if name.contains("batch") { CifarKind::Ten } else { CifarKind::HundredFine };
            let set = read_cifar(path, kind).map_err(failure)?;
            let labels = match kind {
                CifarKind::Ten => CIFAR10.iter().map(|&name| name.to_owned()).collect(),
                _ => (0..100).map(|class| class.to_string()).collect(),
            };
            (set, labels)
        }
        false => {
            let mut set = read_idx_images(path).map_err(failure)?;
            let beside = path.with_file_name(name.replace("images", "labels").replace("idx3", "idx1"));
            if beside == path {
                return Err(failure(format!(
                    "{}: which file has its labels cannot be told, as there is no 'images' in the name",
                    path.display()
                )));
            }
            set.labels = read_idx_labels(&beside).map_err(failure)?;
            if set.labels.len() != set.n {
                return Err(failure(format!(
                    "{} has {} labels, and {} has {} pictures",
                    beside.display(),
                    set.labels.len(),
                    path.display(),
                    set.n
                )));
            }
            let classes = set.labels.iter().max().map_or(0, |&class| usize::from(class) + 1);
            (set, (0..classes).map(|class| class.to_string()).collect::<Vec<_>>())
        }
    };
    if labels.len() < 2 || set.n == 0 {
        return Err(failure(format!("{}: a classifier needs pictures of at least two classes", path.display())));
    }
    let size = Some([set.channels, set.height, set.width]);
    let set = Arc::new(set);
    let example = |i: usize| Example { source: Source::Set(set.clone(), i), class: usize::from(set.labels[i]) };
    Ok(Dataset { labels, examples: (0..set.n).map(example).collect(), size })
}
