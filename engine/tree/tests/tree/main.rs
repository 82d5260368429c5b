//! All tests of this crate in one binary, which is linked once.

mod key_jax;
mod tree;
