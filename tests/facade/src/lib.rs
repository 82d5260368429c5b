//! User code in a crate that depends only on `grove`: small programs, as short as the same programs in Equinox or PyTorch.
//! The folder `python` has the PyTorch programs.

pub mod checkpoint;
pub mod encoder;
pub mod ensemble;
pub mod evaluate;
pub mod forecast;
pub mod gated_mlp;
pub mod lion;
pub mod lora;
pub mod mnist;
pub mod own_decoder;
pub mod own_names;
pub mod own_transformation;
pub mod partial_finetune;
pub mod similarity;
pub mod text_classifier;
mod trainable;
