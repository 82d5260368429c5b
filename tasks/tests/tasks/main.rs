//! All tests of this crate in one binary, which is linked once. The fixtures are those of `grove-models`.
#![recursion_limit = "256"]

#[macro_use]
#[path = "../../../engine/backend/tests/common/mod.rs"]
mod common;
#[path = "../../../models/tests/reference/mod.rs"]
#[allow(dead_code)]
mod reference;

mod batches;
mod cache_dtype;
mod chat;
mod device_sampling;
mod encoders;
mod families;
mod full_size;
mod generation;
mod jitted;
mod long_texts;
mod sampling;
mod text;
mod text_stream;
