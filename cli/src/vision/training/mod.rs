//! Training classifiers of images.

mod data;
mod options;
mod train;

pub use data::{Split, output_size};
pub use options::{AugmentArgs, ImageArgs};
pub use train::{VisionJob, evaluate, train};
