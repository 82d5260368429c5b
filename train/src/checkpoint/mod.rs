//! CheckpointManager: everything that a run needs to go on as if nothing had happened.
//!
//! A checkpoint is a directory, `step-0000000120`, with the state's leaves in `state.safetensors` and the rest in
//! `checkpoint.json`, checksum included. It is written beside and renamed, so it is there whole or not at all; the
//! newest few are kept. A checkpoint that turns out damaged is skipped for the one before it; one that cannot be read
//! for another reason is an error, as it may be good.
//!
//! Reading changes nothing. Who writes holds the [`RunLock`] of the directory above, and clears away what is left over.

mod exact;
mod manifest;

pub use manifest::{Manifest, RunProgress};

use burn::tensor::DType;
use grove_backend::Backend;
use grove_files::sync_directory;
use grove_tree::{Tree, named_leaves, skeleton, with_named_leaves};
use grove_weights::{LoadOptions, NameMap, TensorFiles, WeightsError, load, save_tree};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Result, RunLock, TrainError};
use manifest::is_damage;

const STATE: &str = "state.safetensors";
const MANIFEST: &str = "checkpoint.json";
const PREFIX: &str = "step-";
/// Prefix of directories while they are written.
const TEMPORARY: &str = ".grove-";

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct CheckpointManager {
    directory: PathBuf,
    keep: usize,
    /// Held from the first change on.
    lock: Arc<Mutex<Option<RunLock>>>,
}

/// A checkpoint that was read.
#[derive(Debug)]
pub struct Restored<T> {
    /// The tree that was saved.
    pub state: T,
    /// Progress of the run at the checkpoint.
    pub progressed: RunProgress,
    /// Its directory.
    pub path: PathBuf,
    /// Newer checkpoints that were skipped, and why: one sentence each.
    pub skipped: Vec<String>,
}

impl CheckpointManager {
    /// The checkpoints in a directory, which need not exist; when one is saved, the oldest of more than `keep` (at least
    /// 1) are removed. Opening, listing and loading change nothing, and may be done beside a run.
    ///
    /// # Errors
    /// [`TrainError::Io`].
    pub fn open(directory: impl Into<PathBuf>, keep: usize) -> Result<Self> {
        let directory = directory.into();
        entries(&directory)?;
        Ok(Self { directory, keep: keep.max(1), lock: Arc::default() })
    }

    /// The checkpoints in a directory of a run whose lock is held. What an earlier process left half-written is cleared
    /// away.
    pub(crate) fn locked(directory: PathBuf, keep: usize, lock: RunLock) -> Result<Self> {
        clear_drafts(&directory, &lock)?;
        Ok(Self { directory, keep: keep.max(1), lock: Arc::new(Mutex::new(Some(lock))) })
    }

