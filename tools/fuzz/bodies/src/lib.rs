//! Readers of untrusted files, each as a function of the bytes of a file. For any bytes, a reader returns a value or an
//! error: no panic, no abort, no allocation of a size that the file claims.
//!
//! The targets of `cargo fuzz` in `tools/fuzz/` call these functions, and so do this crate's tests, with modified
//! copies of the files in `tools/fuzz/seeds`.
#![warn(missing_docs)]

mod models;
mod records;
mod runs;
mod weights;

pub use models::{chat_template, config, generation_config, image, preprocessor, tokenizer_json, tokenizer_model};
pub use records::parquet;
pub use runs::{metrics, run};
pub use weights::{gguf, npz, pickle, safetensors, shard_index};

/// Reason why a reader rejected a file.
pub type Refused = Box<dyn std::error::Error + Send + Sync>;

/// A reader of files.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Name of the fuzz target, and of the folder of its seeds.
    pub name: &'static str,
    /// Reads a file with these bytes.
    pub read: fn(&[u8]) -> Result<(), Refused>,
}

/// All readers.
pub const READERS: [Reader; 15] = [
    Reader { name: "chat_template", read: chat_template },
    Reader { name: "config", read: config },
    Reader { name: "generation_config", read: generation_config },
    Reader { name: "gguf", read: gguf },
    Reader { name: "image", read: image },
    Reader { name: "metrics", read: metrics },
    Reader { name: "npz", read: npz },
    Reader { name: "parquet", read: parquet },
    Reader { name: "pickle", read: pickle },
    Reader { name: "preprocessor", read: preprocessor },
    Reader { name: "run", read: run },
    Reader { name: "safetensors", read: safetensors },
    Reader { name: "shard_index", read: shard_index },
    Reader { name: "tokenizer_json", read: tokenizer_json },
    Reader { name: "tokenizer_model", read: tokenizer_model },
];

/// Creates a directory with one file of these bytes. Also returns the path of the file.
fn file(name: &str, bytes: &[u8]) -> Result<(tempfile::TempDir, std::path::PathBuf), Refused> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join(name);
    std::fs::write(&path, bytes)?;
    Ok((directory, path))
}
