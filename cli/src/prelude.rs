//! Imports of every command.

pub use grove::{prelude::*, train::Ended};
pub use serde_json::{Value, json};
pub use std::path::{Path, PathBuf};

pub use crate::{Exit, failure, program::Command, report, shipped, write_json, write_line};
