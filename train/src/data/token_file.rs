//! Files of tokens.
//!
//! The format, little-endian throughout:
//!
//! | bytes | content |
//! |---|---|
//! | 8 | `grovetok` |
//! | 4 | version: 1 |
//! | 4 | width of a token: 2 or 4 |
//! | count · width | the tokens |
//! | 8 | count |
//!
//! The count is at the end, so that a stream of unknown length can be written. A truncated file has no valid count
//! there.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use grove_files::{FileError, write_atomically};
use memmap2::Mmap;

use super::DataError;

const MAGIC: &[u8; 8] = b"grovetok";
const VERSION: u32 = 1;
const HEADER: usize = 16;
const TRAILER: usize = 8;

/// A token file, mapped into memory for reading.
#[derive(Debug)]
pub(super) struct TokenFile {
    path: PathBuf,
    map: Mmap,
    width: Width,
    count: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Width {
    Two = 2,
    Four = 4,
}

impl TokenFile {
    pub(super) fn open(path: &Path) -> Result<Self, DataError> {
        let not_tokens = |reason: &str| DataError::NotTokens { file: path.into(), reason: reason.into() };
        // Checked before opening, because opening a pipe blocks until another process opens it for writing.
        let about = std::fs::metadata(path).map_err(FileError::io("open", path))?;
        if !about.is_file() {
            let what = if about.is_dir() { "it is a directory" } else { "it is not a regular file" };
            return Err(not_tokens(&format!("{what}; give a file of tokens that grove wrote")));
        }
        if about.len() == 0 {
            return Err(not_tokens("it is empty; create it again"));
        }
        let file = File::open(path).map_err(FileError::io("open", path))?;
        // SAFETY: the map is read-only, and `TokenStream::open` documents that no process may truncate the file while
        // it is mapped.
        let map = unsafe { Mmap::map(&file) }.map_err(FileError::io("map", path))?;
        let (width, count) = parse(&map, path)?;
        Ok(Self { path: path.into(), map, width, count })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Appends the tokens of a range, which must be within the file.
    pub(super) fn extend(&self, range: Range<usize>, tokens: &mut Vec<u32>) {
        let width = self.width as usize;
        let bytes = &self.map[HEADER..][range.start * width..range.end * width];
        match self.width {
            Width::Two => tokens.extend(bytes.as_chunks().0.iter().map(|&token| u32::from(u16::from_le_bytes(token)))),
            Width::Four => tokens.extend(bytes.as_chunks().0.iter().map(|&token| u32::from_le_bytes(token))),
        }
    }
}

/// Returns the width and number of the tokens in the bytes of a file, and checks that all are within the file.
fn parse(bytes: &[u8], path: &Path) -> Result<(Width, usize), DataError> {
    let not_tokens = |reason: String| DataError::NotTokens { file: path.into(), reason };
    if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
        let found = String::from_utf8_lossy(&bytes[..bytes.len().min(MAGIC.len())]).into_owned();
        return Err(not_tokens(format!(
            "it starts with {found:?} instead of \"grovetok\"; give a token file that grove wrote"
        )));
    }
    let cut = || not_tokens(format!("it is truncated to {} bytes; create it again", bytes.len()));
    let word = |at: usize| bytes.get(at..).and_then(<[u8]>::first_chunk).copied().map(u32::from_le_bytes);
    let (version, width) = (word(8).ok_or_else(cut)?, word(12).ok_or_else(cut)?);
    // Check the version first: a later version may change all that follows.
    if version > VERSION {
        return Err(DataError::NewerTokens { file: path.into(), version, known: VERSION });
    }
    if version < VERSION {
        return Err(not_tokens(format!(
            "its header claims the version {version}, which does not exist; create it again"
        )));
    }
    let width = match width {
        2 => Width::Two,
        4 => Width::Four,
        other => {
            return Err(not_tokens(format!(
                "its header claims {other} bytes per token instead of 2 or 4; create it again"
            )));
        }
    };
    let (content, &count) = bytes.get(HEADER..).and_then(<[u8]>::split_last_chunk::<TRAILER>).ok_or_else(cut)?;
    let (count, room) = (u64::from_le_bytes(count), content.len() / width as usize);
    if count != room as u64 || content.len() % width as usize != 0 {
        return Err(not_tokens(format!(
            "it has {room} tokens, but its last bytes claim {count}: it is truncated or damaged; create it again"
        )));
    }
    Ok((width, room))
}

/// Writes a token file; see [`TokenStream::write`](super::TokenStream::write).
pub(super) fn write(path: &Path, tokens: impl Iterator<Item = u32>, vocabulary: u32) -> Result<u64, DataError> {
    // Tokens are less than the vocabulary size, so two bytes suffice up to 65536.
    let width = if vocabulary <= 1 << 16 { Width::Two } else { Width::Four };
    let mut count = 0;
    let mut stray = None;
    let written = write_atomically(path, |writer| {
        let mut put = |bytes: &[u8]| writer.write_all(bytes);
        put(&[&MAGIC[..], &VERSION.to_le_bytes(), &(width as u32).to_le_bytes()].concat())?;
        // The writer is a trait object, so tokens are written in blocks.
        let mut block = Vec::with_capacity(BLOCK);
        for token in tokens {
            if token >= vocabulary {
                stray = Some(token);
                // An error discards the temporary file; `stray` replaces it below.
                return Err(std::io::ErrorKind::InvalidData.into());
            }
            match width {
                Width::Two => block.extend_from_slice(&(token as u16).to_le_bytes()),
                Width::Four => block.extend_from_slice(&token.to_le_bytes()),
            }
            count += 1;
            if block.len() >= BLOCK {
                put(&block)?;
                block.clear();
            }
        }
        block.extend_from_slice(&u64::to_le_bytes(count));
        put(&block)
    });
    match stray {
        Some(token) => Err(DataError::OutsideVocabulary { file: path.into(), token, position: count, vocabulary }),
        None => written.map(|()| count).map_err(DataError::from),
    }
}

/// Size of a write, in bytes.
const BLOCK: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_match_the_format() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        write(&path, [1, 65535].into_iter(), 65536).expect("written");
        let two = b"grovetok\x01\0\0\0\x02\0\0\0\x01\0\xff\xff\x02\0\0\0\0\0\0\0";
        assert_eq!(std::fs::read(&path).expect("read"), two);
        write(&path, [65536].into_iter(), 65537).expect("written");
        let four = b"grovetok\x01\0\0\0\x04\0\0\0\0\0\x01\0\x01\0\0\0\0\0\0\0";
        assert_eq!(std::fs::read(&path).expect("read"), four);
    }
}
