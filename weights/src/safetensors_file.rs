//! The safetensors format: eight bytes of header length, a JSON header, the tensors' bytes.
//! Source: <https://huggingface.co/docs/safetensors>. The `safetensors` crate makes the final check. The earlier checks
//! name the faulty tensor, and find duplicate names, which the crate overlooks. The header is parsed in place, after
//! its length has been compared with the length of the file: no allocation has a size that a header claims.

use serde::Deserialize;

use crate::contents::Contents;
use crate::entry::{Entry, Form, StoredDtype, check_size, row_major};
use crate::error::{Result, WeightsError};
use crate::mapped::MappedFile;
use crate::unique::Unique;

/// Bytes of the header's length field.
const LENGTH_FIELD: usize = 8;
/// Maximum header size in bytes, as in the `safetensors` crate; the parsed form takes many times the memory.
const HEADER_LIMIT: usize = 100_000_000;

/// A value of the header: the strings under `__metadata__`, or the description of a tensor.
#[derive(Deserialize)]
#[serde(untagged)]
enum HeaderValue {
    Tensor(HeaderTensor),
    Other(serde_json::Value),
}

#[derive(Deserialize)]
struct HeaderTensor {
    dtype: StoredDtype,
    shape: Vec<usize>,
    data_offsets: (usize, usize),
}

/// Reads and checks the header.
///
/// # Errors
/// [`WeightsError::Malformed`] or [`WeightsError::MalformedTensor`] for everything that the format forbids.
pub(crate) fn read_contents(file: &MappedFile) -> Result<Contents> {
    let malformed = |reason: String| WeightsError::malformed(file.path(), reason);
    let bytes = file.bytes();
    let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_FIELD>() else {
        let reason = format!("{} bytes are too few for a header length", bytes.len());
        return Err(malformed(reason));
    };
    let length = u64::from_le_bytes(*length);
    let header = usize::try_from(length).ok().and_then(|length| rest.get(..length)).ok_or_else(|| {
        malformed(format!(
            "the header claims {length} bytes, but the file has only {} after its start (truncated, or not safetensors)",
            rest.len()
        ))
    })?;
    if header.len() > HEADER_LIMIT {
        return Err(malformed(format!("the header claims {length} bytes; the format allows {HEADER_LIMIT}")));
    }
    let text = std::str::from_utf8(header).map_err(|error| malformed(format!("the header is not UTF-8: {error}")))?;
    let header: Unique<HeaderValue> =
        serde_json::from_str(text).map_err(|error| malformed(format!("the header is not valid: {error}")))?;

    let data_start = LENGTH_FIELD + text.len();
    let data_len = bytes.len() - data_start;
    let mut contents = Contents::default();
    let mut places = Vec::with_capacity(header.0.len());
    for (name, value) in header.0 {
        if name == "__metadata__" {
            contents.metadata =
                metadata(value).ok_or_else(|| malformed("`__metadata__` must map text to text".into()))?;
            continue;
        }
        let wrong = |reason: String| WeightsError::malformed_tensor(file.path(), &name, reason);
        let HeaderValue::Tensor(tensor) = value else {
            return Err(wrong("needs a known `dtype`, a `shape` and two `data_offsets`, all whole numbers".into()));
        };
        check_tensor(&tensor, data_len).map_err(wrong)?;
        places.push((tensor.data_offsets, name.clone()));
        let entry = Entry {
            dtype: tensor.dtype,
            strides: row_major(&tensor.shape),
            shape: tensor.shape,
            form: Form::Plain,
            offset: data_start + tensor.data_offsets.0,
        };
        contents.entries.push((name, entry));
    }
    check_cover(places, data_len, file)?;
    safetensors::SafeTensors::read_metadata(bytes).map_err(|error| malformed(error.to_string()))?;
    Ok(contents)
}

/// Checks one tensor: its offsets are in order and inside the file, and its size in bytes matches shape and dtype.
fn check_tensor(tensor: &HeaderTensor, data_len: usize) -> std::result::Result<(), String> {
    let (start, end) = tensor.data_offsets;
    if start > end {
        return Err(format!("its data starts at byte {start}, but ends before that, at {end}"));
    }
    if end > data_len {
        return Err(format!("its data ends at byte {end}, but the file has {data_len} (truncated?)"));
    }
    check_size(tensor.dtype, &tensor.shape, end - start)
}

/// Checks that the tensors together cover the data without gaps or overlaps.
fn check_cover(mut places: Vec<((usize, usize), String)>, data_len: usize, file: &MappedFile) -> Result<()> {
    places.sort();
    let mut position = 0;
    for ((start, end), tensor) in places {
        if start != position {
            let what =
                if start < position { "overlap those of the tensor before it" } else { "leave a hole before them" };
            let reason = format!("its bytes {start}..{end} {what}, which ends at {position}");
            return Err(WeightsError::malformed_tensor(file.path(), &tensor, reason));
        }
        position = end;
    }
    if position != data_len {
        let reason = format!("{} bytes at its end belong to no tensor", data_len - position);
        return Err(WeightsError::malformed(file.path(), reason));
    }
    Ok(())
}

fn metadata(value: HeaderValue) -> Option<Vec<(String, String)>> {
    let HeaderValue::Other(serde_json::Value::Object(map)) = value else { return None };
    map.into_iter().map(|(key, value)| Some((key, value.as_str()?.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_long_headers_before_reading_them() {
        // A sparse file with zeros after the length; zeros are not valid JSON.
        for (length, words) in [(HEADER_LIMIT + 1, "the format allows 100000000"), (64, "the header is not valid")] {
            let file = tempfile::NamedTempFile::new().expect("a file");
            std::fs::write(file.path(), (length as u64).to_le_bytes()).expect("written");
            file.as_file().set_len((LENGTH_FIELD + length) as u64).expect("lengthened");
            let mapped = MappedFile::open(file.path()).expect("mapped");
            let error = read_contents(&mapped).expect_err("malformed").to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
