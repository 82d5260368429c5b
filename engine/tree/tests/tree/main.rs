//! The tests of this crate in one program, which is linked once.

mod key_jax;
mod tree;
