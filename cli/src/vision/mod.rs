//! Code shared by the examples for images.

pub mod attention;
mod bars;
mod classify;
mod pictures;
mod published;
pub mod training;

pub use classify::{ClassifyArgs, SizeArgs, classify};
pub use pictures::{Picture, read_pictures};
pub use published::{Published, preprocessor_of};
