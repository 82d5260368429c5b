//! Table of contents of a file, common to all formats.

use crate::{entry::Entry, gguf::metadata::GgufMetadata};

/// Table of contents of a file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Names and positions, in the order of the file.
    pub(crate) entries: Vec<(String, Entry)>,
    /// Metadata of the file, such as `format: pt`.
    pub(crate) metadata: Vec<(String, String)>,
    /// Typed metadata of a GGUF file; `None` for other formats.
    pub(crate) gguf: Option<GgufMetadata>,
}
