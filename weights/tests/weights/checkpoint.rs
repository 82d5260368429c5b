//! Files written by PyTorch, safetensors and huggingface_hub (`tools/fixtures/weights.py`) and by numpy (`npz.py`),
//! read back.

use std::path::{Path, PathBuf};

use burn::tensor::TensorData;
use grove_weights::TensorFiles;
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

/// Returns the files of a fixture folder, each with its expected content.
fn expected(folder: &str) -> Vec<(String, Value)> {
    let text = std::fs::read_to_string(fixture(folder).join("expected.json")).expect("expected.json");
    let files: serde_json::Map<String, Value> = serde_json::from_str(&text).expect("JSON");
    files.into_iter().map(|(file, tensors)| (format!("{folder}{file}"), tensors)).collect()
}

/// Formats values so that each is identified exactly.
fn values(data: &TensorData) -> Vec<String> {
    match data.dtype {
        dtype if dtype.is_float() => data.iter::<f64>().map(|v| format!("{v:?}")).collect(),
        dtype if dtype.is_bool() => data.iter::<bool>().map(|v| u8::from(v).to_string()).collect(),
        dtype if dtype.is_uint() => data.iter::<u64>().map(|v| v.to_string()).collect(),
        _ => data.iter::<i64>().map(|v| v.to_string()).collect(),
    }
}

/// Converts Python's spelling of a number to Rust's.
fn spelled(text: &Value, is_float: bool) -> String {
    let text = text.as_str().expect("a number as text");
    if is_float { format!("{:?}", text.parse::<f64>().expect("a float")) } else { text.to_string() }
}

/// Returns PyTorch's name of a type, which is also numpy's.
fn python_name(data: &TensorData) -> &'static str {
    use burn::tensor::DType;
    match data.dtype {
        DType::F64 => "float64",
        DType::F32 => "float32",
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        DType::I64 => "int64",
        DType::I32 => "int32",
        DType::I16 => "int16",
        DType::I8 => "int8",
        DType::U64 => "uint64",
        DType::U32 => "uint32",
        DType::U16 => "uint16",
        DType::U8 => "uint8",
        DType::Bool(_) => "bool",
        _ => "other",
    }
}

#[test]
fn reads_what_python_wrote() {
    for (file, tensors) in expected("").into_iter().chain(expected("numpy/")) {
        let checkpoint = TensorFiles::open(fixture(&file)).unwrap_or_else(|error| panic!("{error}"));
        let tensors = tensors.as_object().expect("tensors");
        let mut names: Vec<_> = tensors.keys().map(String::as_str).collect();
        names.sort_unstable();
        assert_eq!(checkpoint.names().collect::<Vec<_>>(), names, "{file}");
        for (name, about) in tensors {
            let data = checkpoint.tensor(name).unwrap_or_else(|error| panic!("{file}: {error}"));
            let shape: Vec<usize> = serde_json::from_value(about["shape"].clone()).expect("a shape");
            assert_eq!(data.shape.to_vec(), shape, "{file} {name}");
            assert_eq!(checkpoint.info(name).expect("info").shape, shape);
            assert_eq!(python_name(&data), about["dtype"], "{file} {name}");
            let wanted = about["values"].as_array().expect("values").iter();
            let wanted: Vec<String> = wanted.map(|value| spelled(value, data.dtype.is_float())).collect();
            assert_eq!(values(&data), wanted, "{file} {name}");
        }
    }
}

#[test]
fn knows_metadata_and_describes_itself() {
    let checkpoint = TensorFiles::open(fixture("dtypes.safetensors")).expect("opened");
    assert_eq!(checkpoint.metadata().get("note").map(String::as_str), Some("grove"));
    assert_eq!(checkpoint.directory(), fixture("").as_path());
    assert!(checkpoint.to_string().contains("dtypes.safetensors: 17 tensors"), "{checkpoint}");
    let sharded = TensorFiles::open(fixture("sharded")).expect("opened");
    assert!(sharded.to_string().contains("3 files in"), "{sharded}");
    assert!(sharded.info("layers.2.bias").expect("info").file.ends_with("model-00003-of-00003.safetensors"));
    let error = sharded.tensor("layers.2.bais").expect_err("no such name").to_string();
    assert!(error.contains("did you mean `layers.2.bias`"), "{error}");
}

