//! Checkpoints: everything that a run needs to resume exactly.
//!
//! A checkpoint is a directory, such as `step-0000000120`, with the leaves of the state in `state.safetensors` and the
//! rest, including checksums, in `checkpoint.json`. It is written under a temporary name and renamed, so it is complete
//! or absent. The newest few are kept. A damaged checkpoint is skipped in favour of the one before it. A checkpoint
//! that cannot be read for another reason is an error, because it may be intact.
//!
//! Reading changes nothing. A writer holds the [`RunLock`] of the parent directory and removes incomplete checkpoints.

mod exact;
mod manifest;

pub use manifest::{Manifest, RunProgress};

use burn::tensor::DType;
use grove_backend::Backend;
use grove_files::{FileError, sync_directory};
use grove_tree::{Tree, named_leaves, skeleton, with_named_leaves};
use grove_weights::{LoadOptions, NameMap, TensorFiles, WeightsError, load, save_tree};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use crate::{Result, RunLock, TrainError};
pub(crate) use manifest::ReadError;
use manifest::is_damage;

const STATE: &str = "state.safetensors";
const MANIFEST: &str = "checkpoint.json";
const PREFIX: &str = "step-";
/// Prefix of directories that are being written.
const TEMPORARY: &str = ".grove-";

/// The checkpoints of a run.
#[derive(Clone, Debug)]
pub struct CheckpointManager {
    directory: PathBuf,
    keep: usize,
    /// Lock of the run's directory, acquired at the first write.
    lock: Arc<Mutex<Option<RunLock>>>,
}

/// A restored checkpoint.
#[derive(Debug)]
pub struct Restored<T> {
    /// The tree that was saved.
    pub state: T,
    /// Progress of the run at the checkpoint.
    pub progressed: RunProgress,
    /// Directory of the checkpoint.
    pub path: PathBuf,
    /// Newer checkpoints that were skipped as damaged, with the reason: one sentence each.
    pub skipped: Vec<String>,
}

impl CheckpointManager {
    /// Opens a directory of checkpoints, which need not exist. [`save`](Self::save) keeps the newest `keep` checkpoints
    /// (at least 1). Opening, listing and loading change nothing, and are allowed while a run writes.
    ///
    /// # Errors
    /// [`TrainError::Io`].
    pub fn open(directory: impl Into<PathBuf>, keep: usize) -> Result<Self> {
        let directory = directory.into();
        entries(&directory)?;
        Ok(Self { directory, keep: keep.max(1), lock: Arc::default() })
    }

    /// Opens the checkpoints of a run whose lock is held, and removes those that an earlier process left incomplete.
    pub(crate) fn locked(directory: PathBuf, keep: usize, lock: RunLock) -> Result<Self> {
        clear_drafts(&directory, &lock)?;
        Ok(Self { directory, keep: keep.max(1), lock: Arc::new(Mutex::new(Some(lock))) })
    }

