//! Programs that run on any backend.

use crate::Backend;

/// A computation for a backend that is chosen at run time; see [`DeviceSpec::run`](crate::DeviceSpec::run).
pub trait Program: Send {
    /// Result of the program.
    type Output: Send;

    /// Runs on a device of the backend `B`.
    fn run<B: Backend>(self, device: B::Device) -> Self::Output;
}
