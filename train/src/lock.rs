use std::{
    fs::{self, File, TryLockError},
    io::{Read, Seek, Write},
    path::{Path, PathBuf},
    process,
    sync::Arc,
};

use crate::{Result, TrainError};

/// Name of the file that is locked.
const NAME: &str = "run.lock";

/// Longest description of a holder that is read.
const LONGEST_HOLDER: u64 = 200;

/// The lock of a run's directory: as long as it lives, nobody else can take it, in this process or in another one. Only
/// its holder writes there and clears away what is left over.
///
/// It is a lock of the operating system on the file `run.lock`, so it ends with the process, however that ends. The file
/// stays. Clones are the same lock.
#[derive(Clone, Debug)]
pub struct RunLock {
    held: Arc<Held>,
}

#[derive(Debug)]
struct Held {
    directory: PathBuf,
    file: File,
    /// Why the file could not be locked, where the file system has no locks.
    unlocked: Option<std::io::Error>,
}

impl RunLock {
    /// Takes the lock of a directory, which is made if it does not exist.
    ///
    /// Some network file systems have no locks; there the lock is not exclusive, and [`remark`](Self::remark) says so.
    ///
    /// # Errors
    /// [`TrainError::RunLocked`] where another run holds it, and [`TrainError::Io`].
    pub fn acquire(directory: impl AsRef<Path>) -> Result<Self> {
        // A path such as `checkpoints` has the empty path as its parent.
        let directory = directory.as_ref();
        let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
        fs::create_dir_all(directory).map_err(TrainError::io("make directory", directory))?;
        let path = directory.join(NAME);
        let mut file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(TrainError::io("open", &path))?;
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
            // Only for the message of a second run: a full disk is no reason to end the first.
            let name = gethostname::gethostname();
            let _ = file.set_len(0);
            let _ = write!(file, "process {} on {}", process::id(), name.to_string_lossy());
        }
        Ok(Self { held: Arc::new(Held { directory: directory.into(), file, unlocked }) })
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.held.directory
    }

    /// A sentence for people where the file system has no locks, so that this one keeps nobody away.
    pub fn remark(&self) -> Option<String> {
        let error = self.held.unlocked.as_ref()?;
        Some(format!(
            "{} cannot be locked ({error}): see to it that no other run writes there",
            self.held.directory.display()
        ))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.unlocked.is_none() {
            // Nobody holds it any more. A process that is killed leaves its name, which the next holder replaces.
            let _ = self.file.set_len(0);
        }
    }
}

/// The process that holds the lock, as far as the file tells.
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
    fn a_second_holder_is_refused_and_told_the_first() {
        let directory = tempfile::tempdir().expect("a directory");
        let run = directory.path().join("deep/run");
        let first = RunLock::acquire(&run).expect("free");
        let error = RunLock::acquire(&run).expect_err("taken");
        assert!(
            matches!(&error, TrainError::RunLocked { directory, holder: Some(_) } if *directory == run),
            "{error:?}"
        );
        let said = error.to_string();
        for part in [&*run.to_string_lossy(), &format!("process {}", process::id())] {
            assert!(said.contains(part), "{part}: {said}");
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
        assert!(matches!(&error, TrainError::Io(error) if error.path == path), "{error:?}");
    }
}
