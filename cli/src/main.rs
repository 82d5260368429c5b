//! The program `grove`. Its commands are in `grove_cli::commands`.

use clap::Parser;
use grove::train::Ended;
use grove_cli::{
    commands::{Command, Grove, arguments},
    program,
    training::finish_run,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let grove = Grove::parse_from(arguments(std::env::args())).completed();
    finish_run(|| match &grove.command {
        Command::Task(task) => program::run(task),
        Command::Bench(options) => {
            grove_bench::run(
                options,
                Some("bench"),
                |device, serve| device.run(serve),
                |device, write| device.run(write),
            )?;
            Ok(Ended::Finished)
        }
        Command::New(options) => {
            grove_cli::new::create(options)?;
            Ok(Ended::Finished)
        }
        Command::Completions { shell } => {
            grove_cli::commands::print_completions(*shell)?;
            Ok(Ended::Finished)
        }
    })
}
