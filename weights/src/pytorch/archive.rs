//! PyTorch's container since version 1.6: a zip archive with the pickle and one stored entry for each storage.

use std::collections::BTreeMap;

use crate::contents::Contents;
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;
use crate::zip::{Method, Record};

use super::{contents, state_dict, unpickle};

/// Reads and checks the pickle of an archive.
pub(crate) fn read_archive(file: &MappedFile, records: &BTreeMap<String, Record>) -> Result<Contents> {
    let malformed = |reason: String| WeightsError::malformed(file.path(), reason);
    let unsupported = |reason: String| WeightsError::unsupported(file.path(), reason);
    let bytes = file.bytes();
    let content = |name: &str| match records.get(name) {
        Some(record) if record.method == Method::Stored => Ok(Some(record.range.clone())),
        Some(_) => Err(format!("its entry {name} is compressed or encrypted, which PyTorch's never are")),
        None => Ok(None),
    };
    let pickle = records.keys().find(|name| name.ends_with("data.pkl"));
    let pickle =
        pickle.ok_or_else(|| malformed("the archive has neither data.pkl (PyTorch) nor .npy arrays (numpy)".into()))?;
    let folder = pickle.strip_suffix("data.pkl").unwrap_or_default();
    if let Some(order) = content(&format!("{folder}byteorder")).map_err(malformed)?
        && bytes.get(order) != Some(b"little")
    {
        return Err(unsupported("its numbers are big-endian".into()));
    }
    let pickle = content(pickle).map_err(malformed)?.and_then(|range| bytes.get(range)).unwrap_or_default();
    let (object, _) = unpickle(pickle).map_err(malformed)?;
    let tensors = state_dict::tensors(object, file.path()).map_err(unsupported)?;
    contents(file, tensors, |storage| {
        let entry = format!("{folder}data/{}", storage.key);
        content(&entry)?.ok_or_else(|| format!("its storage {entry} is missing"))
    })
}
