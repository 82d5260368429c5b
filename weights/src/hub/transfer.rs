//! The download of one file into the cache.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use sha2::{Digest, Sha256};

use super::client::{Client, Metadata};
use super::failure::Failure;
use super::lock::Lock;

/// Bytes per read.
const CHUNK: usize = 256 << 10;
/// Minimum number of bytes per timeout; a slower transfer counts as stalled.
const MIN_PROGRESS: u64 = 1 << 10;

/// A file to be downloaded, and its paths in the cache.
pub(super) struct Download<'a> {
    /// Path of the file in the repository.
    pub(super) file: &'a str,
    /// URL of the file at the hub.
    pub(super) url: &'a str,
    /// Commit of the file.
    pub(super) commit: &'a str,
    /// Directory of contents, `…/models--owner--name/blobs`.
    pub(super) blobs: &'a Path,
    /// Directory of locks, `…/.locks/models--owner--name`.
    pub(super) locks: &'a Path,
    /// Path in the snapshot, `…/models--owner--name/snapshots/commit/file`.
    pub(super) pointer: &'a Path,
    /// If true, progress and waits for other processes are shown on standard error.
    pub(super) progress: bool,
}

impl Download<'_> {
    /// Downloads the file, resuming an earlier attempt, and moves it to its final path in the cache.
    pub(super) fn run(&self, client: &Client) -> Result<(), Failure> {
        let metadata = client.metadata(self.url)?;
        if !metadata.commit.eq_ignore_ascii_case(self.commit) {
            let reason = format!("it served {} of another commit than requested", self.file);
            return Err(Failure::Answer(reason));
        }
        let blob = self.blobs.join(&metadata.etag);
        let lock = Lock::acquire(&self.locks.join(format!("{}.lock", metadata.etag)), || {
            if self.progress {
                eprintln!("another process is downloading {}; waiting for it", self.file);
            }
        })?;
        if self.pointer.exists() {
            // Another process completed the file while this one waited.
            return Ok(());
        }
        if !is_complete(&blob, metadata.size) {
            std::fs::create_dir_all(self.blobs).map_err(Failure::disk(self.blobs))?;
            // Without a lock, another process may write a partial file of the same name.
            let own = if lock.is_exclusive() { String::new() } else { format!(".{}", std::process::id()) };
            let partial = self.blobs.join(format!("{}{own}.incomplete", metadata.etag));
            self.receive(client, &metadata, &partial)?;
            std::fs::rename(&partial, &blob).map_err(Failure::disk(&blob))?;
        }
        link(&blob, self.pointer).map_err(Failure::disk(self.pointer))
    }

    /// Completes a partial file, verifies its content, and flushes it to the disk. An unusable partial file is removed.
    fn receive(&self, client: &Client, metadata: &Metadata, partial: &Path) -> Result<(), Failure> {
        let result = Partial::open(partial).and_then(|mut file| self.complete(client, metadata, &mut file));
        if let Err(Failure::Resume(_) | Failure::Checksum { .. } | Failure::Excess(_)) = result {
            let _ = std::fs::remove_file(partial);
        }
        result
    }

    fn complete(&self, client: &Client, metadata: &Metadata, partial: &mut Partial) -> Result<(), Failure> {
        let sha256 = metadata.sha256();
        let kept = match (partial.len()?, metadata.size) {
            // The file is longer than announced, or complete without a sha256 to verify it: start again.
            (kept, Some(size)) if kept > size || kept == size && sha256.is_none() => 0,
            (kept, _) => kept,
        };
        let resumed = kept > 0;
        if resumed && metadata.size == Some(kept) {
            partial.keep(kept)?;
        } else {
            self.append(client, metadata, kept, partial)?;
        }
        partial.file.sync_all().map_err(Failure::disk(&partial.path))?;
        match sha256 {
            Some(announced) if announced != partial.sha256() => {
                let received = partial.sha256();
                Err(match resumed {
                    true => Failure::Resume(format!("with the part downloaded before, its sha256 is {received}")),
                    false => Failure::Checksum { announced, received },
                })
            }
            _ => Ok(()),
        }
    }

    /// Transfers the rest of the file.
    fn append(&self, client: &Client, metadata: &Metadata, kept: u64, partial: &mut Partial) -> Result<(), Failure> {
        let mut content = client.content(self.url, kept, metadata)?;
        let size = match (metadata.size, content.size) {
            (Some(size), Some(other)) if size != other => {
                let reason = format!("it announced {size} bytes for {}, but sends {other}", self.file);
                return Err(Failure::Answer(reason));
            }
            (size, other) => size.or(other),
        };
        let size = size.ok_or_else(|| Failure::Answer(format!("it does not say how long {} is", self.file)))?;
        if content.start > size {
            return Err(Failure::Resume("the partial file is longer than the file".into()));
        }
        partial.keep(content.start)?;
        let bar = self.progress.then(|| bar(self.file, size, content.start));
        let (mut position, mut chunk, mut pace) = (content.start, vec![0; CHUNK], Pace::new(client.stall()));
        loop {
            let count = content.body.read(&mut chunk).map_err(|error| client.reading_failed(error))?;
            if count == 0 {
                break;
            }
            position += count as u64;
            if position > size {
                return Err(Failure::Excess(format!("it announced {size} bytes for {}, but sends more", self.file)));
            }
            partial.write(&chunk[..count])?;
            if let Some(bar) = &bar {
                bar.set_position(position);
            }
            if position < size && !pace.holds(count) {
                return Err(Failure::TimedOut(client.stalled()));
            }
        }
        if position < size {
            return Err(Failure::Broken(format!("it ended after {position} of {size} bytes")));
        }
        if let Some(bar) = bar {
            bar.finish();
        }
        Ok(())
    }
}

