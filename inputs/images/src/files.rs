//! Image files.

use std::path::Path;

use grove_files::{FileError, write_atomically};

use crate::error::Result;

/// Writes an image as PNG, regardless of the file's extension. The file is written atomically.
///
/// # Errors
/// The file cannot be written.
pub fn save_png(image: &image::RgbImage, path: impl AsRef<Path>) -> Result<()> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let encoded = image.write_to(&mut bytes, image::ImageFormat::Png).map_err(std::io::Error::other);
    encoded.map_err(FileError::io("write", path.as_ref()))?;
    Ok(write_atomically(path, |out| out.write_all(bytes.get_ref()))?)
}
