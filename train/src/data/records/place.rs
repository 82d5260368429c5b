use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::DataError;

/// File and line, or file and row, of a record, for error messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: Arc<PathBuf>,
    unit: &'static str,
    number: u64,
}

impl Place {
    /// A line of a text file, from 1.
    pub(in crate::data) fn line(file: &Arc<PathBuf>, number: u64) -> Self {
        Self { file: file.clone(), unit: "line", number }
    }

    /// A row of a file without lines, from 1.
    pub(super) fn row(file: &Arc<PathBuf>, number: u64) -> Self {
        Self { file: file.clone(), unit: "row", number }
    }

    /// Returns an error about the record.
    pub fn error(&self, reason: impl fmt::Display) -> DataError {
        DataError::other(format!("{self}: {reason}"))
    }

    /// Returns the file.
    pub fn file(&self) -> &Path {
        &self.file
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} {}", self.file.display(), self.unit, self.number)
    }
}
