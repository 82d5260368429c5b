//! All tests of this crate in one binary, which is linked once.

#[path = "../common/mod.rs"]
mod common;

mod augment;
mod decode;
mod preprocess;
mod resize;
