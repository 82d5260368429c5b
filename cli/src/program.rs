//! Commands, whichever they are.

use grove::{backend::DeviceSpec, prelude::*, train::Ended};
use std::process::ExitCode;

use crate::{Exit, training::finish_run};

/// Options of a command that computes.
pub trait Command: Sync {
    /// Checks the options alone, before any file is read. Gives the device, which may turn out not to be there.
    fn check(&self) -> Result<DeviceSpec, Exit>;

    /// Does what the options ask for.
    fn run<B: Backend>(&self, device: &B::Device) -> Result<Ended, Exit>;
}

/// A command as a program for whichever backend is chosen.
struct OnDevice<'a, C>(&'a C);

impl<C: Command> Program for OnDevice<'_, C> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        self.0.run::<B>(&device)
    }
}

/// Checks the options of a command and runs it on the device that they name. It is compiled for every backend where it is
/// called, in the program.
pub fn run<C: Command>(command: &C) -> Result<Ended, Exit> {
    command.check()?.run(OnDevice(command))?
}

/// The body of a program that is one command.
pub fn main<C: Command>(command: &C) -> ExitCode {
    finish_run(|| run(command))
}
