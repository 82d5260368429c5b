//! Weights: loading models from files or the hub, and saving them.
//!
//! A [`TensorFiles`] is a set of named tensors on disk: safetensors or PyTorch files (single or sharded, including
//! those of PyTorch before version 1.6), numpy's `.npz` and `.npy`, or llama.cpp's GGUF. Opening one reads only the
//! table of contents. A quantized tensor of a GGUF file is read as floats, or without decoding into a leaf of bytes. A
//! [`NameMap`] maps published names to the paths of a model, with the transposes, splits and merges between the two
//! layouts. [`load`] fills a skeleton and reports the result; [`save_model`] writes the published names back.
//! [`Source`] is the origin of a model: a directory, a file or a hub id; [`fetch`] downloads a hub id. [`AdapterFiles`]
//! is an adapter of peft; [`ModuleEntry`] describes the folders of sentence encoders.
//!
//! ```
//! use burn_flex::Flex;
//! use grove_tree::{Array, Tree};
//! use grove_weights::{TensorFiles, LoadOptions, NameMap, SaveOptions, Step, load, save_model};
//!
//! #[derive(Tree, Clone, Debug)]
//! struct Linear<B: grove_backend::Backend> {
//!     weight: Array<B, 2>, // [in, out]
//! }
//!
//! // Published as PyTorch has it: [out, in].
//! let names = NameMap::new().rule("fc.weight", "weight").then(Step::Transpose);
//! let device = Default::default();
//! let model = Linear::<Flex> { weight: Array::new(burn::tensor::Tensor::ones([3, 2], &device)) };
//! # let directory = tempfile::tempdir()?;
//! # let path = directory.path().join("model.safetensors");
//! save_model(&model, &names, &path, &SaveOptions::default())?;
//!
//! let checkpoint = TensorFiles::open(&path)?;
//! assert_eq!(checkpoint.info("fc.weight")?.shape, [2, 3]);
//! let skeleton = Linear::<Flex> { weight: Array::absent([3, 2]) };
//! let (loaded, report) = load(skeleton, &checkpoint, &names, &LoadOptions::new(&device))?;
//! assert_eq!(report.to_string(), "1 of 1 leaves loaded");
//! # assert!(grove_tree::eq(&loaded, &model));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The features `hub`, `pytorch` and `gguf`, all on by default, add the download of models, the reading of PyTorch
//! files, and the decoding of quantized GGUF tensors. An operation without its feature returns an error that names the
//! feature.
//!
//! Files are not trusted. Every problem with a file is a [`WeightsError`] that names the file and the tensor.
#![warn(missing_docs)]

mod adapter;
mod adapter_files;
mod checkpoint;
mod contents;
mod convert;
mod entry;
mod error;
mod foreign;
mod format;
mod gguf;
mod hub;
mod hub_names;
mod load;
mod locate;
mod mapped;
mod modules;
mod names;
mod names_of_files;
mod numpy;
mod outputs;
mod packed;
mod pattern;
mod placement;
mod plan;
#[cfg(feature = "pytorch")]
mod pytorch;
#[cfg(not(feature = "pytorch"))]
#[path = "without_pytorch.rs"]
mod pytorch;
mod quantized;
mod report;
mod safetensors_file;
mod save;
mod shards;
mod source;
mod step;
mod unique;
mod view;
mod zip;

pub use adapter::{base_model, has_tokenizer, is_adapter, tokenizer_place};
pub use adapter_files::{AdapterFiles, LowRankUpdate, save_adapter};
pub use checkpoint::TensorFiles;
pub use entry::{StoredDtype, TensorInfo};
pub use error::WeightsError;
pub use gguf::{BlockType, GgufArray, GgufMetadata, GgufValue};
pub use hub::{Certificates, FilePatterns, HubOptions, fetch};
pub use load::{LoadOptions, load, load_tree};
pub use modules::{ModuleEntry, copy_modules, transformer_directory};
pub use names::NameMap;
pub use names_of_files::{
    ADAPTER_FILE, MODULE_FILES, SENTENCE_FILES, SETTINGS_FILES, VOCABULARY_FILES, is_gguf, tokenizer_files,
};
pub use numpy::write_npy;
pub use report::{Ignored, Loaded, Mismatched, Missing, Report, Unexpected};
pub use save::{SaveOptions, convert_tensors, parse_size, save_model, save_tree};
pub use source::{Source, resolve_model};
pub use step::Step;
