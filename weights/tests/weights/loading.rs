//! Loading and saving of models: names, shapes, types, rearrangements, reports.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, Int, TensorData};
use burn_flex::Flex;
use grove_backend::Backend;
use grove_tree::{Array, Tree};
use grove_weights::{
    LoadOptions, NameMap, SaveOptions, Step, TensorFiles, WeightsError, load, load_tree, save_model, save_tree,
};
use serde_json::Value;

#[derive(Tree, Clone, Debug)]
struct Linear<B: Backend> {
    weight: Array<B, 2>,
    bias: Array<B, 1>,
}

#[derive(Tree, Clone, Debug)]
struct Model<B: Backend> {
    layers: Vec<Linear<B>>,
}

fn linear(outputs: usize, inputs: usize) -> Linear<Flex> {
    Linear { weight: Array::absent([outputs, inputs]), bias: Array::absent([outputs]) }
}

/// Returns the skeleton of the fixture `sharded`.
fn skeleton() -> Model<Flex> {
    Model { layers: vec![linear(16, 8), linear(16, 8), linear(16, 8)] }
}

fn options() -> LoadOptions<Flex> {
    LoadOptions::new(&Default::default())
}

fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

/// Returns the values that PyTorch reads from a fixture.
fn expected(file: &str, tensor: &str) -> Vec<f32> {
    let text = std::fs::read_to_string(fixture("expected.json")).expect("expected.json");
    let all: Value = serde_json::from_str(&text).expect("JSON");
    let values = all[file][tensor]["values"].as_array().expect("values").iter();
    values.map(|value| value.as_str().and_then(|value| value.parse().ok()).expect("a number")).collect()
}

fn floats<const D: usize>(array: &Array<Flex, D>) -> Vec<f32> {
    array.val().into_data().convert::<f32>().to_vec().expect("floats")
}

/// Writes a safetensors file with the `safetensors` crate.
fn write(path: &Path, tensors: &[(&str, &[usize], &[f32])]) {
    let bytes: Vec<Vec<u8>> =
        tensors.iter().map(|(_, _, values)| values.iter().flat_map(|v| v.to_le_bytes()).collect()).collect();
    let views = tensors.iter().zip(&bytes).map(|((name, shape, _), bytes)| {
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, shape.to_vec(), bytes);
        (*name, view.expect("a view"))
    });
    safetensors::serialize_to_file(views, None, path).expect("written");
}

fn checkpoint(directory: &tempfile::TempDir, tensors: &[(&str, &[usize], &[f32])]) -> TensorFiles {
    let path = directory.path().join("model.safetensors");
    write(&path, tensors);
    TensorFiles::open(path).expect("opened")
}

fn counting(count: usize) -> Vec<f32> {
    (0..count).map(|v| v as f32).collect()
}

#[test]
fn loads_shards_of_both_formats() {
    for file in ["sharded", "sharded_bin"] {
        let checkpoint = TensorFiles::open(fixture(file)).expect("opened");
        let (model, report) = load(skeleton(), &checkpoint, &NameMap::new(), &options()).expect("loaded");
        assert!(report.is_complete() && report.loaded.len() == 6 && report.prefix.is_empty(), "{report}");
        for (i, layer) in model.layers.iter().enumerate() {
            assert_eq!(floats(&layer.weight), expected(file, &format!("layers.{i}.weight")));
            assert_eq!(floats(&layer.bias), expected(file, &format!("layers.{i}.bias")));
        }
    }
}

/// An index may name tensors of parts that a checkpoint lacks. If the model has such a part, the error says so.
#[test]
fn names_of_an_index_that_no_file_has() {
    let directory = tempfile::tempdir().expect("a directory");
    for file in std::fs::read_dir(fixture("sharded")).expect("listed") {
        let file = file.expect("an entry");
        std::fs::copy(file.path(), directory.path().join(file.file_name())).expect("copied");
    }
    let index = directory.path().join("model.safetensors.index.json");
    let text = std::fs::read_to_string(&index).expect("read");
    let more = text.replacen(
        "\"layers.1.bias\"",
        "\"mtp.fc.weight\": \"model-00002-of-00003.safetensors\", \"layers.1.bias\"",
        1,
    );
    assert_ne!(more, text);
    std::fs::write(&index, &more).expect("written");
    let checkpoint = TensorFiles::open(directory.path()).expect("opened");
    let (_, report) = load(skeleton(), &checkpoint, &NameMap::new(), &options()).expect("loaded");
    assert!(report.is_complete());

    let names = NameMap::new().rule("mtp.fc.weight", "layers.1.bias").ignore("layers.1.bias");
    let error = load(skeleton(), &checkpoint, &names, &options()).expect_err("missing").to_string();
    assert!(error.contains("the index names model-00002-of-00003.safetensors"), "{error}");
}

