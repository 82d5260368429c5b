//! Files: atomic writes, errors that name the path, and detection of failed downloads.
//!
//! - [`write_atomically`] and [`Draft`]: a file appears complete or not at all (`atomic.rs`)
//! - [`create_directory`]: a directory appears complete or not at all
//! - [`FileError`]: an error of the operating system with its path (`error.rs`)
//! - [`parse_json`]: JSON as Python writes it, with errors that name the key (`json.rs`)
//! - [`failed_download`]: git-lfs pointers and web pages in place of data (`download.rs`)
//! - [`KnownKeys`]: the keys of a settings file, each supported, without effect, or rejected (`known_keys.rs`)
//! - [`say_once`]: notes for the user (`notes.rs`)
//! - [`printable`]: untrusted text on a terminal (`printable.rs`)
//!
//! ```
//! # let directory = tempfile::tempdir()?;
//! let path = directory.path().join("runs/1/note.txt");
//! grove_files::write_atomically(&path, |writer| writer.write_all(b"done"))?;
//! assert_eq!(std::fs::read(&path)?, b"done");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod atomic;
mod download;
mod error;
mod json;
mod known_keys;
mod notes;
pub mod printable;

pub use atomic::{Draft, create_directory, directory_at, directory_of, sync_directory, write_atomically};
pub use download::failed_download;
pub use error::FileError;
pub use json::{from_json, parse_json};
pub use known_keys::{KnownKeys, RefusedKey, name_unknown_keys};
pub use notes::say_once;
