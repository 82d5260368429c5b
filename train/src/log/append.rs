//! Files that are appended to atomically.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use grove_files::FileError;

use crate::log::LogError;

/// File to which pieces are appended, each completely or not at all.
///
/// Each piece is written in one system call, without buffering, so that a killed process loses no records. Records are
/// written a few times a second at most, and readers see them at once.
pub(crate) struct AppendFile {
    file: File,
    path: PathBuf,
    length: u64,
}

impl AppendFile {
    /// Opens the file for appending; `options` determines whether it may or must be created.
    pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> Result<Self, LogError> {
        let file = options.append(true).open(path).map_err(FileError::io("open", path))?;
        let length = file.metadata().map_err(FileError::io("open", path))?.len();
        Ok(Self { file, path: path.into(), length })
    }

    /// Appends a piece. After an error the file is restored to its previous length, so that the next piece does not
    /// follow a partial one.
    pub(crate) fn append(&mut self, piece: &[u8]) -> Result<(), LogError> {
        if let Err(error) = self.file.write_all(piece) {
            // If this fails too, nothing can be done; the first error has the cause.
            let _ = self.file.set_len(self.length);
            return Err(FileError::io("write", &self.path)(error).into());
        }
        self.length += piece.len() as u64;
        Ok(())
    }

    /// Flushes to the device, so that the appended pieces survive a power failure.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        Ok(self.file.sync_data().map_err(FileError::io("write", &self.path))?)
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Creates a directory and its parents.
pub(crate) fn make_directory(path: &Path) -> Result<(), LogError> {
    // The system's error for a file in the way is "File exists", which is misleading.
    if let Some(file) = path.ancestors().find(|part| part.exists()).filter(|part| !part.is_dir()) {
        return Err(LogError::NotADirectory { path: file.into() });
    }
    Ok(std::fs::create_dir_all(path).map_err(FileError::io("make directory", path))?)
}
