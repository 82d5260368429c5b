//! The program `grove`. Its commands are in `grove_cli::commands`.

use clap::CommandFactory;
use grove::train::Ended;
use grove_cli::{
    arguments::parse,
    commands::{Command, Grove},
    devices, new, program, show,
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let grove = parse(std::env::args()).unwrap_or_else(|error| error.exit());
    program::finish_run(|| match &grove.command {
        Command::Task(task) => program::run(task),
        Command::Bench(options) => {
            grove_bench::run(options, Some("bench"), |device, serve| grove::run(device, serve))?;
            Ok(Ended::Finished)
        }
        Command::Parity(options) => {
            grove_bench::parity::run(options, |device, compute| grove::run(device, compute))?;
            Ok(Ended::Finished)
        }
        Command::Devices(options) => devices::list(options),
        Command::New(options) => new::create(options).map(|()| Ended::Finished),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Grove::command(), "grove", &mut script);
            show(&String::from_utf8_lossy(&script)).map(|()| Ended::Finished)
        }
    })
}
