//! Training classifiers of pictures.

// Each example uses a part of this.
#![allow(dead_code, unused_imports)]

mod augment;
mod dataset;
mod loader;
mod score;
mod train;

pub use augment::AugmentArgs;
pub use dataset::{Dataset, HeldOutArgs, Split};
pub use loader::{Batch, Pictures, output_size};
pub use score::{evaluate, score};
pub use train::{Job, train};
