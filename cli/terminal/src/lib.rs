//! Helpers shared by the programs of grove: the command line (`cli`) and the benchmark (`cli/bench`).
//!
//! | item | job |
//! |---|---|
//! | [`DeviceArgs`] | options of the device, the dtype and a GPU's kernels |
//! | [`finish`], [`Exit`] | error message and exit status |
//! | [`show`], [`write_line`], [`write_json`], [`report`] | standard output |
//! | [`input`] | standard input |
//! | [`resolve()`], [`shipped`] | paths of models and data |
//! | [`memory`] | memory of the machine, check of a model's memory needs |
#![warn(missing_docs)]

mod device;
mod exit;
pub mod input;
pub mod memory;
mod resolve;
mod terminal;

pub use device::{Autotune, DeviceArgs, Dtype, KernelArgs, Precision, quiet_plugins};
pub use exit::{Exit, failure, finish, usage};
pub use resolve::{in_repository, resolve, resolve_config, resolve_named, shipped, with_adapter};
pub use terminal::{keep_silent, report, show, write_json, write_line};
