use std::{
    fs::{self, File, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    process,
    sync::Arc,
};

use grove_files::FileError;

use crate::{Result, TrainError};

/// Name of the lock file.
const NAME: &str = "run.lock";

/// Maximum length of the holder's description, in bytes.
const LONGEST_HOLDER: u64 = 200;

/// Exclusive lock of a run's directory, in this process and across processes. Only its holder writes to the directory
/// and removes incomplete files.
///
/// It is an operating-system lock on the file `run.lock`, so it is released when the process ends for any reason. The
/// file stays. Clones share the lock.
#[derive(Clone, Debug)]
pub struct RunLock {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    directory: PathBuf,
    file: File,
    /// Error of locking, on a file system without locks.
    unlocked: Option<std::io::Error>,
}

impl RunLock {
    /// Acquires the lock of a directory, which is created if it does not exist.
    ///
    /// On network file systems without locks the lock is not exclusive, and [`remark`](Self::remark) returns a message.
    ///
    /// # Errors
    /// [`TrainError::RunLocked`] if another run holds the lock, and [`TrainError::Io`].
    pub fn acquire(directory: impl AsRef<Path>) -> Result<Self> {
        // A path such as `checkpoints` has the empty path as its parent.
        let directory = directory.as_ref();
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        fs::create_dir_all(directory).map_err(FileError::io("make directory", directory))?;
        let path = directory.join(NAME);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(FileError::io("open", &path))?;
        let unlocked = loop {
            match file.try_lock() {
                Ok(()) => break None,
                Err(TryLockError::WouldBlock) => {
                    return Err(TrainError::RunLocked { directory: directory.into(), holder: holder(&mut file) });
                }
                Err(TryLockError::Error(error)) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) => break Some(error),
            }
        };
        if unlocked.is_none() {
            // Only for the error message of a second run, so ignore errors such as a full disk.
            let name = gethostname::gethostname();
            let _ = file.set_len(0);
            let _ = write!(file, "process {} on {}", process::id(), name.to_string_lossy());
        }
        Ok(Self { held: Arc::new(Held { directory: directory.into(), file, unlocked }) })
    }

    /// Returns the directory.
    pub fn directory(&self) -> &Path {
        &self.held.directory
    }

    /// Returns a message for the user if the file system has no locks, so that the lock is not exclusive.
    pub fn remark(&self) -> Option<String> {
        let error = self.held.unlocked.as_ref()?;
        Some(format!(
            "{} cannot be locked ({error}): make sure that no other run writes there",
            self.held.directory.display()
        ))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.unlocked.is_none() {
            // Clear the holder's name. A killed process leaves its name, which the next holder replaces.
            let _ = self.file.set_len(0);
        }
    }
}

/// Returns the description of the holder in the lock file, if any.
fn holder(file: &mut File) -> Option<String> {
    let mut text = String::new();
    file.rewind().ok()?;
    file.take(LONGEST_HOLDER).read_to_string(&mut text).ok()?;
    let text: String = text.trim().chars().filter(|c| !c.is_control()).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_lock_is_refused_and_names_the_holder() {
        let directory = tempfile::tempdir().expect("a directory");
        let run = directory.path().join("deep/run");
        let first = RunLock::acquire(&run).expect("free");
        let error = RunLock::acquire(&run).expect_err("taken");
        assert!(
            matches!(&error, TrainError::RunLocked { directory, holder: Some(_) } if *directory == run),
            "{error:?}"
        );
        let message = error.to_string();
        for part in [&*run.to_string_lossy(), &format!("process {}", process::id())] {
            assert!(message.contains(part), "{part}: {message}");
        }
        let clone = first.clone();
        drop(first);
        RunLock::acquire(&run).expect_err("a clone holds it still");
        drop(clone);
        let again = RunLock::acquire(&run).expect("free again");
        assert!(again.remark().is_none());
        drop(again);
        assert_eq!(fs::read(run.join(NAME)).expect("the file stays"), b"");
    }

    #[test]
    fn a_file_in_place_of_the_directory_is_named() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        fs::write(&path, "").expect("written");
        let error = RunLock::acquire(&path).expect_err("it is a file");
        assert!(matches!(&error, TrainError::Io(FileError::System { path: at, .. }) if *at == path), "{error:?}");
    }
}
