//! All tests of this crate in one binary, which is linked once.
#![recursion_limit = "256"]

#[macro_use]
#[path = "../../../engine/backend/tests/common/mod.rs"]
mod common;
#[path = "../arrays/mod.rs"]
mod arrays;
#[path = "../decoder/mod.rs"]
mod decoder;
#[path = "../../../layers/tests/location/mod.rs"]
mod location;
#[path = "../reference/mod.rs"]
mod reference;

mod adapters;
mod auto;
mod bert;
mod callers;
mod decoder_files;
mod full_size_vision;
mod gguf;
mod gpt2;
mod gpt_neo;
mod llama;
mod resnet;
mod rnn;
mod rope;
mod sequence_classification;
mod shipped;
mod vit;