/// A partial file and the hash of its content so far.
struct Partial {
    file: File,
    path: PathBuf,
    hash: Sha256,
}

impl Partial {
    fn open(path: &Path) -> Result<Self, Failure> {
        let options = File::options().read(true).write(true).create(true).truncate(false).open(path);
        Ok(Self { file: options.map_err(Failure::disk(path))?, path: path.into(), hash: Sha256::new() })
    }

    fn len(&self) -> Result<u64, Failure> {
        Ok(self.file.metadata().map_err(Failure::disk(&self.path))?.len())
    }

    /// Truncates the file to `length` bytes, hashes them, and continues after them.
    fn keep(&mut self, length: u64) -> Result<(), Failure> {
        let path = self.path.clone();
        self.file.set_len(length).map_err(Failure::disk(&path))?;
        self.file.seek(SeekFrom::Start(0)).map_err(Failure::disk(&path))?;
        self.hash = Sha256::new();
        let mut chunk = vec![0; CHUNK];
        loop {
            match self.file.read(&mut chunk).map_err(Failure::disk(&path))? {
                0 => return Ok(()),
                count => self.hash.update(&chunk[..count]),
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.file.write_all(bytes).map_err(Failure::disk(&self.path))?;
        self.hash.update(bytes);
        Ok(())
    }

    /// Returns the sha256 of the content so far, in hexadecimal digits.
    fn sha256(&self) -> String {
        self.hash.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Detects transfers that are too slow.
struct Pace {
    window: Duration,
    since: Instant,
    bytes: u64,
}

impl Pace {
    fn new(window: Duration) -> Self {
        Self { window, since: Instant::now(), bytes: 0 }
    }

    /// Counts bytes. Returns false if too few bytes arrived in a past time window.
    fn holds(&mut self, count: usize) -> bool {
        self.bytes += count as u64;
        if self.since.elapsed() < self.window {
            return true;
        }
        let enough = self.bytes >= MIN_PROGRESS;
        *self = Self::new(self.window);
        enough
    }
}

/// Returns true if the cache has the full content.
fn is_complete(blob: &Path, size: Option<u64>) -> bool {
    std::fs::metadata(blob).is_ok_and(|about| about.is_file() && size.is_none_or(|size| about.len() == size))
}

/// Links the path in a snapshot to a content, by a relative link like `huggingface_hub`'s. `pointer` must be below the
/// parent of `blob`'s directory.
fn link(blob: &Path, pointer: &Path) -> std::io::Result<()> {
    if let Some(directory) = pointer.parent() {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::remove_file(pointer) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    #[cfg(unix)]
    {
        let repository = blob.parent().and_then(Path::parent).unwrap_or(blob);
        let below = pointer.strip_prefix(repository).map_err(std::io::Error::other)?;
        let mut target: PathBuf = below.components().skip(1).map(|_| "..").collect();
        target.push(blob.strip_prefix(repository).map_err(std::io::Error::other)?);
        std::os::unix::fs::symlink(target, pointer)
    }
    #[cfg(not(unix))]
    std::fs::hard_link(blob, pointer).or_else(|_| std::fs::copy(blob, pointer).map(drop))
}

/// Creates a progress bar on standard error; `indicatif` draws nothing if standard error is not a terminal.
fn bar(file: &str, size: u64, start: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:16!} {wide_bar} {percent:>3}% of {total_bytes} {eta}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(size).with_style(style).with_message(file.to_string()).with_position(start)
}