#[test]
fn the_container_does_not_matter() {
    // The same state in PyTorch's containers since and before version 1.6, alone and beside an optimizer's state.
    for file in ["state_dict.bin", "nested.pt", "old_format.pt", "old_nested.pt", "wrapped.pt"] {
        let checkpoint = TensorFiles::open(fixture(file)).expect("opened");
        let (model, report) = load(linear(2, 3), &checkpoint, &NameMap::new(), &options()).expect(file);
        assert!(report.is_complete() && report.loaded.len() == 2, "{file}: {report}");
        assert_eq!(floats(&model.weight), expected(file, "weight"), "{file}");
        assert_eq!(floats(&model.bias), expected(file, "bias"), "{file}");
    }
}

/// Averaged weights have precedence over those of the last step, as in timm; their counter is not a weight.
#[test]
fn averages_come_before_the_last_step() {
    for file in ["averaged.pt", "averaged_module.pt"] {
        let checkpoint = TensorFiles::open(fixture(file)).expect("opened");
        let (model, report) = load(linear(2, 3), &checkpoint, &NameMap::new(), &options()).expect(file);
        assert!(report.is_complete() && report.loaded.len() == 2, "{file}: {report}");
        assert_eq!(floats(&model.weight), expected("nested.pt", "weight"), "{file}");
        assert_eq!(floats(&model.bias), expected("nested.pt", "bias"), "{file}");
    }
}

#[test]
fn converts_while_placing() {
    let checkpoint = TensorFiles::open(fixture("dtypes.safetensors")).expect("opened");
    let names = |from: &str| NameMap::new().rule(from, "0").ignore("**");
    for from in ["float.float64", "float.float16", "float.bfloat16", "float.float32", "whole.int16", "truth"] {
        let rank_one = from == "truth";
        let values = if rank_one {
            let skeleton: (Array<Flex, 1>,) = (Array::absent([3]),);
            floats(&load(skeleton, &checkpoint, &names(from), &options()).expect(from).0.0)
        } else {
            let shape = if from.starts_with("float") { [3, 5] } else { [2, 3] };
            let skeleton: (Array<Flex, 2>,) = (Array::absent(shape),);
            floats(&load(skeleton, &checkpoint, &names(from), &options()).expect(from).0.0)
        };
        assert_eq!(values, expected("dtypes.safetensors", from), "{from}");
    }
    // A requested type applies to floating-point leaves only.
    let skeleton: (Array<Flex, 2>, Array<Flex, 2, Int>) = (Array::absent([3, 5]), Array::absent([2, 3]));
    let names = NameMap::new().rule("float.float32", "0").rule("whole.uint8", "1").ignore("**");
    let (both, _) = load(skeleton, &checkpoint, &names, &options().dtype(DType::F16)).expect("loaded");
    assert_eq!(both.0.val().dtype(), DType::F16);
    assert_eq!(both.1.val().into_data(), TensorData::new(vec![0i64, 1, 2, 100, 126, 127], [2, 3]));
    let f16: Vec<f32> = expected("dtypes.safetensors", "float.float16");
    assert_eq!(floats(&both.0), f16, "rounded as PyTorch rounds");
}

#[test]
fn floats_do_not_become_whole_numbers() {
    let checkpoint = TensorFiles::open(fixture("dtypes.safetensors")).expect("opened");
    let skeleton: (Array<Flex, 2, Int>,) = (Array::absent([3, 5]),);
    let names = NameMap::new().rule("float.float32", "0").ignore("**");
    let error = load(skeleton, &checkpoint, &names, &options()).expect_err("a fraction would be lost");
    assert!(matches!(&error, WeightsError::Conversion { tensor, .. } if tensor == "float.float32"), "{error}");
}

