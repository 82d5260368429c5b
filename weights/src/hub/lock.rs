//! A lock that lets one process at a time download a file.

use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use super::failure::Failure;

/// Pause between two attempts to acquire the lock.
const PAUSE: Duration = Duration::from_millis(100);

/// A file lock, held as long as the value exists. The system releases the lock when the process ends, even after a
/// crash.
pub(super) struct Lock {
    /// `None` if the file system does not support locks.
    file: Option<File>,
}

impl Lock {
    /// Waits for the lock of `path`. Calls `waiting` once if another process holds the lock.
    pub(super) fn acquire(path: &Path, waiting: impl FnOnce()) -> Result<Self, Failure> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(Failure::disk(directory))?;
        }
        let open = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let file = open.map_err(Failure::disk(path))?;
        let mut waiting = Some(waiting);
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file: Some(file) }),
                Err(TryLockError::WouldBlock) => {
                    if let Some(waiting) = waiting.take() {
                        waiting();
                    }
                    std::thread::sleep(PAUSE);
                }
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
                Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                    return Ok(Self { file: None });
                }
                Err(TryLockError::Error(error)) => return Err(Failure::disk(path)(error)),
            }
        }
    }

    /// Returns true if the lock excludes other processes.
    pub(super) fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }
}
