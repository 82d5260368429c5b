//! The program `grove`. Its commands are in `grove_cli::commands`.

use clap::Parser;
use grove_cli::{
    commands::{Grove, arguments},
    training::finish_run,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let grove = Grove::parse_from(arguments(std::env::args())).completed();
    finish_run(|| grove.run(|device, task| Ok(device.run(task)?)))
}
