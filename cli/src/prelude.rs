//! Imports shared by all commands.

pub use clap::{Args, Parser, ValueEnum};
pub use grove::{
    models::{ModelError, ModelFiles},
    optim::Schedule,
    prelude::*,
    train::{Ended, RunDirectory, RunSettings},
    tree::Filter,
};
pub use serde_json::{Value, json};
pub use std::path::{Path, PathBuf};

pub use crate::{
    DeviceArgs, Dtype, Exit, failure,
    program::{Command, counted, report},
    ranks::{ranks, tell},
    resolve, resolve_config, resolve_named, shipped,
    training::{RunArgs, Setup, at_least_one, check_held_out, check_layer_decay, fraction, not_negative},
    usage, with_adapter, write_json, write_line,
};
