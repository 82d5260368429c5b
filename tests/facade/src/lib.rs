//! Code as a user writes it in a crate of their own, which depends on `grove` alone: six small programs, each no longer
//! than a fifth more than the same program in Equinox.

pub mod ensemble;
pub mod gated_mlp;
pub mod own_decoder;
pub mod own_names;
pub mod own_transformation;
pub mod partial_finetune;
mod trainable;
