//! Training classifiers of images.

mod augment;
mod loader;
mod score;
mod split;
mod train;

pub use augment::AugmentArgs;
pub use loader::{Batch, Images, output_size};
pub use score::{evaluate, score};
pub use split::{HeldOutArgs, Split};
pub use train::{Job, train};
