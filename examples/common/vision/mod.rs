//! Code shared by the examples for images.

// Each example uses a part of this.
#![allow(dead_code, unused_imports)]

mod bars;
mod classify;
mod pictures;
mod published;

pub use classify::{ClassifyArgs, SizeArgs, classify};
pub use pictures::{Picture, read_pictures};
pub use published::{Published, preprocessor_of};
