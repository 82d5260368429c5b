//! Files: atomic writes, JSON files, errors that name the path, and detection of failed downloads.
//!
//! - [`write_atomically`] and [`Draft`]: a file appears complete or not at all (`atomic.rs`)
//! - [`create_directory`]: a directory appears complete or not at all
//! - [`copy_files`]: copies of the files that exist (`copy.rs`)
//! - [`FileError`]: an error with the path of its file (`error.rs`)
//! - [`parse_json`]: JSON as Python writes it, with errors that name the key (`json.rs`)
//! - [`read_json`], [`write_json`]: JSON files (`json_file.rs`)
//! - [`JsonFields`], [`check_keys`]: fields of a JSON file, none of which is ignored (`json_fields.rs`)
//! - [`failed_download`]: git-lfs pointers and web pages in place of data (`download.rs`)
//! - [`KnownKeys`]: the keys of a settings file, each supported, without effect, or rejected (`known_keys.rs`)
//! - [`note_once`]: notes for the user (`notes.rs`)
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
mod copy;
mod download;
mod error;
mod json;
mod json_fields;
mod json_file;
mod known_keys;
mod notes;
pub mod printable;

pub use atomic::{Draft, create_directory, directory_at, directory_of, sync_directory, write_atomically};
pub use copy::copy_files;
pub use download::failed_download;
pub use error::FileError;
pub use json::{from_json, parse_json};
pub use json_fields::{JsonFields, check_keys};
pub use json_file::{read_fields, read_json, write_json, write_text};
pub use known_keys::{KnownKeys, RefusedKey, name_unknown_keys};
pub use notes::note_once;
