//! GGUF files written by llama.cpp's gguf-py (`tools/fixtures/gguf_files.py`), read back as floats and as blocks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{BasicOps, DType, Int, TensorData};
use burn_flex::Flex;
use grove_tree::{Array, Kind};
use grove_weights::{
    BlockType, GgufValue, LoadOptions, NameMap, Report, Step, StoredDtype, TensorFiles, WeightsError, load,
};
use serde_json::Value;

fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures/gguf").join(name)
}

fn open(name: &str) -> TensorFiles {
    TensorFiles::open(fixture(name)).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns an entry of the script's description of the files: `tensors`, `metadata` or `sizes`.
fn expected(what: &str) -> serde_json::Map<String, Value> {
    let text = std::fs::read_to_string(fixture("expected.json")).expect("expected.json");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    all[what].as_object().expect("an object").clone()
}

/// Asserts that the values are equal; for floats, up to a relative error of 1e-6.
fn assert_close(found: &TensorData, expected: &TensorData, name: &str) {
    assert_eq!(found.shape, expected.shape, "{name}");
    for (found, expected) in found.iter::<f64>().zip(expected.iter::<f64>()) {
        let limit = if found.fract() == 0.0 { 0.0 } else { 1e-6 * expected.abs() };
        assert!((found - expected).abs() <= limit, "{name}: {found} instead of {expected}");
    }
}

#[test]
fn reads_what_gguf_py_wrote() {
    let (checkpoint, python) = (open("types.gguf"), open("expected.safetensors"));
    let tensors = expected("tensors");
    assert_eq!(checkpoint.names().count(), tensors.len());
    for (name, about) in tensors {
        let info = checkpoint.info(&name).expect("listed");
        let shape: Vec<usize> = serde_json::from_value(about[1].clone()).expect("a shape");
        assert_eq!(info.shape, shape, "{name}");
        let kind = about[0].as_str().filter(|kind| *kind != "BF16");
        assert_eq!(info.quantized.map(BlockType::name), kind, "{name}");
        if !python.contains(&name) {
            let error = checkpoint.tensor(&name).expect_err("not decoded").to_string();
            for word in ["types.gguf", &name, kind.expect("quantized")] {
                assert!(error.contains(word), "{error}");
            }
            continue;
        }
        let found = checkpoint.tensor(&name).unwrap_or_else(|error| panic!("{error}"));
        assert_close(&found, &python.tensor(&name).expect("there"), &name);
        match (kind, info.raw_shape()) {
            (Some(_), Some(raw)) => {
                assert_eq!((info.dtype, found.dtype), (StoredDtype::F32, DType::F32), "{name}");
                assert_eq!(raw, python.info(&format!("raw.{name}")).expect("there").shape, "{name}");
            }
            (None, None) if name.ends_with("bfloat16") => assert_eq!(found.dtype, DType::BF16),
            (None, None) => assert_eq!(info.dtype, python.info(&name).expect("there").dtype, "{name}"),
            (kind, raw) => panic!("{name}: {kind:?} and {raw:?}"),
        }
    }
}

#[test]
fn candle_reads_the_same() {
    use candle_core::{Device, quantized::gguf_file::Content};
    let mut file = std::fs::File::open(fixture("aligned.gguf")).expect("opened");
    let content = Content::read(&mut file).expect("read");
    let checkpoint = open("aligned.gguf");
    assert_eq!(content.tensor_infos.len(), checkpoint.names().count());
    for (name, info) in &content.tensor_infos {
        assert_eq!(checkpoint.info(name).expect("listed").shape, info.shape.dims(), "{name}");
        let tensor = content.tensor(&mut file, name, &Device::Cpu).and_then(|tensor| tensor.dequantize(&Device::Cpu));
        let values = tensor.and_then(|tensor| tensor.flatten_all()).and_then(|tensor| tensor.to_vec1::<f32>());
        let found: Vec<f32> = checkpoint.tensor(name).expect("read").iter().collect();
        assert_eq!(found, values.expect("read by candle"), "{name}");
    }
}

#[test]
fn kinds_of_blocks_have_the_sizes_that_gguf_py_gives_them() {
    let sizes = expected("sizes");
    for kind in BlockType::ALL {
        // llama.cpp changed the block's sums to 16 bits; gguf-py has the older size. No file contains this type.
        if kind != BlockType::Q8_1 {
            let size = &sizes[kind.name()];
            assert_eq!((size[1].as_u64(), size[2].as_u64()), {
                (Some(kind.values_per_block() as u64), Some(kind.bytes_per_block() as u64))
            });
        }
    }
    // The other types are not quantized.
    assert_eq!(sizes.len() - BlockType::ALL.len(), 8);
}

/// Converts a value to JSON.
fn json(value: GgufValue<'_>) -> Value {
    match value {
        GgufValue::Unsigned(value) => value.into(),
        GgufValue::Signed(value) => value.into(),
        GgufValue::Float(value) => value.into(),
        GgufValue::Boolean(value) => value.into(),
        GgufValue::String(value) => value.into(),
        GgufValue::Array(array) => array.iter().map(json).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn metadata_of_every_type() {
    let checkpoint = open("types.gguf");
    let gguf = checkpoint.gguf().expect("a GGUF file");
    let mut expected = expected("metadata");
    expected.insert("general.architecture".into(), "llama".into());
    let found: serde_json::Map<String, Value> = gguf.iter().map(|(key, value)| (key.into(), json(value))).collect();
    assert_eq!(found.len(), expected.len());
    for (key, value) in expected {
        assert_eq!(found[&key], value, "{key}");
    }

    assert_eq!(gguf.version(), 3);
    assert_eq!(gguf.string("general.architecture"), Some("llama"));
    assert_eq!((gguf.integer("test.u64"), gguf.integer("test.small")), (Some(u64::MAX), Some(7)));
    assert_eq!(gguf.integer("test.i8"), None, "-100 is negative");
    assert_eq!(gguf.float("test.f32").map(|value| value as f32), Some(0.1));
    assert_eq!((gguf.float("test.f64"), gguf.float("test.u8")), (Some(0.1), None));
    assert_eq!((gguf.boolean("test.true"), gguf.boolean("test.false")), (Some(true), Some(false)));
    assert_eq!(gguf.strings("tokenizer.ggml.tokens"), Some(vec!["<s>", "", "▁the", "\n", "\0"]));
    assert_eq!(gguf.integers("test.u32s"), Some(vec![1, 2, 4_000_000_000]));
    assert_eq!((gguf.integers("test.i32s"), gguf.integers("test.f32s")), (None, None));
    assert_eq!(gguf.floats("test.f32s").map(|values| values[1]), Some(-1000.0));
    assert_eq!(gguf.array("test.bools").map(|array| array.len()), Some(3));
    assert_eq!((gguf.string("test.u8"), gguf.get("nothing")), (None, None));

    let general: BTreeMap<_, _> = [("general.architecture", "llama"), ("general.name", "grün, ein Modell")]
        .map(|(k, v)| (k.into(), v.into()))
        .into();
    assert_eq!(checkpoint.metadata(), &general);
    assert!(open("expected.safetensors").gguf().is_none());
}

#[test]
fn describes_types() {
    let text = open("aligned.gguf").to_string();
    assert!(text.contains("aligned.gguf: 5 tensors, 398 values (F16, F32, Q4_0, Q8_0)"), "{text}");
    assert_eq!(open("aligned.gguf").gguf().map(|gguf| gguf.version()), Some(2));
}

type Floats = BTreeMap<String, Array<Flex, 2>>;
type Bytes = BTreeMap<String, Array<Flex, 2, Int>>;

fn options() -> LoadOptions<Flex> {
    LoadOptions::new(&Default::default()).strict(false)
}

fn floats<const N: usize>(leaves: [(&str, [usize; 2]); N]) -> Floats {
    leaves.into_iter().map(|(name, shape)| (name.to_string(), Array::absent(shape))).collect()
}

fn bytes<const N: usize>(leaves: [(&str, [usize; 2]); N]) -> Bytes {
    leaves.into_iter().map(|(name, shape)| (name.to_string(), Array::absent_of(shape, DType::U8))).collect()
}

fn data<K>(leaf: &Array<Flex, 2, K>) -> TensorData
where
    K: Kind<On<Flex> = K> + BasicOps<Flex>,
{
    leaf.val().into_data()
}

/// Adds the steps for Meta's order of rotary halves, for heads of four rows. `heads` or `values` may be -1.
fn rope(names: NameMap, heads: isize, values: isize) -> NameMap {
    let (rows, apart) = (if heads > 0 { 4 * heads } else { -1 }, vec![heads, 2, 2, values]);
    names
        .then(Step::Reshape { from: vec![rows, values], to: apart.clone() })
        .then(Step::Permute(vec![0, 2, 1, 3]))
        .then(Step::Reshape { from: apart, to: vec![rows, values] })
}

#[test]
fn quantized_tensors_become_floats_of_any_layout() {
    let (quantized, plain) = (open("types.gguf"), open("expected.safetensors"));
    let short = |name| NameMap::new().rule(name, "w");
    for (names, leaves) in [
        (short("blocks.Q6_K").then(Step::Transpose), floats([("w", [256, 8])])),
        (rope(short("blocks.Q4_K"), -1, 256), floats([("w", [8, 256])])),
        (rope(short("blocks.Q4_0"), 2, -1), floats([("w", [8, 64])])),
        (rope(short("blocks.Q5_K"), -1, 256).then(Step::Transpose), floats([("w", [256, 8])])),
        // Rows that are cut within blocks, and a permutation that separates all neighbouring values.
        (short("blocks.Q2_K").then(Step::Reshape { from: vec![8, 256], to: vec![64, 32] }), floats([("w", [64, 32])])),
        (short("cube.Q5_1").then(Step::Permute(vec![1, 2, 0])).then(reshape([96, 2])), floats([("w", [96, 2])])),
        (NameMap::new().split("blocks.Q8_0", 0, &["a", "b"]), floats([("a", [3, 64]), ("b", [5, 64])])),
        (NameMap::new().split("blocks.Q3_K", 1, &["a", "b"]), floats([("a", [8, 100]), ("b", [8, 156])])),
        (
            NameMap::new().split("blocks.Q5_0", 0, &["a", "b"]).then(Step::Transpose),
            floats([("a", [64, 2]), ("b", [64, 6])]),
        ),
        (NameMap::new().merge(&["blocks.Q4_0", "more.Q4_0"], 0, "w"), floats([("w", [12, 64])])),
        (NameMap::new().merge(&["blocks.Q4_K", "blocks.Q6_K"], 1, "w"), floats([("w", [8, 512])])),
        (
            NameMap::new().merge(&["blocks.Q4_K", "blocks.Q6_K"], 1, "w").then(Step::Transpose),
            floats([("w", [256, 16])]),
        ),
    ] {
        for dtype in [DType::F32, DType::BF16, DType::F16, DType::F64] {
            let options = options().dtype(dtype);
            let (found, report) = load(leaves.clone(), &quantized, &names, &options).expect("loaded");
            let (expected, _) = load(leaves.clone(), &plain, &names, &options).expect("loaded");
            assert_eq!(report.loaded.len(), leaves.len(), "{report}");
            for (path, leaf) in &found {
                assert_eq!(leaf.dtype(), dtype);
                assert_close(&data(leaf), &data(&expected[path]), &format!("{names:?}"));
            }
        }
    }
}

fn reshape<const N: usize>(to: [isize; N]) -> Step {
    Step::Reshape { from: vec![-1], to: to.into() }
}

/// Loads the bytes written by gguf-py, through rules that count bytes.
fn raw_by_python(names: &NameMap, leaves: &Bytes) -> Bytes {
    load(leaves.clone(), &open("expected.safetensors"), names, &options()).expect("loaded").0
}

#[test]
fn quantized_tensors_are_taken_as_they_are() {
    let checkpoint = open("types.gguf");
    let rule = |name: &str| NameMap::new().rule(name, "w");
    for (names, by_python, leaves) in [
        (rule("blocks.Q4_K"), rule("raw.blocks.Q4_K"), bytes([("w", [8, 144])])),
        (rule("other.MXFP4"), rule("raw.other.MXFP4"), bytes([("w", [2, 136])])),
        (rope(rule("blocks.Q4_K"), -1, 256), rope(rule("raw.blocks.Q4_K"), -1, 144), bytes([("w", [8, 144])])),
        (rope(rule("blocks.Q4_1"), 2, -1), rope(rule("raw.blocks.Q4_1"), 2, -1), bytes([("w", [8, 40])])),
        (
            NameMap::new().split("blocks.Q5_1", 0, &["a", "b"]),
            NameMap::new().split("raw.blocks.Q5_1", 0, &["a", "b"]),
            bytes([("a", [3, 48]), ("b", [5, 48])]),
        ),
        (
            rope(NameMap::new().split("blocks.Q5_1", 0, &["a", "b"]), -1, 64),
            rope(NameMap::new().split("raw.blocks.Q5_1", 0, &["a", "b"]), -1, 48),
            bytes([("a", [4, 48]), ("b", [4, 48])]),
        ),
        (
            NameMap::new().merge(&["blocks.Q4_0", "more.Q4_0"], 0, "w"),
            NameMap::new().merge(&["raw.blocks.Q4_0", "raw.more.Q4_0"], 0, "w"),
            bytes([("w", [12, 36])]),
        ),
        (
            rule("cube.Q5_1").then(reshape([6, 32])),
            rule("raw.cube.Q5_1").then(reshape([6, 24])),
            bytes([("w", [6, 24])]),
        ),
    ] {
        let (found, report) = load(leaves.clone(), &checkpoint, &names, &options().dtype(DType::BF16)).expect("loaded");
        assert_eq!(report.loaded.len(), leaves.len(), "{report}");
        let expected = raw_by_python(&by_python, &leaves);
        for (path, leaf) in &found {
            assert_eq!(leaf.dtype(), DType::U8);
            assert_eq!(data(leaf), data(&expected[path]), "{names:?}");
        }
    }
}

#[test]
fn a_model_may_hold_one_tensor_as_floats_and_as_it_is() {
    let names = NameMap::new().split("blocks.Q8_0", 0, &["0.a", "1.b"]);
    let skeleton = (floats([("a", [3, 64])]), bytes([("b", [5, 68])]));
    let (model, _) = load(skeleton, &open("types.gguf"), &names, &options()).expect("loaded");
    let python = open("expected.safetensors");
    let floats: Vec<f32> = python.tensor("blocks.Q8_0").expect("there").iter::<f32>().take(3 * 64).collect();
    assert_close(&data(&model.0["a"]), &TensorData::new(floats, [3, 64]), "a");
    let raw: Vec<u8> = python.tensor("raw.blocks.Q8_0").expect("there").iter::<u8>().skip(3 * 68).collect();
    assert_eq!(data(&model.1["b"]), TensorData::new(raw, [5, 68]));
}

/// Returns the report of a load that must fail.
fn report_of<T: grove_tree::Tree<Flex>>(skeleton: T, names: &NameMap) -> Report {
    let names = names.clone().ignore("**");
    let strict = options().strict(true);
    match load(skeleton, &open("types.gguf"), &names, &strict) {
        Err(WeightsError::Incompatible(report)) => *report,
        Err(error) => panic!("{error}"),
        Ok((_, report)) => panic!("{report}"),
    }
}

#[test]
fn rows_are_not_split_or_transposed() {
    let rule = || NameMap::new().rule("blocks.Q8_0", "w");
    // Two blocks of 34 bytes per row.
    let report = report_of(bytes([("w", [8, 64])]), &rule());
    assert_eq!(report.mismatched[0].found, [("blocks.Q8_0".to_string(), vec![8, 68])], "counted in bytes, as the leaf");
    for (names, leaves) in [
        (rule().then(Step::Transpose), bytes([("w", [68, 8])])),
        (rule().then(reshape([16, 32])), bytes([("w", [16, 34])])),
        (NameMap::new().split("blocks.Q8_0", 1, &["a", "b"]), bytes([("a", [8, 34]), ("b", [8, 34])])),
        (NameMap::new().merge(&["blocks.Q4_0", "blocks.Q4_0"], 1, "w"), bytes([("w", [8, 72])])),
        (NameMap::new().merge(&["blocks.Q4_K", "blocks.Q6_K"], 0, "w"), bytes([("w", [16, 144])])),
    ] {
        assert_eq!(report_of(leaves.clone(), &names).mismatched.len(), leaves.len(), "{names:?}");
    }
}

#[test]
fn what_is_not_decoded_is_refused_before_anything_is_read() {
    let names = NameMap::new().rule("other.IQ4_NL", "w").rule("blocks.Q8_0", "a");
    let skeleton = floats([("a", [8, 64]), ("w", [2, 256])]);
    let error = load(skeleton, &open("types.gguf"), &names, &options()).expect_err("IQ4_NL").to_string();
    assert!(error.contains("types.gguf cannot be read: its tensor `other.IQ4_NL` is quantized as IQ4_NL"), "{error}");
    // Floats do not convert to integers, quantized or not.
    let skeleton: (Array<Flex, 2, Int>,) = (Array::absent([8, 64]),);
    let names = NameMap::new().rule("blocks.Q8_0", "0");
    let error = load(skeleton, &open("types.gguf"), &names, &options()).expect_err("not integers");
    assert!(matches!(&error, WeightsError::Conversion { from, .. } if from == "Q8_0"), "{error}");
}

#[test]
fn leaves_may_keep_the_stored_type() {
    let checkpoint = open("types.gguf");
    let names = NameMap::new().rule("float.{type}", "{type}").rule("blocks.Q4_0", "quantized").merge(
        &["float.float32", "float.float16"],
        0,
        "mixed",
    );
    let shape = [3, 5];
    let skeleton = || {
        floats([
            ("float64", shape),
            ("float32", shape),
            ("float16", shape),
            ("bfloat16", shape),
            ("quantized", [8, 64]),
            ("mixed", [6, 5]),
        ])
    };
    let types = |options: &LoadOptions<Flex>| -> Vec<DType> {
        let (model, report) = load(skeleton(), &checkpoint, &names, options).expect("loaded");
        assert_eq!(report.loaded.len(), 6, "{report}");
        ["float64", "float32", "float16", "bfloat16", "quantized", "mixed"].map(|path| model[path].dtype()).into()
    };
    use DType::{BF16, F16, F32};
    assert_eq!(types(&options().stored(|_| true)), [F32, F32, F16, BF16, F32, F32]);
    assert_eq!(types(&options().stored(|_| true).dtype(F16)), [F32, F32, F16, BF16, F16, F32]);
    assert_eq!(types(&options().stored(|path| path.starts_with("b")).dtype(F16)), [F16, F16, F16, BF16, F16, F16]);
    // Integers have no stored float type.
    let (model, _) = load(
        floats([("int8", [2, 3])]),
        &checkpoint,
        &NameMap::new().rule("whole.{type}", "{type}"),
        &options().stored(|_| true).dtype(BF16),
    )
    .expect("loaded");
    assert_eq!(model["int8"].dtype(), BF16);
}

#[test]
fn published_names_are_found_without_shapes() {
    let checkpoint = open("types.gguf");
    let names = NameMap::new()
        .prefix("blocks.")
        .prefix("model.")
        .merge(&["nowhere", "Q4_0"], 0, "first")
        .merge(&["Q4_K", "Q6_K"], 0, "first")
        .rule("model.Q{n}", "layers.{n}")
        .rule("gone", "head")
        .alias("vector", "head")
        .rule("never", "nothing");
    for (path, name, kind) in [
        ("first", "blocks.Q4_K", Some(BlockType::Q4_K)),
        ("layers.5_1", "blocks.Q5_1", Some(BlockType::Q5_1)),
        ("head", "vector", None),
        ("axes", "axes", None),
    ] {
        let (found, info) = names.published(&checkpoint, path).expect(path);
        assert_eq!((found, info.quantized), (name, kind), "{path}");
        assert_eq!(Some(info), checkpoint.info(name).ok());
    }
    for path in ["nothing", "layers.9", "elsewhere"] {
        assert!(names.published(&checkpoint, path).is_none(), "{path}");
    }
}

/// Returns a copy of the split model that a test may modify.
fn split_copy() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    for item in std::fs::read_dir(fixture("split")).expect("listed") {
        let item = item.expect("an entry");
        std::fs::copy(item.path(), directory.path().join(item.file_name())).expect("copied");
    }
    directory
}

const PARTS: [&str; 3] = ["model-00001-of-00003.gguf", "model-00002-of-00003.gguf", "model-00003-of-00003.gguf"];

#[test]
fn split_models_are_read_together() {
    let whole = open("aligned.gguf");
    for name in ["split", "split/model-00001-of-00003.gguf"] {
        let parts = open(name);
        assert!(parts.to_string().contains("3 files in"), "{parts}");
        assert_eq!(parts.names().collect::<Vec<_>>(), whole.names().collect::<Vec<_>>());
        for tensor in whole.names() {
            assert_eq!(parts.tensor(tensor).expect("read"), whole.tensor(tensor).expect("read"), "{tensor}");
        }
        assert_eq!(parts.gguf().and_then(|gguf| gguf.string("general.name")), Some("grün, ein Modell"));
    }
}

#[test]
fn split_models_that_are_not_complete_are_refused() {
    let error_of = |break_it: &dyn Fn(&Path), open: &str| -> String {
        let directory = split_copy();
        break_it(directory.path());
        let opened: Result<TensorFiles, WeightsError> = TensorFiles::open(directory.path().join(open));
        opened.expect_err("broken").to_string()
    };
    let rename = |directory: &Path, from: &str, to: &str| {
        std::fs::rename(directory.join(from), directory.join(to)).expect("renamed");
    };
    for (error, words) in [
        (error_of(&|_| {}, PARTS[1]), ["part 2 of 3", "give the first, model-00001-of-00003.gguf"]),
        (error_of(&|directory| rename(directory, PARTS[2], "other.gguf"), PARTS[0]), [PARTS[0], "part 3 of 3"]),
        (
            error_of(&|directory| rename(directory, PARTS[0], "model.gguf"), "model.gguf"),
            ["…-00001-of-00003.gguf", "llama-gguf-split"],
        ),
        (error_of(&|directory| rename(directory, PARTS[2], PARTS[1]), PARTS[0]), [PARTS[1], "header differs"]),
        (
            error_of(&|directory| drop(std::fs::copy(fixture("types.gguf"), directory.join(PARTS[1]))), PARTS[0]),
            [PARTS[1], "has it too"],
        ),
    ] {
        for word in words {
            assert!(error.contains(word), "{error}");
        }
    }
}
