//! Training: data, steps, loops, checkpoints and logs.
#![warn(missing_docs)]

pub mod data;
pub mod log;
