//! Compiled programs on the disk, for later runs.

use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    path::PathBuf,
    time::{Duration, SystemTime},
};

use crate::{Client, CompileOptions, Executable, Program, Result};

/// A program that was compiled in less time is not stored.
const WORTH_STORING: Duration = Duration::from_millis(500);

/// Bytes that the stored programs take together at most.
const LIMIT: u64 = 2 << 30;

/// End of the names of stored programs.
const EXTENSION: &str = "xla";

/// A folder of compiled programs. What is damaged, or cannot be read or written, is compiled again.
#[derive(Clone, Debug)]
pub struct ExecutableCache {
    folder: Option<PathBuf>,
}

impl ExecutableCache {
    /// The cache in grove's folder of caches, `GROVE_CACHE` or the user's; no folder, no cache.
    pub fn of_user() -> Self {
        Self { folder: grove_backend::cache_folder().map(|folder| folder.join("xla")) }
    }

    /// The cache in a folder, which is made where it is needed.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: Some(folder.into()) }
    }

    /// A program, loaded if it was stored for this plugin, options and kind of device, or compiled, and then stored if that took long.
    ///
    /// # Errors
    /// As [`Client::compile`].
    pub fn compile(&self, client: &Client, program: Program<'_>, options: &CompileOptions) -> Result<Executable> {
        let Some(path) = self.path(client, program, options) else { return client.compile(program, options) };
        if let Ok(bytes) = fs::read(&path)
            && let Ok(loaded) = client.load(&bytes, program.parameters, options.partitions())
        {
            // For the order in which programs leave; where it cannot be written, they leave by when they came.
            drop(File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now())));
            return Ok(loaded);
        }
        let start = SystemTime::now();
        let compiled = client.compile(program, options)?;
        if start.elapsed().is_ok_and(|time| time >= WORTH_STORING)
            && let Ok(bytes) = compiled.serialize()
        {
            // A full disk costs the next start its time, and this one nothing.
            drop(grove_files::write_atomically(&path, |file| file.write_all(&bytes)));
            self.shrink();
        }
        Ok(compiled)
    }

    /// The file of a program.
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

    /// Removes the programs that were not used for the longest time, until the rest is small enough.
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

/// The instructions of this processor, for which its plugin compiles: a folder may be seen by several machines.
fn instructions() -> String {
    let of_linux = fs::read_to_string("/proc/cpuinfo").ok();
    let flags = of_linux
        .as_ref()
        .and_then(|text| text.lines().find(|line| line.starts_with("flags") || line.starts_with("Features")));
    flags.map_or_else(|| std::env::consts::ARCH.to_owned(), str::to_owned)
}