#[test]
fn reports_everything_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let checkpoint = checkpoint(
        &directory,
        &[
            ("transformer.layers.0.weight", &[2, 3], &counting(6)),
            ("transformer.layers.0.bias", &[3], &counting(3)),
            ("transformer.layers.1.wieght", &[2, 3], &counting(6)),
            ("transformer.layers.1.bias", &[2], &counting(2)),
            ("transformer.mask", &[1], &[0.0]),
        ],
    );
    let skeleton = || Model { layers: vec![linear(2, 3), linear(2, 3)] };
    let names = NameMap::new().prefix("transformer.").ignore_each(&[("mask", "masks are computed")]);
    let error = load(skeleton(), &checkpoint, &names, &options()).expect_err("does not fit");
    let report = error.report().expect("a report");
    assert_eq!(report.prefix, "transformer.");
    assert_eq!(report.loaded.len(), 2);
    assert_eq!(report.missing[0].path, "layers.1.weight");
    assert_eq!(report.missing[0].suggestions, ["transformer.layers.1.wieght"]);
    assert_eq!(report.unexpected[0].name, "transformer.layers.1.wieght");
    assert_eq!((&report.mismatched[0].path[..], &report.mismatched[0].expected[..]), ("layers.0.bias", &[2][..]));
    assert_eq!(report.mismatched[0].found, [("transformer.layers.0.bias".to_string(), vec![3])]);
    let ignored: Vec<_> = report.ignored.iter().map(|ignored| (&*ignored.name, ignored.reason)).collect();
    assert_eq!(ignored, [("transformer.mask", "masks are computed")]);

    let (model, lenient) = load(skeleton(), &checkpoint, &names, &options().strict(false)).expect("loaded");
    assert_eq!(&lenient, report);
    assert_eq!(floats(&model.layers[0].weight), counting(6));
    assert!(model.layers[0].bias.get().is_none() && model.layers[1].weight.get().is_none(), "left as they were");
}

#[test]
fn aliases_replace_missing_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = NameMap::new().rule("wte.weight", "0").alias("lm_head.weight", "0");
    let skeleton = || -> (Array<Flex, 2>,) { (Array::absent([2, 2]),) };
    for (tensors, ignored) in [
        (&[("wte.weight", [2usize, 2], 1.0f32)][..], 0),
        (&[("lm_head.weight", [2, 2], 1.0)], 0),
        (&[("lm_head.weight", [2, 2], 7.0), ("wte.weight", [2, 2], 1.0)], 1),
    ] {
        let values: Vec<_> = tensors.iter().map(|(_, _, value)| vec![*value; 4]).collect();
        let tensors: Vec<_> =
            tensors.iter().zip(&values).map(|((name, shape, _), v)| (*name, &shape[..], &v[..])).collect();
        let checkpoint = checkpoint(&directory, &tensors);
        let (model, report) = load(skeleton(), &checkpoint, &names, &options()).expect("loaded");
        assert_eq!((floats(&model.0), report.ignored.len()), (vec![1.0; 4], ignored));
    }
}

/// Matrices by name: query, key and value of unequal sizes (grouped queries), or one fused matrix.
type Attention = BTreeMap<String, Array<Flex, 2>>;

/// A name and the same name with an optional prefix are one tensor: two values are an error, not a choice.
#[test]
fn a_tensor_under_two_prefixes_has_one_value() {
    let directory = tempfile::tempdir().expect("a directory");
    let names = NameMap::new().prefix("model.");
    let loaded = |other: f32| {
        let tensors: [(&str, &[usize], &[f32]); 3] =
            [("weight", &[1, 1], &[1.0]), ("bias", &[1], &[2.0]), ("model.bias", &[1], &[other])];
        load(linear(1, 1), &checkpoint(&directory, &tensors), &names, &options())
    };
    let (linear, report) = loaded(2.0).expect("equal values");
    assert_eq!((floats(&linear.bias), report.ignored.len()), (vec![2.0], 1));
    let message = loaded(3.0).expect_err("different values").to_string();
    assert!(message.contains("`bias`") && message.contains("`model.bias`"), "{message}");
}

fn attention<const N: usize>(rows: [(&str, [usize; 2]); N]) -> Attention {
    rows.into_iter().map(|(name, shape)| (name.to_string(), Array::absent(shape))).collect()
}

