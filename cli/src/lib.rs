//! The command line of grove: options, progress, reports and the tasks behind the program `grove` and the examples.
//!
//! | module | job |
//! |---|---|
//! | [`DeviceArgs`], [`training`], [`generation`] | options |
//! | [`finish`], [`Exit`] | the end of a program: one sentence, an exit status |
//! | [`show`], [`write_line`], [`write_json`] | standard output |
//! | [`input`] | standard input |
//! | [`resolve()`], [`shipped`] | where models and data are |
//! | [`memory`] | check of the memory that a model needs |
//! | [`commands`] | the program `grove` |
//! | [`generation`], [`language`], [`bert`], [`rnn`], [`vision`] | tasks of models |
#![warn(missing_docs)]
// Docs of options are texts of `--help`, with brackets as a shell's user writes them.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]
#![recursion_limit = "256"]

pub mod bert;
pub mod commands;
mod compiling;
mod device;
mod documents;
mod encoder;
mod exit;
pub mod finetune_bert;
pub mod finetune_vision;
pub mod generation;
pub mod input;
pub mod labelled;
pub mod language;
pub mod memory;
mod panics;
mod resolve;
pub mod rnn;
mod terminal;
pub mod train_bert;
pub mod train_vision;
pub mod training;
pub mod vision;

pub use device::{Autotune, DeviceArgs, Dtype, KernelArgs, Precision};
pub use exit::{Exit, failure, finish};
pub use resolve::{in_repository, resolve, resolve_named, shipped};
pub use terminal::{show, write_json, write_line};
