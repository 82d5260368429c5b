//! The command line of grove: options, progress, reports and tasks of the program `grove` and of the examples.
//!
//! | module | job |
//! |---|---|
//! | [`arguments`] | parsing, and error messages |
//! | [`help`] | the layout of `-h` and `--help` |
//! | [`commands`] | the program `grove` |
//! | [`program`] | running a command on a device |
//! | [`ranks`] | the ranks of a program started by `mpirun` |
//! | [`training`] | options, directory and report of a training run |
//! | `grove_terminal` | options of the device, exit status, standard input and output |
//! | [`devices`] | the devices of each backend |
//! | [`new`] | new projects that depend on grove |
//! | [`generation`], [`language`], [`bert`], [`rnn`], [`vision`] | tasks of one family of models |
//! | [`classify`], [`evaluate`], [`summary`] | tasks of classifiers and language models of any family |
//! | [`inference`] | options of commands that use a trained model |
//! | [`convert`] | conversion of checkpoints |
//! | [`reference`] | the reference of all options, for the book |
#![warn(missing_docs)]
// The docs of options are also the texts of `--help`, where `[default: …]` and `<mask>` are not links or HTML.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]
#![recursion_limit = "256"]

pub mod arguments;
pub mod bert;
pub mod classify;
pub mod commands;
pub mod convert;
pub mod devices;
pub mod evaluate;
pub mod finetune_bert;
pub mod finetune_vision;
pub mod generation;
pub mod help;
pub mod inference;
pub mod kind;
pub mod labelled;
pub mod language;
pub mod model_summary;
pub mod new;
mod prelude;
pub mod program;
pub mod ranks;
pub mod reference;
pub mod rnn;
pub mod summary;
pub mod train_bert;
pub mod train_vision;
pub mod training;
pub mod vision;

pub use grove_terminal::{
    Autotune, DeviceArgs, Dtype, Exit, KernelArgs, Precision, failure, finish, in_repository, input, memory,
    quiet_plugins, resolve, resolve_config, resolve_named, shipped, show, usage, with_adapter, write_json, write_line,
};