#[test]
fn splits_and_merges_along_every_axis_and_back() {
    let directory = tempfile::tempdir().expect("a directory");
    let all = counting(24);
    let out = directory.path().join("out.safetensors");
    let saved = |model: &Attention, names: &NameMap| {
        save_model(model, names, &out, &SaveOptions::default()).expect("saved");
        TensorFiles::open(&out).expect("opened")
    };

    // [8, 3] rows: four of q, two of k, two of v; the model's layout is transposed.
    let fused = checkpoint(&directory, &[("qkv.weight", &[8, 3], &all)]);
    let names = NameMap::new().split("qkv.weight", 0, &["q", "k", "v"]).then(Step::Transpose);
    let skeleton = attention([("q", [3, 4]), ("k", [3, 2]), ("v", [3, 2])]);
    let (model, _) = load(skeleton, &fused, &names, &options()).expect("loaded");
    assert_eq!(floats(&model["q"]), [0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11].map(|v| v as f32));
    assert_eq!(floats(&model["k"]), [12, 15, 13, 16, 14, 17].map(|v| v as f32));
    let back = saved(&model, &names).tensor("qkv.weight").expect("read");
    assert_eq!(back, TensorData::new(all.clone(), [8, 3]));

    // The same values as [3, 8] columns, the layout of GPT-2's Conv1D.
    let fused = checkpoint(&directory, &[("qkv.weight", &[3, 8], &all)]);
    let names = NameMap::new().split("qkv.weight", 1, &["q", "k", "v"]);
    let skeleton = attention([("q", [3, 4]), ("k", [3, 2]), ("v", [3, 2])]);
    let (model, _) = load(skeleton, &fused, &names, &options()).expect("loaded");
    assert_eq!(floats(&model["v"]), [6, 7, 14, 15, 22, 23].map(|v| v as f32));
    assert_eq!(saved(&model, &names).tensor("qkv.weight").expect("read"), TensorData::new(all.clone(), [3, 8]));

    // Three into one, transposed: along the second axis of the result.
    let parts = [&all[..6], &all[6..12], &all[12..18]];
    let names = NameMap::new().merge(&["q.weight", "k.weight", "v.weight"], 1, "qkv").then(Step::Transpose);
    let separate = checkpoint(
        &directory,
        &[("q.weight", &[2, 3], parts[0]), ("k.weight", &[2, 3], parts[1]), ("v.weight", &[2, 3], parts[2])],
    );
    let skeleton: Attention = [("qkv".to_string(), Array::absent([3, 6]))].into();
    let (model, _) = load(skeleton, &separate, &names, &options()).expect("loaded");
    assert_eq!(floats(&model["qkv"])[..6], [0.0, 3.0, 6.0, 9.0, 12.0, 15.0]);
    let back = saved(&model, &names);
    for (name, part) in ["q.weight", "k.weight", "v.weight"].iter().zip(parts) {
        assert_eq!(back.tensor(name).expect("read"), TensorData::new(part.to_vec(), [2, 3]), "{name}");
    }
}

#[test]
fn arrays_of_numpy_are_placed() {
    for file in ["stored.npz", "deflated.npz"] {
        let checkpoint = TensorFiles::open(fixture("numpy").join(file)).expect("opened");
        let stored = |name: &str| -> Vec<f32> {
            checkpoint.tensor(name).expect("read").convert::<f32>().into_vec().expect("floats")
        };
        // Names with slashes, an `[in, out]` kernel, and column-major arrays.
        let names = NameMap::new()
            .rule("params/encoder/layer_{i}/kernel", "{i}")
            .then(Step::Transpose)
            .split("fortran/matrix", 0, &["q", "k"])
            .rule("big/fortran", "big")
            .then(Step::Transpose);
        let skeleton = attention([("0", [3, 4]), ("q", [3, 4]), ("k", [4, 4]), ("big", [4, 3])]);
        let (model, report) = load(skeleton, &checkpoint, &names, &options().strict(false)).expect("loaded");
        assert_eq!(report.loaded.len(), 4, "{report}");
        let kernel = stored("params/encoder/layer_0/kernel");
        let transposed: Vec<f32> = (0..12).map(|at| kernel[at % 4 * 3 + at / 4]).collect();
        assert_eq!(floats(&model["0"]), transposed);
        let matrix = stored("fortran/matrix");
        assert_eq!((floats(&model["q"]), floats(&model["k"])), (matrix[..12].to_vec(), matrix[12..].to_vec()));
        let big = stored("big/fortran");
        let transposed: Vec<f32> = (0..12).map(|at| big[at % 3 * 4 + at / 3]).collect();
        assert_eq!(floats(&model["big"]), transposed);
    }
}

