//! Code shared by the examples for images.

pub mod attention;
mod bars;
mod classify;
mod images;
mod published;
pub mod training;

pub use classify::{ClassifyArgs, SizeArgs, classify};
pub use images::{NamedImage, read_images};
pub use published::{Published, not_for_images, preprocessor_beside, preprocessor_of};