    /// Takes the lock, unless it is held already.
    fn lock(&self) -> Result<()> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            let taken = RunLock::acquire(self.directory.parent().unwrap_or(&self.directory))?;
            clear_drafts(&self.directory, &taken)?;
            *lock = Some(taken);
        }
        Ok(())
    }

    /// The directories of the checkpoints, newest first.
    ///
    /// # Errors
    /// [`TrainError::Io`].
    pub fn list(&self) -> Result<Vec<(u64, PathBuf)>> {
        let number = |name: &str| name.strip_prefix(PREFIX)?.parse().ok();
        let mut found: Vec<(u64, PathBuf)> =
            entries(&self.directory)?.into_iter().filter_map(|(name, path)| Some((number(&name)?, path))).collect();
        found.sort_by(|a, b| b.cmp(a));
        Ok(found)
    }

    /// Writes a checkpoint and removes those that are too many, and those of later steps: they were damaged, or belong
    /// to a run that was gone back from. The new one's directory.
    ///
    /// The first call takes the [`RunLock`] of the directory above this one, unless [`fit`](crate::fit) holds it, and
    /// clears away what an earlier process left half-written; the lock is held until the last clone is dropped.
    ///
    /// # Errors
    /// [`TrainError::RunLocked`] where another run writes there, [`TrainError::Io`], or the state cannot be written;
    /// older checkpoints are still there then.
    pub fn save<B: Backend, T: Tree<B>>(&self, state: &T, progressed: &RunProgress) -> Result<PathBuf> {
        let path = self.write(state, progressed)?;
        for (_, later) in self.list()?.iter().filter(|(step, _)| *step > progressed.step) {
            self.remove(later)?;
        }
        self.thin(progressed.step)?;
        Ok(path)
    }

    /// Of this step and those before it, removes those that are too many.
    pub(crate) fn thin(&self, newest: u64) -> Result<()> {
        let old = self.list()?.into_iter().filter(|(step, _)| *step <= newest);
        old.skip(self.keep).try_for_each(|(_, path)| self.remove(&path))
    }

    /// Writes a checkpoint beside the others, and removes all but those of these steps.
    pub(crate) fn save_among<B: Backend, T: Tree<B>>(
        &self,
        state: &T,
        progressed: &RunProgress,
        steps: &[u64],
    ) -> Result<()> {
        self.write(state, progressed)?;
        self.retain(steps)
    }

    /// Removes all but the checkpoints of these steps.
    pub(crate) fn retain(&self, steps: &[u64]) -> Result<()> {
        self.list()?.iter().filter(|(step, _)| !steps.contains(step)).try_for_each(|(_, path)| self.remove(path))
    }

    /// Reads the newest checkpoint that is whole into a tree of the same structure; `None` where there is none at all.
    ///
    /// # Errors
    /// [`TrainError::OtherModel`], [`TrainError::NewerCheckpoint`], [`TrainError::AllDamaged`] or [`TrainError::Io`].
    /// A checkpoint that cannot be read for another reason than damage is not skipped: it may be the newest good one.
    pub fn load<B: Backend, T: Tree<B>>(&self, like: &T, device: &B::Device) -> Result<Option<Restored<T>>> {
        self.load_if(like, device, |_, _| Ok(()))
    }

    /// As [`load`](Self::load), unless `accept` refuses what was saved beside the arrays of the newest checkpoint.
    pub(crate) fn load_if<B: Backend, T: Tree<B>>(
        &self,
        like: &T,
        device: &B::Device,
        mut accept: impl FnMut(&Path, &RunProgress) -> Result<()>,
    ) -> Result<Option<Restored<T>>> {
        let mut skipped = Vec::new();
        for (_, path) in self.list()? {
            match read(like, &path, device, &mut accept)? {
                Ok((state, progressed)) => return Ok(Some(Restored { state, progressed, path, skipped })),
                Err(damage) => skipped.push(format!("{} is damaged: {damage}", path.display())),
            }
        }
        match skipped.into_iter().next() {
            Some(reason) => Err(TrainError::AllDamaged { directory: self.directory.clone(), reason }),
            None => Ok(None),
        }
    }

    /// Reads the checkpoint of one step; the inner error says how it is missing or damaged.
    pub(crate) fn load_step<B: Backend, T: Tree<B>>(
        &self,
        step: u64,
        like: &T,
        device: &B::Device,
    ) -> Result<std::result::Result<T, String>> {
        Ok(read(like, &self.path(step), device, &mut |_, _| Ok(()))?.map(|(state, _)| state))
    }

    fn path(&self, step: u64) -> PathBuf {
        self.directory.join(format!("{PREFIX}{step:010}"))
    }

    /// Writes one checkpoint. Loading takes the newest whole one, so what has its name already is a damaged one, and
    /// makes way.
    fn write<B: Backend, T: Tree<B>>(&self, state: &T, progressed: &RunProgress) -> Result<PathBuf> {
        let path = self.path(progressed.step);
        self.lock()?;
        fs::create_dir_all(&self.directory).map_err(TrainError::io("make directory", &self.directory))?;
        let draft = self.draft()?;
        fill(draft.path(), state, progressed).map_err(|error| match error {
            // The name that a person knows, not that of the draft.
            TrainError::Io(error) | TrainError::Weights(WeightsError::Io(error)) => {
                TrainError::io("write", &path)(error.source)
            }
            error => error,
        })?;
        self.remove(&path)?;
        fs::rename(draft.path(), &path).map_err(TrainError::io("write", &path))?;
        // It has another name now, and is not to be removed.
        let _ = draft.keep();
        sync_directory(&self.directory);
        Ok(path)
    }

    /// A directory with a name that no checkpoint has, which is removed when it is dropped.
    fn draft(&self) -> Result<tempfile::TempDir> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(TEMPORARY).suffix(".writing");
        #[cfg(unix)]
        {
            // Mode of a new directory by the umask; temporary directories are private by default.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o777));
        }
        builder.tempdir_in(&self.directory).map_err(TrainError::io("write in", &self.directory))
    }

    /// Removes a checkpoint, which is gone at once, whenever the process is killed.
    fn remove(&self, path: &Path) -> Result<()> {
        match fs::symlink_metadata(path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(TrainError::io("remove", path)(error)),
        }
        self.lock()?;
        let draft = self.draft()?;
        fs::rename(path, draft.path().join("removed")).map_err(TrainError::io("remove", path))?;
        draft.close().map_err(TrainError::io("remove", path))
    }
}

