use std::{
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

use tempfile::NamedTempFile;

use crate::FileError;

/// Writes a file atomically. A reader that opens `path`, at any time and after any failure, finds either the previous
/// content or the complete new content. Missing directories are created.
///
/// The content is written to a temporary file in the same directory and flushed to the disk, and the file is then
/// renamed to `path`. If `write` fails, no file remains.
///
/// # Errors
/// If `write` or the system reports an error.
pub fn write_atomically(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<(), FileError> {
    let path = path.as_ref();
    Draft::write(path, |writer| write(writer).map_err(FileError::io("write", path)))?.publish()
}

/// A file that is complete on the disk but does not have its final name yet. Dropping it removes the file.
///
/// Drafts allow several files to be written completely before the first gets its name, and `write` to return other
/// errors. [`write_atomically`] combines both steps.
#[derive(Debug)]
pub struct Draft {
    file: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    /// Writes the content to a temporary file in the directory of `path`, which is created if it is missing.
    ///
    /// # Errors
    /// Errors of `write`, and of the operating system.
    pub fn write<E: From<FileError>>(
        path: &Path,
        write: impl FnOnce(&mut dyn Write) -> Result<(), E>,
    ) -> Result<Self, E> {
        let directory = directory_of(path);
        std::fs::create_dir_all(directory).map_err(FileError::io("make directory", directory))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".grove-").suffix(".tmp");
        #[cfg(unix)]
        {
            // The permissions of any new file, restricted by the umask; temporary files are private by default.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(directory).map_err(FileError::io("write in", directory))?;
        {
            let mut writer = BufWriter::with_capacity(1 << 20, file.as_file_mut());
            write(&mut writer)?;
            writer.flush().map_err(FileError::io("write", path))?;
        }
        // Without this flush, a power failure after the rename may leave an empty file.
        file.as_file().sync_all().map_err(FileError::io("write", path))?;
        Ok(Self { file, path: path.into() })
    }

    /// Renames the file to its final name, replacing a file of that name.
    ///
    /// # Errors
    /// If the system reports an error.
    pub fn publish(self) -> Result<(), FileError> {
        let Self { file, path } = self;
        file.persist(&path).map_err(|error| FileError::io("write", &path)(error.error))?;
        sync_directory(directory_of(&path));
        Ok(())
    }
}

/// Creates a directory with its content atomically: `write` fills a temporary directory beside it, which is then
/// renamed to `path`. An existing directory of that name must be empty. Missing parent directories are created.
///
/// # Errors
/// If `write` or the system reports an error, or if the directory is not empty. In these cases nothing remains.
pub fn create_directory(
    path: impl AsRef<Path>,
    write: impl FnOnce(&Path) -> std::io::Result<()>,
) -> Result<(), FileError> {
    let path = path.as_ref();
    let create = || {
        let parent = directory_of(path);
        std::fs::create_dir_all(parent)?;
        let beside = tempfile::Builder::new().prefix(".grove-").tempdir_in(parent)?;
        // Inside the temporary directory, which only its owner may read.
        let draft = beside.path().join("new");
        std::fs::create_dir(&draft)?;
        write(&draft)?;
        if path.is_dir() {
            std::fs::remove_dir(path)?;
        }
        std::fs::rename(&draft, path)
    };
    create().map_err(FileError::io("make directory", path))
}

/// Flushes a directory to the disk, so that new names in it survive a power failure. Some file systems do not support
/// this; that is not an error, because their files are complete in any case.
pub fn sync_directory(directory: &Path) {
    if cfg!(unix)
        && let Ok(directory) = File::open(directory)
    {
        let _ = directory.sync_all();
    }
}

/// Returns the directory that contains a file: `.` for a bare name.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the path itself if it is a directory, otherwise the directory that contains the file: the directory of a
/// model, given either.
pub fn directory_at(path: &Path) -> &Path {
    if path.is_dir() { path } else { directory_of(path) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_write_keeps_previous_content() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("deep/model.safetensors");
        write_atomically(&path, |writer| writer.write_all(b"first")).expect("written");
        write_atomically(&path, |writer| writer.write_all(b"second")).expect("replaced");
        let failed = write_atomically(&path, |writer| {
            writer.write_all(b"half of the thi")?;
            Err(std::io::ErrorKind::StorageFull.into())
        });
        let failed = failed.expect_err("refused");
        assert!(matches!(&failed, FileError::System { action: "write", path: at, .. } if *at == path), "{failed}");
        assert_eq!(std::fs::read(&path).expect("read"), b"second");
        let left: Vec<_> = std::fs::read_dir(directory.path().join("deep")).expect("listed").collect();
        assert_eq!(left.len(), 1, "no temporary file remains");
    }

    #[test]
    fn draft_has_no_name_until_published() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("a");
        let draft = |text: &'static [u8]| {
            Draft::write(&path, |writer| writer.write_all(text).map_err(FileError::io("write", "a"))).expect("written")
        };
        drop(draft(b"dropped"));
        assert_eq!(std::fs::read_dir(directory.path()).expect("listed").count(), 0);
        let last = draft(b"published");
        assert!(!path.exists());
        last.publish().expect("renamed");
        assert_eq!(std::fs::read(&path).expect("read"), b"published");
    }

    #[test]
    fn directories_appear_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("deep/project");
        let write = |directory: &Path| std::fs::write(directory.join("a"), "text");
        create_directory(&path, |_| Err(std::io::ErrorKind::StorageFull.into())).expect_err("refused");
        std::fs::create_dir(&path).expect("nothing remains");
        create_directory(&path, write).expect("an empty directory is taken");
        assert_eq!(std::fs::read(path.join("a")).expect("read"), b"text");
        create_directory(&path, write).expect_err("it is not empty");
        let left: Vec<_> = std::fs::read_dir(directory.path().join("deep")).expect("listed").collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn directory_of_bare_name_is_the_current_directory() {
        assert_eq!(directory_of(Path::new("model.gguf")), Path::new("."));
        assert_eq!(directory_of(Path::new("a/model.gguf")), Path::new("a"));
    }

    #[test]
    fn directory_at_a_directory_is_itself() {
        let directory = tempfile::tempdir().expect("a directory");
        assert_eq!(directory_at(directory.path()), directory.path());
        assert_eq!(directory_at(&directory.path().join("model.gguf")), directory.path());
    }

    #[cfg(unix)]
    #[test]
    fn permissions_match_any_new_file() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let (path, plain) = (directory.path().join("a"), directory.path().join("b"));
        write_atomically(&path, |_| Ok(())).expect("written");
        File::create(&plain).expect("made");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
    }
}
