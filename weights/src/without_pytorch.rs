//! Without the feature `pytorch`, PyTorch's files are recognised and rejected.

use std::collections::BTreeMap;

use crate::contents::Contents;
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;
use crate::zip::Record;

const REASON: &str = "it is one of PyTorch's files, but this program was built without grove's feature `pytorch`, \
                      which reads them; add the feature to `grove` in Cargo.toml, or save the model as safetensors";

/// Rejects a zip archive that is not numpy's.
pub(crate) fn read_archive(file: &MappedFile, _: &BTreeMap<String, Record>) -> Result<Contents> {
    Err(WeightsError::unsupported(file.path(), REASON))
}

/// Returns true if the content is a pickle. A safetensors header may start with the same bytes, but has a brace at byte
/// 8.
pub(crate) fn is_stream(bytes: &[u8]) -> bool {
    matches!(bytes, [0x80, 0..=5, ..]) && bytes.get(8) != Some(&b'{')
}

/// Rejects a pickle.
pub(crate) fn read_stream(file: &MappedFile) -> Result<Contents> {
    read_archive(file, &BTreeMap::new())
}

/// Returns the reason for rejecting content of no known format with one of PyTorch's extensions; `None` otherwise.
pub(crate) fn refusal(bytes: &[u8], extension: &str) -> Option<String> {
    let is_safetensors = bytes.get(8) == Some(&b'{');
    let is_named_so = matches!(extension, "bin" | "pt" | "pth" | "ckpt");
    (is_named_so && !is_safetensors).then(|| "it is neither one of PyTorch's files nor safetensors".into())
}
