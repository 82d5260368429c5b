//! A memory-mapped file whose pages can be released after reading.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use grove_files::{FileError, failed_download};
use memmap2::Mmap;

use crate::error::{Result, WeightsError};

/// A weights file, mapped into memory for reading.
///
/// The pages are the operating system's page cache; values are copied only when a tensor is read. The file must not be
/// truncated while it is mapped, or the system ends the process with `SIGBUS`. Replace a file by renaming another over
/// it, as [`write_atomically`](grove_files::write_atomically) does.
#[derive(Debug)]
pub(crate) struct MappedFile {
    path: PathBuf,
    map: Mmap,
}

impl MappedFile {
    /// Maps a regular, non-empty file.
    ///
    /// # Errors
    /// If the file cannot be opened, is not a regular file, or is empty.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let not_weights = |found: &str| WeightsError::NotWeights { file: path.into(), found: found.into() };
        // Checked before opening, because opening a pipe would wait for a writer.
        let about = std::fs::metadata(path).map_err(FileError::io("open", path))?;
        if about.is_dir() {
            return Err(not_weights("it is a directory"));
        }
        if !about.is_file() {
            return Err(not_weights("it is not a regular file"));
        }
        if about.len() == 0 {
            return Err(not_weights("it is empty"));
        }
        let file = File::open(path).map_err(FileError::io("open", path))?;
        // SAFETY: the mapping is read-only, and the file is not truncated while it is mapped, as the documentation of
        // `MappedFile` requires.
        let map = unsafe { Mmap::map(&file) }.map_err(FileError::io("map", path))?;
        let mapped = Self { path: path.into(), map };
        match mapped.disguise() {
            Some(found) => Err(not_weights(found)),
            None => Ok(mapped),
        }
    }

    /// Path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Content of the file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.map
    }

    /// Advises the system that these bytes are read next, so that it maps their pages at once instead of a few per page
    /// fault. Does nothing for few bytes: a call takes as long as a page fault, which maps 64 KiB on Linux.
    pub(crate) fn will_need(&self, bytes: Range<usize>) {
        if bytes.len() <= 64 << 10 {
            return;
        }
        // Errors are ignored: this is only advice, and systems before Linux 5.14 do not support it.
        #[cfg(target_os = "linux")]
        let _ = self.map.advise_range(memmap2::Advice::PopulateRead, bytes.start, bytes.len());
        #[cfg(not(target_os = "linux"))]
        let _ = bytes;
    }

    /// Advises the system that these bytes have been read and will not be read soon, so that a large file is never
    /// fully resident beside its tensors. Reading the bytes again works, at the cost of page faults.
    pub(crate) fn release(&self, bytes: Range<usize>) {
        #[cfg(unix)]
        {
            const PAGE: usize = 4096;
            // Inner pages only: the pages at the edges may belong to adjacent tensors that are being read.
            let (start, end) = (bytes.start.next_multiple_of(PAGE), bytes.end / PAGE * PAGE);
            if start < end {
                // SAFETY: `open` makes the mapping shared and read-only, so a dropped page is read again from the
                // file with the same content. Errors are ignored: this is advice.
                let _ =
                    unsafe { self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start) };
            }
        }
        #[cfg(not(unix))]
        let _ = bytes;
    }

    /// Describes a file that is commonly found in place of weights, such as a git-lfs pointer or an error page saved
    /// under the model's name; `None` for any other file.
    fn disguise(&self) -> Option<&'static str> {
        let head = self.bytes().get(..512).unwrap_or(self.bytes());
        // With zero bytes, this may be a safetensors file: a header length of 123 starts like an object, 91 like a
        // list.
        let json = || matches!(head.trim_ascii_start(), [b'{' | b'[', ..]) && !head.contains(&0);
        failed_download(head).or_else(|| json().then_some("it is JSON text"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(content: &[u8]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), content).expect("written");
        file
    }

    #[test]
    fn error_describes_the_file_found() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
        for (content, word) in [
            (&pointer[..], "git lfs pull"),
            (b"<!DOCTYPE html><html>Not found</html>", "web page"),
            (b"{\"error\": \"Entry not found\"}", "JSON"),
            (b"", "empty"),
        ] {
            let error = MappedFile::open(write(content).path()).expect_err(word).to_string();
            assert!(error.contains(word), "{error}");
        }
        for length in [b'{', b'['] {
            let header = [&[length, 0, 0, 0, 0, 0, 0, 0][..], b"{}", &[b' '; 121]].concat();
            assert!(MappedFile::open(write(&header).path()).is_ok(), "a header of {length} bytes");
        }
        let error = MappedFile::open(&std::env::temp_dir()).expect_err("a directory").to_string();
        assert!(error.contains("directory"), "{error}");
        let error = MappedFile::open(Path::new("/nowhere/model.safetensors")).expect_err("absent").to_string();
        assert!(error.contains("/nowhere/model.safetensors"), "{error}");
    }

    #[test]
    fn released_bytes_can_be_read_again() {
        let content: Vec<u8> = (0..100_000u32).flat_map(u32::to_le_bytes).collect();
        let file = write(&content);
        let mapped = MappedFile::open(file.path()).expect("opened");
        assert_eq!(mapped.bytes(), &content[..]);
        mapped.release(0..content.len());
        assert_eq!(mapped.bytes(), &content[..]);
    }
}