#[test]
fn an_index_may_be_opened_itself() {
    let index = fixture("sharded/model.safetensors.index.json");
    assert_eq!(TensorFiles::open(index).expect("opened").names().count(), 6);
}

#[test]
fn refuses_with_reasons() {
    for (file, word) in [
        ("old_module.pt", "torch.nn.modules.linear.Identity"),
        ("old_sparse.pt", "_rebuild_sparse_tensor"),
        ("whole_module.pt", "torch.nn.modules.linear.Linear"),
        ("protocol4.pt", "protocol 2"),
        ("no_tensors.pt", "no tensors"),
        ("torchscript.pt", "a Python object"),
        ("quantized.pt", "_rebuild_qtensor"),
        ("expected.json", "index"),
        ("numpy/objects.npz", "`bad` has pickled Python objects"),
        ("numpy/bfloat16.npz", "`bad` holds raw bytes (`<V2`)"),
        ("numpy/text.npz", "`bad` has text"),
        ("numpy/fields.npz", "`bad` has several fields"),
        ("numpy/long_double.npz", "`bad` is of type `<f16`"),
        ("numpy/notes.npz", "`notes.txt` is not a .npy"),
        ("numpy/disguised.npz", "tensor `bad`: it does not start"),
        ("numpy/bzip2.npz", "tensor `bad`: it is encrypted, or compressed by another method"),
        ("nowhere.safetensors", "nowhere.safetensors"),
    ] {
        let error = TensorFiles::open(fixture(file)).expect_err(file).to_string();
        assert!(error.contains(word) && error.contains(file), "{error}");
    }
}

/// Returns a copy of a sharded fixture that a test may modify.
fn sharded_copy() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for item in std::fs::read_dir(fixture("sharded")).expect("listed") {
        let item = item.expect("an entry");
        std::fs::copy(item.path(), directory.path().join(item.file_name())).expect("copied");
    }
    directory
}

#[test]
fn a_missing_shard_is_named() {
    let directory = sharded_copy();
    std::fs::remove_file(directory.path().join("model-00002-of-00003.safetensors")).expect("removed");
    let error = TensorFiles::open(directory.path()).expect_err("a shard is missing").to_string();
    assert!(error.contains("model-00002-of-00003.safetensors is missing"), "{error}");
}

#[test]
fn an_inconsistent_index_is_rejected() {
    let directory = sharded_copy();
    let index = directory.path().join("model.safetensors.index.json");
    let text = std::fs::read_to_string(&index).expect("read");
    std::fs::write(&index, text.replace("layers.1.bias", "layers.1.other")).expect("written");
    // The missing tensor is an error only if a model needs it: see `names_of_an_index_that_no_file_has`.
    let opened = TensorFiles::open(directory.path()).expect("the tensors that are there");
    assert!(!opened.contains("layers.1.other") && opened.contains("layers.1.bias"));

    let text = text.replace("model-00002-of-00003.safetensors", "../model-00002-of-00003.safetensors");
    std::fs::write(&index, text).expect("written");
    let error = TensorFiles::open(directory.path()).expect_err("outside").to_string();
    assert!(error.contains("beside the index"), "{error}");
}

/// Errors name the format of other frameworks' files, for a file and for its directory.
#[test]
fn files_of_other_frameworks_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let message = |path: &std::path::Path| TensorFiles::open(path).unwrap_err().to_string();
    std::fs::write(directory.path().join("tf_model.h5"), b"\x89HDF\r\n\x1a\n\0\0\0\0").unwrap();
    std::fs::write(directory.path().join("model.onnx"), b"\x08\x08\x12\x07pytorch\x1a\x052.1.0").unwrap();
    let of_directory = message(directory.path());
    for word in ["no weights", "tf_model.h5", "HDF5", "model.onnx", "ONNX"] {
        assert!(of_directory.contains(word), "{of_directory}");
    }
    let of_file = message(&directory.path().join("model.onnx"));
    assert!(of_file.contains("model.onnx") && of_file.contains("ONNX") && of_file.contains("safetensors"), "{of_file}");
    // The file name makes no difference.
    std::fs::rename(directory.path().join("model.onnx"), directory.path().join("model.safetensors")).unwrap();
    assert!(message(directory.path()).contains("ONNX"));
}
