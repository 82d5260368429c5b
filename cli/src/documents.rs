//! Texts from files and folders.

use grove::train::data::read_text;
use std::path::{Path, PathBuf};

use crate::{Exit, failure};

/// Reads text files, and the .txt files of folders in the order of their names.
pub fn documents(paths: &[PathBuf]) -> Result<Vec<String>, Exit> {
    let mut documents = Vec::new();
    for path in paths {
        let files = if path.is_dir() { text_files(path)? } else { vec![path.clone()] };
        for file in files {
            documents.push(read_text(file).map_err(failure)?);
        }
    }
    Ok(documents)
}

fn text_files(directory: &Path) -> Result<Vec<PathBuf>, Exit> {
    let cannot = |error| failure(format!("cannot list {}: {error}", directory.display()));
    let listing = std::fs::read_dir(directory).map_err(cannot)?;
    let mut files = listing.map(|item| Ok(item?.path())).collect::<Result<Vec<_>, _>>().map_err(cannot)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "txt"));
    files.sort();
    match files.is_empty() {
        true => Err(failure(format!("{} has no .txt files", directory.display()))),
        false => Ok(files),
    }
}
