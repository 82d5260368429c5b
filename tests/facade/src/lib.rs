//! User code in a crate that depends only on `grove`: six small programs, each at most a fifth longer than the same
//! program in Equinox.

pub mod ensemble;
pub mod gated_mlp;
pub mod own_decoder;
pub mod own_names;
pub mod own_transformation;
pub mod partial_finetune;
mod trainable;
