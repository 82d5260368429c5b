//! Images from files, folders and standard input.

use grove::files::FileError;
use grove::images::{ImageError, Limits, RgbImage, decode, files, open};
use std::{
    io::Read,
    path::{Path, PathBuf},
};

use crate::{Exit, failure};

/// An image and where it came from.
pub struct NamedImage {
    /// File name, or `-`.
    pub name: String,
    /// The image.
    pub image: RgbImage,
}

/// Names of images that could not be read are told up to this many; all are counted.
const TOLD: usize = 20;

/// Hands on the images of files and folders (`-` is standard input) in batches of at most `size`; those that cannot be
/// read are named on standard error and left out. Gives how many were left out.
pub fn read_images(
    paths: &[PathBuf],
    size: usize,
    mut progress: impl FnMut(usize, usize),
    mut each: impl FnMut(Vec<NamedImage>) -> Result<(), Exit>,
) -> Result<usize, Exit> {
    let mut all = Vec::new();
    for path in paths {
        match path.as_os_str() == "-" {
            true => all.push(path.clone()),
            false => {
                let found = files(path).map_err(failure)?;
                if found.is_empty() {
                    return Err(failure(format!("{} holds no images", path.display())));
                }
                all.extend(found);
            }
        }
    }
    let (mut batch, mut skipped, mut last) = (Vec::new(), 0, None);
    for (i, path) in all.iter().enumerate() {
        match read(path) {
            Ok(image) => batch.push(NamedImage { name: path.display().to_string(), image }),
            Err(error) if all.len() == 1 => return Err(failure(error)),
            Err(error) => {
                skipped += 1;
                match skipped <= TOLD {
                    true => eprintln!("left out: {error}"),
                    false => last = Some(error),
                }
            }
        }
        if batch.len() == size {
            each(std::mem::take(&mut batch))?;
        }
        progress(i + 1, all.len());
    }
    if let Some(error) = last {
        eprintln!("left out: {} more, the last of them: {error}", skipped - TOLD);
    }
    if skipped > 0 && skipped == all.len() {
        return Err(failure(format!("none of the {skipped} images can be read")));
    }
    if !batch.is_empty() {
        each(batch)?;
    }
    Ok(skipped)
}

fn read(path: &Path) -> Result<RgbImage, ImageError> {
    let limits = Limits::default();
    if path.as_os_str() != "-" {
        return open(path, &limits);
    }
    let name = Path::new("standard input");
    let mut bytes = Vec::new();
    let most = limits.max_file_bytes.saturating_add(1);
    let read = std::io::stdin().lock().take(most).read_to_end(&mut bytes);
    read.map_err(FileError::io("read", name))?;
    decode(&bytes, name, &limits)
}
