//! Compiled programs on disk, for later runs.

use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use crate::{Client, CompileOptions, Executable, Program, Result};

/// Minimum compile time of a stored program.
const WORTH_STORING: Duration = Duration::from_millis(500);

/// Maximum total size of the stored programs, in bytes.
const LIMIT: u64 = 2 << 30;

/// File extension of stored programs.
const EXTENSION: &str = "xla";

/// A folder of compiled programs. A program whose file is damaged, or cannot be read or written, is compiled again.
#[derive(Clone, Debug)]
pub struct ExecutableCache {
    folder: Option<PathBuf>,
}

impl ExecutableCache {
    /// Returns the cache in grove's cache folder, `GROVE_CACHE` or the user's. Without such a folder, nothing is cached.
    pub fn of_user() -> Self {
        Self { folder: grove_backend::cache_folder().map(|folder| folder.join("xla")) }
    }

    /// Returns the cache in a folder, which is created on demand.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// Loads a program that is stored for this plugin, these options and this kind of device, or compiles it. A compiled program
    /// is stored if compilation took long.
    ///
    /// # Errors
    /// Those of [`Client::compile`].
    pub fn compile(&self, client: &Client, program: Program<'_>, options: &CompileOptions) -> Result<Executable> {
        let Some(path) = self.path(client, program, options) else { return client.compile(program, options) };
        if let Ok(bytes) = fs::read(&path)
            && let Ok(loaded) = client.load(&bytes, program.parameters, options.partitions())
        {
            // Marks the program as used, for the order of removal. If this fails, programs are removed in the order of creation.
            drop(File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now())));
            return Ok(loaded);
        }
        let start = SystemTime::now();
        let compiled = client.compile(program, options)?;
        if start.elapsed().is_ok_and(|time| time >= WORTH_STORING)
            && let Ok(bytes) = compiled.serialize()
        {
            // A full disk costs the next run its compile time, but does not affect this run.
            drop(grove_files::write_atomically(&path, |file| file.write_all(&bytes)));
            self.shrink();
        }
        Ok(compiled)
    }

    /// Returns the file of a program.
    fn path(&self, client: &Client, program: Program<'_>, options: &CompileOptions) -> Option<PathBuf> {
        let mut digest = Sha256::new();
        let device = client.device(0).ok()?;
        let options = options.on(client.platform());
        let of_plugin = [client.platform().to_owned(), client.platform_version().ok()?, device.kind().ok()?];
        for part in
            of_plugin.iter().map(String::as_str).chain([&*format!("{options:?}"), &*instructions(), program.text])
        {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        let name: String = digest.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
        Some(self.folder.as_ref()?.join(name).with_extension(EXTENSION))
    }

    /// Removes the least recently used programs until the total size is within the limit.
    fn shrink(&self) {
        let Some(entries) = self.folder.as_ref().and_then(|folder| fs::read_dir(folder).ok()) else { return };
        let of_program = |entry: std::io::Result<fs::DirEntry>| {
            let (entry, path) = entry.map(|entry| (entry.metadata(), entry.path())).ok()?;
            let entry = entry.ok().filter(|_| path.extension().is_some_and(|extension| extension == EXTENSION))?;
            Some((entry.modified().ok()?, entry.len(), path))
        };
        let mut programs: Vec<_> = entries.filter_map(of_program).collect();
        programs.sort();
        let mut total: u64 = programs.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in programs {
            if total <= LIMIT {
                return;
            }
            total -= bytes;
            drop(fs::remove_file(path));
        }
    }
}

/// Returns the instruction sets of this CPU, for which its plugin compiles. Several machines may share a folder.
fn instructions() -> String {
    let of_linux = fs::read_to_string("/proc/cpuinfo").ok();
    let flags = of_linux
        .as_ref()
        .and_then(|text| text.lines().find(|line| line.starts_with("flags") || line.starts_with("Features")));
    flags.map_or_else(|| std::env::consts::ARCH.to_owned(), str::to_owned)
}
