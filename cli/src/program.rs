//! Running a command on a device, and its output.

use grove::{backend::DeviceSpec, files::write_atomically, prelude::*, train::Ended};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};
use serde_json::Value;
use std::{path::Path, process::ExitCode};

use crate::{Exit, failure, finish, ranks};

/// Exit status of a program ended by Ctrl-C.
const INTERRUPTED: u8 = 130;

/// Options of a command that computes on a device.
pub trait Command: Sync {
    /// Checks the options before any file is read. Returns the device, which may not exist.
    fn check(&self) -> Result<DeviceSpec, Exit>;

    /// Runs the command.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit>;
}

/// Runs a command on the chosen backend.
struct OnDevice<'a, C>(&'a C);

impl<C: Command> Program for OnDevice<'_, C> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        self.0.run::<B>(&device)
    }
}

/// Checks the options of a command and runs it on their device. The function is generic, so each program that calls it compiles
/// the command for every backend.
pub fn run<C: Command>(command: &C) -> Result<Ended, Exit> {
    grove::run(command.check()?, OnDevice(command))?
}

/// As [`finish`], for a run that can be interrupted.
pub fn finish_run(body: impl FnOnce() -> Result<Ended, Exit>) -> ExitCode {
    let mut interrupted = false;
    let status = finish(|| {
        ranks::start()?;
        interrupted = ranks::end(body())? == Ended::Interrupted;
        Ok(())
    });
    if interrupted { ExitCode::from(INTERRUPTED) } else { status }
}

/// Main function of a program with one command.
pub fn main<C: Command>(command: &C) -> ExitCode {
    finish_run(|| run(command))
}

/// Prints the result of a command: `object` if `json` is true, otherwise `text`.
pub fn report(json: bool, object: &Value, text: &str) -> Result<Ended, Exit> {
    grove_terminal::report(json, object, text)?;
    Ok(Ended::Finished)
}

/// Suggests a published model after a result of a small one that ships with grove.
pub(crate) fn tell_small(model: &str, published: &str) {
    eprintln!("[this was grove's own small {model}; for a published one: --model {published}]");
}

/// Formats a count with its noun, such as `1 text` and `1,024 texts`.
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", HumanCount(count as u64))
}

/// Returns a progress bar over texts, images or others on standard error, which is hidden unless standard error is a terminal.
pub(crate) fn progress_bar(length: usize, noun: &str) -> ProgressBar {
    let template = format!("{{wide_bar}} {{human_pos}} of {{human_len}} {noun}{{msg}}, {{eta}} left");
    let style = ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length as u64).with_style(style)
}

/// Writes a table to a CSV file.
pub(crate) fn write_csv(
    file: &Path,
    header: impl IntoIterator<Item: AsRef<[u8]>>,
    rows: impl IntoIterator<Item = Vec<String>>,
) -> Result<(), Exit> {
    write_atomically(file, |writer| {
        let mut csv = csv::Writer::from_writer(writer);
        csv.write_record(header)?;
        for row in rows {
            csv.write_record(row)?;
        }
        csv.flush()
    })?;
    Ok(())
}

/// Returns true if a directory is empty or does not exist. A file at this path is an error.
pub(crate) fn is_free(directory: &Path) -> Result<bool, Exit> {
    match std::fs::read_dir(directory) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(_) if directory.exists() => Err(failure(format!("{} is a file; give a directory", directory.display()))),
        Err(_) => Ok(true),
    }
}
