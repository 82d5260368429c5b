//! Atomic file writes.

use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::{ImageError, Result};

/// Writes an image as PNG, regardless of the file's extension. The file is written atomically.
///
/// # Errors
/// If the system reports an error.
pub fn save_png(image: &image::RgbImage, path: impl AsRef<Path>) -> Result<()> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let encoded = image.write_to(&mut bytes, image::ImageFormat::Png).map_err(std::io::Error::other);
    encoded.map_err(ImageError::io("write", path.as_ref()))?;
    write(path.as_ref(), |out| out.write_all(bytes.get_ref()))
}

/// Writes a file atomically: to a temporary file in the same directory, flushed to the disk and then renamed. A
/// reader sees the old file or the new one, at any time and after any failure.
pub(crate) fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let failed = || ImageError::io("write", path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // The permissions of any new file; temporary files are private by default.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.prefix(".grove-").suffix(".tmp").tempfile_in(folder).map_err(failed())?;
    let mut out = BufWriter::new(file);
    fill(&mut out).map_err(failed())?;
    let file = out.into_inner().map_err(|e| failed()(e.into_error()))?;
    // Without the flush, a power failure after the rename may leave an empty file.
    file.as_file().sync_all().map_err(failed())?;
    file.persist(path).map_err(|e| failed()(e.error))?;
    // The directory is flushed too, so that the new name survives a power failure. Some file systems cannot do this;
    // the file is whole in any case.
    #[cfg(unix)]
    if let Ok(folder) = std::fs::File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}
