//! Checkpoints: everything that a run needs to go on as if nothing had happened.
//!
//! A checkpoint is a directory, `step-0000000120`, with the state's leaves in `state.safetensors` and the rest in
//! `checkpoint.json`, checksum included. It is written beside and renamed, so it is there whole or not at all; the
//! newest few are kept. A checkpoint that turns out damaged is skipped for the one before it.

mod manifest;

pub use manifest::{Manifest, Progressed};

use grove_backend::Backend;
use grove_tree::{Tree, named_leaves, skeleton, with_named_leaves};
use grove_weights::{WeightsError, load_tree, save_tree};
use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{Result, TrainError};

const STATE: &str = "state.safetensors";
const MANIFEST: &str = "checkpoint.json";
const PREFIX: &str = "step-";
/// What directories are called while they are written.
const TEMPORARY: &str = ".grove-";

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    keep: usize,
}

/// A checkpoint that was read.
#[derive(Debug)]
pub struct Restored<T> {
    /// The tree that was saved.
    pub state: T,
    /// What was saved with it.
    pub progressed: Progressed,
    /// Its directory.
    pub path: PathBuf,
    /// Newer checkpoints that were skipped, and why: one sentence each.
    pub skipped: Vec<String>,
}

impl Checkpoints {
    /// The checkpoints in a directory, which need not exist; of more than `keep` (at least 1) the oldest are removed.
    /// What an earlier process left half-written is cleared away.
    ///
    /// # Errors
    /// [`TrainError::Io`].
    pub fn open(directory: impl Into<PathBuf>, keep: usize) -> Result<Self> {
        let checkpoints = Self { directory: directory.into(), keep: keep.max(1) };
        for (name, path) in checkpoints.entries()? {
            if name.starts_with(TEMPORARY) {
                remove(&path)?;
            }
        }
        Ok(checkpoints)
    }

    /// The directories of the checkpoints, newest first.
    ///
    /// # Errors
    /// [`TrainError::Io`].
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let number = |name: &str| name.strip_prefix(PREFIX)?.parse().ok();
        let mut found: Vec<(u64, PathBuf)> =
            self.entries()?.into_iter().filter_map(|(name, path)| Some((number(&name)?, path))).collect();
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// Writes a checkpoint and removes those that are too many. Its directory.
    ///
    /// # Errors
    /// [`TrainError::Io`], or the state cannot be written; older checkpoints are still there then.
    pub fn save<B: Backend, T: Tree<B>>(&self, state: &T, progressed: &Progressed) -> Result<PathBuf> {
        let path = self.directory.join(format!("{PREFIX}{:010}", progressed.step));
        write(state, progressed, &path)?;
        for (_, old) in self.list()?.into_iter().skip(self.keep) {
            remove(&old)?;
        }
        Ok(path)
    }

    /// Reads the newest checkpoint that is whole into a tree of the same structure; `None` where there is none at all.
    ///
    /// # Errors
    /// [`TrainError::OtherModel`], [`TrainError::NewerCheckpoint`], [`TrainError::AllDamaged`] or [`TrainError::Io`].
    pub fn load<B: Backend, T: Tree<B>>(&self, like: &T, device: &B::Device) -> Result<Option<Restored<T>>> {
        let mut skipped = Vec::new();
        for (_, path) in self.list()? {
            match read(like, &path, device)? {
                Ok((state, progressed)) => return Ok(Some(Restored { state, progressed, path, skipped })),
                Err(damage) => skipped.push(format!("{} is damaged: {damage}", path.display())),
            }
        }
        match skipped.into_iter().next() {
            Some(reason) => Err(TrainError::AllDamaged { directory: self.directory.clone(), reason }),
            None => Ok(None),
        }
    }

    fn entries(&self) -> Result<Vec<(String, PathBuf)>> {
        let listing = match fs::read_dir(&self.directory) {
            Ok(listing) => listing,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(TrainError::io("list", &self.directory)(error)),
        };
        Ok(listing
            .filter_map(|item| item.ok())
            .filter_map(|item| Some((item.file_name().into_string().ok()?, item.path())))
            .collect())
    }
}

/// Writes one checkpoint as the directory `path`.
fn write<B: Backend, T: Tree<B>>(state: &T, progressed: &Progressed, path: &Path) -> Result<()> {
    let parent = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent).map_err(TrainError::io("make directory", parent))?;
    let draft = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .suffix(".writing")
        .tempdir_in(parent)
        .map_err(TrainError::io("write in", parent))?;
    let file = draft.path().join(STATE);
    save_tree::<B, _>(&named_leaves(state), &file)?;
    Manifest::new(*progressed, &file)?.write(&draft.path().join(MANIFEST))?;
    // Loading takes the newest whole checkpoint, so what has this step's name already is a damaged one.
    remove(path)?;
    let draft = draft.keep();
    fs::rename(&draft, path).map_err(TrainError::io("rename", &draft))?;
    sync(parent);
    Ok(())
}

/// Reads the checkpoint in the directory `path` into a tree of the same structure. The inner error says how it is
/// damaged.
///
/// # Errors
/// What is no damage: [`TrainError::OtherModel`], [`TrainError::NewerCheckpoint`].
fn read<B: Backend, T: Tree<B>>(
    like: &T,
    path: &Path,
    device: &B::Device,
) -> Result<std::result::Result<(T, Progressed), String>> {
    let manifest = match Manifest::read(&path.join(MANIFEST), path)? {
        Ok(manifest) => manifest,
        Err(damage) => return Ok(Err(damage)),
    };
    let file = path.join(STATE);
    if let Err(damage) = manifest.check(&file) {
        return Ok(Err(damage));
    }
    let other = |reason: String| TrainError::OtherModel { path: path.into(), reason };
    let names = named_leaves(like);
    let leaves = match load_tree::<B, _>(skeleton::<B, _>(names), &file, device) {
        Ok(leaves) => leaves,
        Err(error @ WeightsError::Incompatible(_)) => return Err(other(error.to_string())),
        Err(error) => return Ok(Err(error.to_string())),
    };
    let state = with_named_leaves(like.clone(), leaves).map_err(|error| other(error.to_string()))?;
    Ok(Ok((state, manifest.progressed)))
}

fn remove(path: &Path) -> Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(TrainError::io("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Makes a rename survive a power failure, where the file system can.
fn sync(directory: &Path) {
    if cfg!(unix)
        && let Ok(directory) = fs::File::open(directory)
    {
        let _ = directory.sync_all();
    }
}
