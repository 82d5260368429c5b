//! The tests of this crate in one program, which is linked once.

#[path = "../common/mod.rs"]
mod common;

mod augment;
mod decode;
mod preprocess;
mod resize;
