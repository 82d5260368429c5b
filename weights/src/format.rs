//! Detection of a file's format.

use std::sync::Arc;

use crate::contents::Contents;
use crate::error::{Result, WeightsError};
use crate::locate::file_name;
use crate::mapped::MappedFile;
use crate::{foreign, gguf, numpy, pytorch, safetensors_file, zip};

/// Reads the table of contents of a file in any supported format.
pub(crate) fn read_contents(file: &Arc<MappedFile>) -> Result<Contents> {
    let bytes = file.bytes();
    let extension = file.path().extension().and_then(std::ffi::OsStr::to_str).unwrap_or_default();
    if zip::is_archive(bytes) {
        let records = zip::records(bytes).map_err(|reason| WeightsError::malformed(file.path(), reason))?;
        match numpy::is_npz(&records, extension) {
            true => numpy::read_archive(file, &records),
            false => pytorch::read_archive(file, &records),
        }
    } else if numpy::is_array(bytes) {
        numpy::read_single(file)
    } else if gguf::is_gguf(bytes) {
        gguf::read_contents(file)
    } else if pytorch::is_stream(bytes) {
        pytorch::read_stream(file)
    } else if let Some(reason) = foreign::refusal(bytes, &file_name(file.path())) {
        Err(WeightsError::unsupported(file.path(), reason))
    } else if let Some(reason) = pytorch::refusal(bytes, extension) {
        Err(WeightsError::unsupported(file.path(), reason))
    } else {
        safetensors_file::read_contents(file)
    }
}