    /// Acquires the lock, unless it is held already.
    fn lock(&self) -> Result<()> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            let acquired = RunLock::acquire(self.directory.parent().unwrap_or(&self.directory))?;
            clear_drafts(&self.directory, &acquired)?;
            *lock = Some(acquired);
        }
        Ok(())
    }

    /// Returns the step and directory of each checkpoint, newest first.
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

    /// Writes a checkpoint and returns its directory. Removes the oldest checkpoints beyond `keep`, and those of later
    /// steps, which are damaged or belong to a run that was resumed from an earlier step.
    ///
    /// The first call acquires the [`RunLock`] of the parent directory, unless [`fit`](crate::fit) holds it, and
    /// removes incomplete checkpoints of earlier processes. The lock is held until the last clone is dropped.
    ///
    /// # Errors
    /// [`TrainError::RunLocked`] if another run uses the directory, [`TrainError::Io`], or an error of writing the
    /// state. Older checkpoints are unaffected.
    pub fn save<B: Backend, T: Tree<B>>(&self, state: &T, progressed: &RunProgress) -> Result<PathBuf> {
        let path = self.write(state, progressed)?;
        for (_, later) in self.list()?.iter().filter(|(step, _)| *step > progressed.step) {
            self.remove(later)?;
        }
        self.thin(progressed.step)?;
        Ok(path)
    }

    /// Removes the oldest checkpoints up to step `newest`, beyond `keep`. Later steps are not touched.
    pub(crate) fn thin(&self, newest: u64) -> Result<()> {
        let old = self.list()?.into_iter().filter(|(step, _)| *step <= newest);
        old.skip(self.keep).try_for_each(|(_, path)| self.remove(&path))
    }

    /// Removes all checkpoints except those of `steps`.
    pub(crate) fn retain(&self, steps: &[u64]) -> Result<()> {
        self.list()?.iter().filter(|(step, _)| !steps.contains(step)).try_for_each(|(_, path)| self.remove(path))
    }

    /// Loads the newest intact checkpoint into a tree of the same structure; `None` if there is no checkpoint.
    ///
    /// # Errors
    /// [`TrainError::OtherModel`], [`TrainError::NewerCheckpoint`], [`TrainError::AllDamaged`] or [`TrainError::Io`].
    /// A checkpoint that cannot be read for a reason other than damage is not skipped: it may be the newest intact one.
    pub fn load<B: Backend, T: Tree<B>>(&self, like: &T, device: &B::Device) -> Result<Option<Restored<T>>> {
        self.load_if(like, device, |_, _| Ok(()))
    }

    /// As [`load`](Self::load). `accept` checks the path and progress of each checkpoint before its arrays are loaded;
    /// its error is returned.
    pub(crate) fn load_if<B: Backend, T: Tree<B>>(
        &self,
        like: &T,
        device: &B::Device,
        mut accept: impl FnMut(&Path, &RunProgress) -> Result<()>,
    ) -> Result<Option<Restored<T>>> {
        let mut skipped = Vec::new();
        for (_, path) in self.list()? {
            match read(like, &path, device, &mut accept) {
                Ok((state, progressed)) => return Ok(Some(Restored { state, progressed, path, skipped })),
                Err(ReadError::Damaged(damage)) => skipped.push(format!("{} is damaged: {damage}", path.display())),
                Err(ReadError::Other(error)) => return Err(error),
            }
        }
        match skipped.into_iter().next() {
            Some(reason) => Err(TrainError::AllDamaged { directory: self.directory.clone(), reason }),
            None => Ok(None),
        }
    }

    /// Loads the checkpoint of one step.
    pub(crate) fn load_step<B: Backend, T: Tree<B>>(
        &self,
        step: u64,
        like: &T,
        device: &B::Device,
    ) -> Result<T, ReadError> {
        read(like, &self.path(step), device, &mut |_, _| Ok(())).map(|(state, _)| state)
    }

    fn path(&self, step: u64) -> PathBuf {
        self.directory.join(format!("{PREFIX}{step:010}"))
    }

    /// Writes one checkpoint. An existing checkpoint of the same step is replaced: loading skipped it, so it is
    /// damaged.
    pub(crate) fn write<B: Backend, T: Tree<B>>(&self, state: &T, progressed: &RunProgress) -> Result<PathBuf> {
        let path = self.path(progressed.step);
        self.lock()?;
        fs::create_dir_all(&self.directory).map_err(FileError::io("make directory", &self.directory))?;
        let draft = self.draft()?;
        fill(draft.path(), state, progressed).map_err(|error| match error {
            // Report the final path, not that of the temporary directory.
            TrainError::Io(FileError::System { source, .. })
            | TrainError::Weights(WeightsError::File(FileError::System { source, .. })) => {
                FileError::io("write", &path)(source).into()
            }
            error => error,
        })?;
        self.remove(&path)?;
        fs::rename(draft.path(), &path).map_err(FileError::io("write", &path))?;
        // The directory was renamed, so dropping the guard must not remove it.
        let _ = draft.keep();
        sync_directory(&self.directory);
        Ok(path)
    }

    /// Creates a temporary directory, which is removed when the guard is dropped. No checkpoint has such a name.
    fn draft(&self) -> Result<tempfile::TempDir> {
        let mut builder = tempfile::Builder::new();
        builder.prefix(TEMPORARY).suffix(".writing");
        #[cfg(unix)]
        {
            // Let the umask decide: temporary directories are private by default.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(fs::Permissions::from_mode(0o777));
        }
        Ok(builder.tempdir_in(&self.directory).map_err(FileError::io("write in", &self.directory))?)
    }

    /// Removes a checkpoint atomically: it is renamed first, so a killed process leaves no partial checkpoint.
    fn remove(&self, path: &Path) -> Result<()> {
        match fs::symlink_metadata(path) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(FileError::io("remove", path)(error).into()),
        }
        self.lock()?;
        let draft = self.draft()?;
        fs::rename(path, draft.path().join("removed")).map_err(FileError::io("remove", path))?;
        Ok(draft.close().map_err(FileError::io("remove", path))?)
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

