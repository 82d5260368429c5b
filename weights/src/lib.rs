//! Weights: from files, or the hub, into models, and back.
//!
//! A [`Checkpoint`] is a set of named tensors on disk (safetensors or PyTorch files, single or sharded), of which
//! nothing is read but the table of contents. A [`NameMap`] says which published name belongs to which path of a
//! model, and what is transposed, split or merged on the way. [`load`] fills a skeleton and reports what met;
//! [`save_model`] writes the published names back. [`Source`] is what a person gives as `--model`: a directory, a
//! file or a hub id; [`fetch`] downloads the latter.
//!
//! Files are not trusted. Whatever is wrong with one is a [`WeightsError`] that names file and tensor.
#![warn(missing_docs)]

mod atomic;
mod checkpoint;
mod convert;
mod entry;
mod error;
mod hub;
mod load;
mod locate;
mod mapped;
mod names;
mod outputs;
mod pattern;
mod plan;
mod pytorch;
mod report;
mod safetensors_file;
mod save;
mod source;
mod step;
mod suggest;
mod unique;
mod view;

pub use atomic::write_atomically;
pub use checkpoint::Checkpoint;
pub use entry::{StoredDtype, TensorInfo};
pub use error::{Result, WeightsError};
pub use hub::{HubOptions, Wanted, fetch};
pub use load::{LoadOptions, load, load_tree};
pub use names::NameMap;
pub use report::{Loaded, Mismatched, Missing, Report, Unexpected};
pub use save::{SaveOptions, save_model, save_tree};
pub use source::Source;
pub use step::Step;
