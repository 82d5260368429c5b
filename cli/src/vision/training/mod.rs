//! Training classifiers of images.

mod augment;
mod loader;
mod options;
mod score;
mod split;
mod train;

pub use augment::AugmentArgs;
pub use loader::{Batch, Images, output_size};
pub use options::ImageArgs;
pub use score::{Scored, evaluate, score};
pub use split::Split;
pub use train::{VisionJob, train};