/// Removes incomplete files and directories of killed processes. The lock guarantees that no other process is writing
/// them.
pub(crate) fn clear_drafts(directory: &Path, _lock: &RunLock) -> Result<()> {
    for (name, path) in entries(directory)? {
        if name.starts_with(TEMPORARY) {
            let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
            removed.map_err(FileError::io("remove", &path))?;
        }
    }
    Ok(())
}

/// Returns the names and paths of a directory's entries; none if the directory does not exist.
fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>> {
    let listing = match fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(FileError::io("list", directory)(error).into()),
    };
    let mut found = Vec::new();
    for item in listing {
        let item = item.map_err(FileError::io("list", directory))?;
        // grove writes only UTF-8 names.
        found.extend(item.file_name().into_string().ok().map(|name| (name, item.path())));
    }
    Ok(found)
}

/// Loads the checkpoint in the directory `path` into a tree of the same structure.
///
/// # Errors
/// Errors that are not damage: [`TrainError::OtherModel`], [`TrainError::NewerCheckpoint`], [`TrainError::Io`], an
/// array that the device cannot hold, and the error of `accept`.
fn read<B: Backend, T: Tree<B>>(
    like: &T,
    path: &Path,
    device: &B::Device,
    accept: &mut impl FnMut(&Path, &RunProgress) -> Result<()>,
) -> Result<(T, RunProgress), ReadError> {
    let manifest = Manifest::read(&path.join(MANIFEST), path)?;
    let file = path.join(STATE);
    manifest.check(&file)?;
    accept(path, &manifest.progressed)?;
    let other = |reason: String| TrainError::OtherModel { path: path.into(), reason };
    let names = named_leaves(like);
    let file = match TensorFiles::open(&file) {
        Ok(file) => file,
        Err(WeightsError::File(error)) if !matches!(&error, FileError::System { source, .. } if is_damage(source)) => {
            return Err(error.into());
        }
        Err(error) => return Err(ReadError::Damaged(error.to_string())),
    };
    // Loading would convert dtypes silently, but a run resumed in another dtype is a different run.
    for (name, leaf) in &names {
        let (Ok(info), dtype) = (file.info(name), leaf.dtype()) else { continue };
        let found = info.dtype.to_string().to_lowercase();
        if [DType::F64, DType::F32, DType::F16, DType::BF16].contains(&dtype) && found != dtype.name() {
            return Err(other(format!("`{name}` is {found} there, and {} here", dtype.name())).into());
        }
    }
    let leaves = match load(skeleton::<B, _>(names), &file, &NameMap::new(), &LoadOptions::new(device)) {
        Ok((leaves, _)) => leaves,
        Err(error @ WeightsError::Incompatible(_)) => return Err(other(error.to_string()).into()),
        // The checksum matched, so the file is intact.
        Err(error) => return Err(error.into()),
    };
    let state = with_named_leaves(like.clone(), leaves).map_err(|error| other(error.to_string()))?;
    Ok((state, manifest.progressed))
}
