//! Reference outputs of a model: `reference.safetensors` beside the model.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_tree::{AnyArray, Tree, leaves, map};
use grove_weights::{NameMap, SaveOptions, TensorFiles, save_model};
use std::path::{Path, PathBuf};

use crate::common::distance;

/// Models of tools/fixtures/llama.py with logits and greedy continuations.
pub const LLAMAS: [&str; 12] = [
    "mha",
    "gqa",
    "gqa2",
    "mqa",
    "biased",
    "mistral",
    "qwen2",
    "qwen3",
    "rope_linear",
    "rope_dynamic",
    "rope_llama3",
    "rope_yarn",
];

/// A model's folder in the fixtures.
pub struct Reference {
    pub name: String,
    pub directory: PathBuf,
    checkpoint: TensorFiles,
}

impl Reference {
    /// Opens `{kind}/{name}` in the fixtures, from the directory of this crate or of `grove-tasks`.
    pub fn of(kind: &str, name: &str) -> Self {
        let directory = Path::new("../models/tests/fixtures").join(kind).join(name);
        let checkpoint = TensorFiles::open(directory.join("reference.safetensors")).unwrap();
        Self { name: name.into(), directory, checkpoint }
    }

    /// Opens the `*.safetensors` beside a model file.
    #[allow(dead_code)] // Used for single-file formats only.
    pub fn beside(file: &Path) -> Self {
        let checkpoint = TensorFiles::open(file.with_extension("safetensors")).unwrap();
        Self { name: file.display().to_string(), directory: file.parent().unwrap().into(), checkpoint }
    }

    pub fn has(&self, part: &str) -> bool {
        self.checkpoint.contains(part)
    }

    pub fn data(&self, part: &str) -> TensorData {
        self.checkpoint.tensor(part).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    /// Returns token ids.
    #[allow(dead_code)] // Of language models.
    pub fn ids(&self, part: &str) -> Vec<u32> {
        self.data(part).iter::<i64>().map(|id| id as u32).collect()
    }

    #[allow(dead_code)] // Not every model takes floating-point inputs.
    pub fn tensor<B: Backend, const D: usize>(&self, part: &str, device: &B::Device) -> Tensor<B, D> {
        Tensor::from_data(self.data(part), device)
    }

    #[allow(dead_code)] // Not every test has one label per input.
    pub fn labels<B: Backend>(&self, device: &B::Device) -> Tensor<B, 1, Int> {
        Tensor::from_data(self.data("labels"), device)
    }

    /// Returns the names that begin with a prefix, without the prefix.
    pub fn parts(&self, prefix: &str) -> Vec<String> {
        self.checkpoint.names().filter_map(|name| name.strip_prefix(prefix)).map(str::to_owned).collect()
    }

    /// Asserts `max |a - b| <= tolerance * max |b|`.
    pub fn close(&self, part: &str, found: TensorData, tolerance: f64) {
        if let Err(message) = self.compare(part, found, tolerance) {
            panic!("{message}");
        }
    }

    fn compare(&self, part: &str, found: TensorData, tolerance: f64) -> Result<(), String> {
        let expected = self.data(part);
        assert_eq!(found.shape, expected.shape, "{} {part}", self.name);
        let (apart, largest) = distance(&found.iter().collect::<Vec<_>>(), &expected.iter().collect::<Vec<_>>());
        println!("{} {part}: apart by {:.1e} of the largest", self.name, apart / largest);
        match apart <= tolerance * largest {
            true => Ok(()),
            false => Err(format!("{} {part}: apart by {apart}, the largest is {largest}", self.name)),
        }
    }

    /// Compares all leaves of a tree that the reference contains under `prefix`, by their published names.
    pub fn leaves<B: Backend, M: Tree<B>>(&self, prefix: &str, tree: &M, names: &NameMap, tolerance: f64) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("tree.safetensors");
        save_model(tree, names, &file, &SaveOptions::default()).unwrap();
        let found = TensorFiles::open(&file).unwrap();
        let expected = self.parts(prefix);
        assert!(!expected.is_empty(), "{} has nothing under {prefix}", self.name);
        let largest = |data: &TensorData| data.iter::<f64>().map(f64::abs).fold(0.0, f64::max);
        let overall = expected.iter().map(|name| largest(&self.data(&format!("{prefix}{name}")))).fold(0.0, f64::max);
        let mut wrong = Vec::new();
        for name in expected {
            let data = found.tensor(&name).unwrap_or_else(|error| panic!("{}: {error}", self.name));
            // Some exact gradients are 0, such as that of a common shift of all scores; the computed ones are rounding
            // errors.
            if largest(&self.data(&format!("{prefix}{name}"))) < 1e-6 * overall {
                assert!(largest(&data) <= 1e-5 * overall, "{} {prefix}{name}", self.name);
                continue;
            }
            wrong.extend(self.compare(&format!("{prefix}{name}"), data, tolerance).err());
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    /// Compares gradients with respect to all parameters.
    pub fn gradients<B: Backend, M: Tree<B>>(&self, prefix: &str, grads: &M, names: &NameMap) {
        let present = leaves(grads).iter().filter(|(_, leaf)| leaf.is_present()).count();
        assert!(present > 0, "{}", self.name);
        // Buffers have no gradient; absent leaves are saved as zeros.
        let filled = map(grads.clone(), |leaf| match leaf.is_present() {
            true => leaf,
            false => AnyArray::from_data(TensorData::zeros::<f32, _>(leaf.shape().to_vec()), &B::Device::default()),
        });
        self.leaves(prefix, &filled, names, 1e-3);
    }
}
