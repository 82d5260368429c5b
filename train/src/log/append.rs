//! A file that grows by whole pieces.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::log::LogError;

/// A file to which pieces are appended, each whole or not at all.
///
/// A piece goes to the system in one call and without a buffer of our own, so that a killed process loses nothing
/// that it recorded: records come a few times a second at most, and readers want to see them at once.
pub(crate) struct AppendFile {
    file: File,
    path: PathBuf,
    length: u64,
}

impl AppendFile {
    /// Opens the file at its end; with `options` to say whether it may or must be made.
    pub(crate) fn open(path: &Path, options: &mut OpenOptions) -> Result<Self, LogError> {
        let file = options.append(true).open(path).map_err(LogError::io("open", path))?;
        let length = file.metadata().map_err(LogError::io("open", path))?.len();
        Ok(Self { file, path: path.into(), length })
    }

    /// Appends a piece. After an error the file is as it was before, so that the next piece does not follow the
    /// torn half of this one.
    pub(crate) fn append(&mut self, piece: &[u8]) -> Result<(), LogError> {
        if let Err(error) = self.file.write_all(piece) {
            // If even this fails nothing more can be done, and the first error tells the cause.
            let _ = self.file.set_len(self.length);
            return Err(LogError::io("write", &self.path)(error));
        }
        self.length += piece.len() as u64;
        Ok(())
    }

    /// Makes what was appended survive a power failure too.
    pub(crate) fn sync(&self) -> Result<(), LogError> {
        self.file.sync_data().map_err(LogError::io("write", &self.path))
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes a directory and those above it.
pub(crate) fn make_directory(path: &Path) -> Result<(), LogError> {
    // A path such as `metrics.jsonl` has the empty path as its parent.
    if path.as_os_str().is_empty() {
        return Ok(());
    }
    // The system's words for a file in the way are "File exists", which says little.
    if let Some(file) = path.ancestors().find(|part| part.exists()).filter(|part| !part.is_dir()) {
        return Err(LogError::NotADirectory { path: file.into() });
    }
    std::fs::create_dir_all(path).map_err(LogError::io("make directory", path))
}