/// Writes the files of a checkpoint.
fn fill<B: Backend, T: Tree<B>>(draft: &Path, state: &T, progressed: &RunProgress) -> Result<()> {
    let file = draft.join(STATE);
    save_tree::<B, _>(&named_leaves(state), &file)?;
    Manifest::new(progressed.clone(), &file)?.write(&draft.join(MANIFEST))?;
    sync_directory(draft);
    Ok(())
}

/// Removes what a process that was killed left half-written in a directory. The lock says that no other process is
/// writing it still.
pub(crate) fn clear_drafts(directory: &Path, _lock: &RunLock) -> Result<()> {
    for (name, path) in entries(directory)? {
        if name.starts_with(TEMPORARY) {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(TrainError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Names and paths of what is in a directory, if there is one.
fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let listing = match fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(TrainError::io("list", directory)(error)),
    };
    let mut found = Vec::new();
    for item in listing {
        let item = item.map_err(TrainError::io("list", directory))?;
        // Names that are no text are not ours.
        found.extend(item.file_name().into_string().ok().map(|name| (name, item.path())));
    }
    Ok(found)
}

/// Reads the checkpoint in the directory `path` into a tree of the same structure. The inner error says how it is
/// damaged.
///
/// # Errors
/// Those that are no damage: [`TrainError::OtherModel`], [`TrainError::NewerCheckpoint`], [`TrainError::Io`], what the device
/// cannot hold, and what `accept` says.
fn read<B: Backend, T: Tree<B>>(
    like: &T,
    path: &Path,
    device: &B::Device,
    accept: &mut impl FnMut(&Path, &RunProgress) -> Result<()>,
) -> Result<std::result::Result<(T, RunProgress), String>> {
    let manifest = match Manifest::read(&path.join(MANIFEST), path)? {
        Ok(manifest) => manifest,
        Err(damage) => return Ok(Err(damage)),
    };
    let file = path.join(STATE);
    if let Err(damage) = manifest.check(&file)? {
        return Ok(Err(damage));
    }
    accept(path, &manifest.progressed)?;
    let other = |reason: String| TrainError::OtherModel { path: path.into(), reason };
    let names = named_leaves(like);
    let file = match TensorFiles::open(&file) {
        Ok(file) => file,
        Err(WeightsError::Io(error)) if !is_damage(&error.source) => return Err(error.into()),
        Err(error) => return Ok(Err(error.to_string())),
    };
    // Loading converts, and a run that goes on in another type is another run.
    for (name, leaf) in &names {
        let (Ok(info), dtype) = (file.info(name), leaf.dtype()) else { continue };
        let found = info.dtype.to_string().to_lowercase();
        if [DType::F64, DType::F32, DType::F16, DType::BF16].contains(&dtype) && found != dtype.name() {
            return Err(other(format!("`{name}` is {found} there, and {} here", dtype.name())));
        }
    }
    let leaves = match load(skeleton::<B, _>(names), &file, &NameMap::new(), &LoadOptions::new(device)) {
        Ok((leaves, _)) => leaves,
        Err(error @ WeightsError::Incompatible(_)) => return Err(other(error.to_string())),
        // The checksum was right, so the file is not what is wrong.
        Err(error) => return Err(error.into()),
    };
    let state = with_named_leaves(like.clone(), leaves).map_err(|error| other(error.to_string()))?;
    Ok(Ok((state, manifest.progressed)))
}
