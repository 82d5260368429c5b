//! Atomic file writes: a file appears whole or not at all.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

use crate::error::{Result, WeightsError};

/// Writes a file atomically. A reader that opens `path`, at any time and after any failure, finds either the previous
/// content or all that `write` wrote. Missing directories are created.
///
/// The content goes to a temporary file in the same directory, is flushed to the disk, and is renamed to `path` at
/// the end. If `write` fails, no file remains.
///
/// # Errors
/// Errors of `write`, and [`WeightsError::Io`].
pub fn write_atomically(path: impl AsRef<Path>, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<()> {
    Draft::write(path.as_ref(), write)?.publish()
}

/// A file that is complete on the disk and does not have its final name yet. Dropping it removes the file.
pub(crate) struct Draft {
    file: NamedTempFile,
    path: PathBuf,
}

impl Draft {
    /// Writes the content to a temporary file in the directory of `path`.
    pub(crate) fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> Result<()>) -> Result<Self> {
        let directory = directory_of(path);
        std::fs::create_dir_all(directory).map_err(WeightsError::io("make directory", directory))?;
        let mut builder = tempfile::Builder::new();
        builder.prefix(".grove-").suffix(".tmp");
        #[cfg(unix)]
        {
            // The permissions of any new file, less the umask; temporary files are private by default.
            use std::os::unix::fs::PermissionsExt;
            builder.permissions(std::fs::Permissions::from_mode(0o666));
        }
        let mut file = builder.tempfile_in(directory).map_err(WeightsError::io("write in", directory))?;
        {
            let mut writer = BufWriter::with_capacity(1 << 20, file.as_file_mut());
            write(&mut writer)?;
            writer.flush().map_err(WeightsError::io("write", path))?;
        }
        file.as_file().sync_all().map_err(WeightsError::io("write", path))?;
        Ok(Self { file, path: path.into() })
    }

    /// Renames the file to its final name, replacing a file of that name.
    pub(crate) fn publish(self) -> Result<()> {
        let Self { file, path } = self;
        crash_point();
        file.persist(&path).map_err(|error| WeightsError::io("write", &path)(error.error))?;
        // The directory is flushed too, so that the new name survives a power failure. Some file systems cannot do
        // this; the file is whole in any case.
        if cfg!(unix)
            && let Ok(directory) = File::open(directory_of(&path))
        {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

/// The directory that contains a file: `.` for a name without one.
pub fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Called before a directory changes. In unit tests the process can be made to crash there.
#[cfg(not(test))]
pub(crate) fn crash_point() {}

/// The number of the call of [`crash_point`], from 1, at which the process aborts.
#[cfg(test)]
pub(crate) const CRASH_AT: &str = "GROVE_TEST_CRASH_AT";

#[cfg(test)]
pub(crate) fn crash_point() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    let call = CALLS.fetch_add(1, Ordering::SeqCst) + 1;
    if std::env::var(CRASH_AT).is_ok_and(|at| at == call.to_string()) {
        std::process::abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_leaves_what_was_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("deep/model.safetensors");
        let put = |text: &'static [u8]| {
            write_atomically(&path, move |writer| writer.write_all(text).map_err(WeightsError::io("write", "x")))
        };
        put(b"first").expect("written");
        put(b"second").expect("replaced");
        let failed = write_atomically(&path, |writer| {
            writer.write_all(b"half of the thi").map_err(WeightsError::io("write", "x"))?;
            Err(WeightsError::AbsentLeaf { path: "weight".into() })
        });
        assert!(matches!(failed, Err(WeightsError::AbsentLeaf { .. })));
        assert_eq!(std::fs::read(&path).expect("read"), b"second");
        let left: Vec<_> = std::fs::read_dir(directory.path().join("deep")).expect("listed").collect();
        assert_eq!(left.len(), 1, "no temporary file remains");
    }

    #[cfg(unix)]
    #[test]
    fn others_may_read_the_file() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let (path, plain) = (directory.path().join("a"), directory.path().join("b"));
        write_atomically(&path, |_| Ok(())).expect("written");
        File::create(&plain).expect("made");
        let mode = |path: &Path| std::fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode(&path), mode(&plain));
    }
}
