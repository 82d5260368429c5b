//! Writing files whole.

use std::io::{BufWriter, Write};
use std::path::Path;

use crate::error::{ImageError, Result};

/// Writes a picture as PNG, whatever the file's name ends with. It is written beside and then renamed.
///
/// # Errors
/// Where the system refuses.
pub fn save_png(image: &image::RgbImage, path: impl AsRef<Path>) -> Result<()> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    let encoded = image.write_to(&mut bytes, image::ImageFormat::Png).map_err(std::io::Error::other);
    encoded.map_err(ImageError::io("write", path.as_ref()))?;
    write(path.as_ref(), |out| out.write_all(bytes.get_ref()))
}

/// Writes beside the file, to the disk, then renames: whoever reads it, at any time and after any failure, sees the old
/// one or the new one.
pub(crate) fn write(path: &Path, fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<()> {
    let failed = || ImageError::io("write", path);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // As other programs make files, not only for the user as temporary files are.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let file = builder.prefix(".grove-").suffix(".tmp").tempfile_in(folder).map_err(failed())?;
    let mut out = BufWriter::new(file);
    fill(&mut out).map_err(failed())?;
    let file = out.into_inner().map_err(|e| failed()(e.into_error()))?;
    // Without this a power failure after the rename may leave an empty file in place of both.
    file.as_file().sync_all().map_err(failed())?;
    file.persist(path).map_err(|e| failed()(e.error))?;
    // The name too should survive. Not every file system can do this; the file is whole in any case.
    #[cfg(unix)]
    if let Ok(folder) = std::fs::File::open(folder) {
        let _ = folder.sync_all();
    }
    Ok(())
}