#[test]
fn parts_that_do_not_add_up_are_reported() {
    let directory = tempfile::tempdir().expect("a directory");
    let fused = checkpoint(&directory, &[("qkv.weight", &[8, 3], &counting(24))]);
    for axis in [0, 1, 5] {
        let names = NameMap::new().split("qkv.weight", axis, &["q", "k", "v"]);
        let skeleton = attention([("q", [4, 3]), ("k", [2, 3]), ("v", [3, 3])]);
        let error = load(skeleton, &fused, &names, &options()).expect_err("nine rows of eight");
        assert_eq!(error.report().map(|report| report.mismatched.len()), Some(3), "{error}");
    }
}

#[test]
fn trees_come_back_as_they_were_saved() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("deeper/state.safetensors");
    let (model, _) =
        load(skeleton(), &TensorFiles::open(fixture("sharded")).expect("opened"), &NameMap::new(), &options())
            .expect("loaded");
    let step = Array::<Flex, 1, Int>::new(burn::tensor::Tensor::from_data([41i64], &Default::default()));
    save_tree(&(model.clone(), step), &path).expect("saved");
    let empty: (Model<Flex>, Array<Flex, 1, Int>) = (skeleton(), Array::absent([1]));
    let (again, step) = load_tree(empty, &path, &Default::default()).expect("loaded");
    assert!(grove_tree::eq(&again, &model));
    assert_eq!(step.val().into_data(), TensorData::new(vec![41i64], [1]));

    // The file is valid for the reference implementation of safetensors, with paths as names.
    let bytes = std::fs::read(&path).expect("read");
    let file = safetensors::SafeTensors::deserialize(&bytes).expect("valid");
    assert_eq!(file.tensor("0.layers.2.bias").expect("there").shape(), [16]);

    let failed = save_tree(&(skeleton(), 3usize), &path).expect_err("a skeleton has nothing to save");
    assert!(matches!(&failed, WeightsError::AbsentLeaf { path } if path == "0.layers.0.weight"), "{failed}");
    assert_eq!(std::fs::read(&path).expect("still there"), bytes, "a failed save leaves the old file");
}

#[test]
fn models_are_saved_in_shards_that_replace_older_ones() {
    let directory = tempfile::tempdir().expect("a directory");
    let checkpoint = TensorFiles::open(fixture("sharded")).expect("opened");
    let (model, _) = load(skeleton(), &checkpoint, &NameMap::new(), &options()).expect("loaded");
    let names = NameMap::new().rule("transformer.h.{i}.{p}", "layers.{i}.{p}").prefix("transformer.");
    let files = || -> Vec<String> {
        let listing = std::fs::read_dir(directory.path()).expect("listed");
        let mut files: Vec<_> = listing.filter_map(|item| item.ok()?.file_name().into_string().ok()).collect();
        files.sort();
        files
    };
    let index = "model.safetensors.index.json";
    for (limit, expected) in [
        (None, vec!["model.safetensors"]),
        (Some(1200), vec!["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", index]),
        (Some(1), vec![]),
        (None, vec!["model.safetensors"]),
    ] {
        std::fs::write(directory.path().join("model-notes.safetensors.txt"), "kept").expect("written");
        save_model(&model, &names, directory.path(), &SaveOptions { max_shard_bytes: limit, ..Default::default() })
            .expect("saved");
        let found: Vec<_> = files().into_iter().filter(|file| !file.ends_with(".txt")).collect();
        match limit {
            Some(1) => assert_eq!(found.len(), 7, "a file for each tensor, and the index"),
            _ => assert_eq!(found, expected),
        }
        let saved = TensorFiles::open(directory.path()).expect("opened");
        assert!(saved.contains("transformer.h.2.bias") && saved.metadata()["format"] == "pt");
        let (again, report) = load(skeleton(), &saved, &names, &options()).expect("loaded");
        assert!(grove_tree::eq(&again, &model));
        assert_eq!(report.prefix, "transformer.");
    }
    assert!(files().contains(&"model-notes.safetensors.txt".to_string()));
}

#[test]
fn two_leaves_of_one_published_name_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (model, _) =
        load(skeleton(), &TensorFiles::open(fixture("sharded")).expect("opened"), &NameMap::new(), &options())
            .expect("loaded");
    let names = NameMap::new().rule("same", "layers.{i}.bias");
    let error = save_model(&model, &names, directory.path(), &SaveOptions::default()).expect_err("three of one name");
    assert!(matches!(error, WeightsError::CannotSave { .. }), "{error}");
}
