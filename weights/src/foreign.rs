//! Detection of other frameworks' files, so that an error can name their format.

/// Advice on converting another framework's model to a supported format.
const EXPORT: &str = "load it there and save it with transformers' save_pretrained, or as safetensors";

/// Magic bytes and name endings of a format, and its description.
struct Kind {
    /// Magic bytes and their position; a negative position counts from the end of the file.
    magic: Option<(isize, &'static [u8])>,
    /// Endings of the file's name, after a dot.
    endings: &'static [&'static str],
    reason: &'static str,
}

const KINDS: [Kind; 9] = [
    Kind {
        magic: Some((0, b"\x89HDF\r\n\x1a\n")),
        endings: &["h5", "hdf5", "keras"],
        reason: "it is an HDF5 file, as Keras and TensorFlow write them",
    },
    Kind { magic: Some((4, b"TFL3")), endings: &["tflite"], reason: "it is a TensorFlow Lite model" },
    Kind {
        // The last bytes of a LevelDB table.
        magic: Some((-8, b"\x57\xfb\x80\x8b\x24\x75\x47\xdb")),
        endings: &["ckpt.index"],
        reason: "it is a part of a TensorFlow checkpoint",
    },
    Kind { magic: None, endings: &["onnx"], reason: "it is an ONNX model" },
    Kind { magic: None, endings: &["pb", "pbtxt"], reason: "it is a TensorFlow graph (protobuf)" },
    Kind { magic: None, endings: &["msgpack"], reason: "it is in MessagePack, as Flax writes it" },
    Kind { magic: None, endings: &["mlmodel", "mlpackage"], reason: "it is a Core ML model" },
    Kind { magic: Some((0, b"\x1f\x8b")), endings: &["gz", "tgz"], reason: "it is compressed with gzip" },
    Kind { magic: Some((0, b"\x28\xb5\x2f\xfd")), endings: &["zst"], reason: "it is compressed with zstd" },
];

/// First bytes of llama.cpp's formats before GGUF.
const OLD_GGML: [&[u8]; 4] = [b"lmgg", b"fmgg", b"tjgg", b"algg"];

/// Returns the format of another framework's file and the remedy; `None` if the file is not recognised.
///
/// - `name`: file name, for formats that cannot be identified by content
pub(crate) fn refusal(bytes: &[u8], name: &str) -> Option<String> {
    // A safetensors header starts with a brace at byte 8, and the length before it may have any bytes.
    if bytes.get(8) == Some(&b'{') {
        return None;
    }
    if OLD_GGML.iter().any(|magic| bytes.starts_with(magic)) {
        return Some("it is in one of llama.cpp's formats before GGUF; convert it with llama.cpp's scripts".into());
    }
    let has = |kind: &Kind| {
        kind.magic.is_some_and(|(at, magic)| match usize::try_from(at) {
            Ok(at) => bytes.get(at..).is_some_and(|rest| rest.starts_with(magic)),
            Err(_) => bytes.ends_with(magic),
        })
    };
    let named = || kind_by_name(name);
    let onnx = || is_onnx(bytes).then(|| KINDS.iter().find(|kind| kind.endings.contains(&"onnx"))).flatten();
    let kind = KINDS.iter().find(|kind| has(kind)).or_else(named).or_else(onnx)?;
    let advice = if kind.reason.contains("compressed") { "unpack it first" } else { EXPORT };
    Some(format!("{}; {advice}", kind.reason))
}

/// Returns the format of a file by its name alone; `None` if the format is not another framework's.
pub(crate) fn by_name(name: &str) -> Option<&'static str> {
    kind_by_name(name).map(|kind| kind.reason)
}

fn kind_by_name(name: &str) -> Option<&'static Kind> {
    let name = name.to_ascii_lowercase();
    // The data files of a TensorFlow checkpoint have numbers after the ending.
    let name = match name.split_once(".data-0") {
        Some((stem, _)) => format!("{stem}.ckpt.index"),
        None => name,
    };
    KINDS.iter().find(|kind| {
        kind.endings.iter().any(|ending| name.strip_suffix(ending).is_some_and(|stem| stem.ends_with('.')))
    })
}

/// Returns true if the bytes start like an ONNX model: the format version (field 1), then the producer's name (field 2)
/// in letters. <https://github.com/onnx/onnx/blob/main/onnx/onnx.proto>
fn is_onnx(bytes: &[u8]) -> bool {
    let [0x08, 3..=30, 0x12, length, rest @ ..] = bytes else { return false };
    let producer = rest.get(..usize::from(*length)).unwrap_or_default();
    !producer.is_empty() && producer.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_called_by_their_names() {
        let message = |bytes: &[u8], name: &str| refusal(bytes, name).unwrap_or_default();
        // torch.onnx.export's first bytes; version 8, producer "pytorch".
        let onnx = b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\x12";
        assert!(message(onnx, "model.safetensors").contains("ONNX"));
        assert!(message(b"something", "encoder.ONNX").contains("ONNX"));
        assert!(message(b"\x89HDF\r\n\x1a\n\0\0\0\0", "pytorch_model.bin").contains("HDF5"));
        assert!(message(b"\x1c\0\0\0TFL3\0\0", "model").contains("TensorFlow Lite"));
        assert!(message(b"\x08\x01\x12\x02", "saved_model.pb").contains("TensorFlow graph"));
        assert!(message(b"\x81\xa6params", "flax_model.msgpack").contains("Flax"));
        assert!(message(b"lmgg\0", "ggml-model.bin").contains("before GGUF"));
        assert!(message(b"\x1f\x8b\x08\0", "model.safetensors").contains("unpack it first"));
        assert!(message(&[0; 20], "model.ckpt.data-00000-of-00001").contains("TensorFlow checkpoint"));
        let mut index = vec![0; 40];
        index.extend(b"\x57\xfb\x80\x8b\x24\x75\x47\xdb");
        assert!(message(&index, "x").contains("TensorFlow checkpoint"));
        // A safetensors header of 0x0808 bytes, which starts like ONNX; an unknown file; a PyTorch file.
        assert_eq!(refusal(b"\x08\x08\0\0\0\0\0\0{\"a\"", "model.onnx"), None);
        assert_eq!(refusal(b"\x08\x08\x12\x02\0\0", "model.bin"), None);
        assert_eq!(refusal(b"\x80\x02", "model.pth"), None);
        assert_eq!((by_name("tf_model.h5").is_some(), by_name("model.bin").is_some()), (true, false));
    }
}
