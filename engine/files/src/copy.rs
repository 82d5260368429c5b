use std::{fs::File, path::Path};

use crate::{FileError, write_atomically};

/// Copies the files of these names that exist from one directory to another, which is created if it is missing.
///
/// # Errors
/// A file cannot be read or written.
pub fn copy_files(from: &Path, to: &Path, names: &[&str]) -> Result<(), FileError> {
    let from = if from.as_os_str().is_empty() { Path::new(".") } else { from };
    std::fs::create_dir_all(to).map_err(FileError::at(to))?;
    // A model that is fine-tuned in place keeps its files.
    if from.canonicalize().map_err(FileError::at(from))? == to.canonicalize().map_err(FileError::at(to))? {
        return Ok(());
    }
    for name in names {
        let (from, to) = (from.join(name), to.join(name));
        if from.is_file() {
            let mut file = File::open(&from).map_err(FileError::at(&from))?;
            write_atomically(&to, |writer| std::io::copy(&mut file, writer).map(|_| ()))?;
        }
    }
    Ok(())
}
