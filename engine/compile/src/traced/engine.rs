//! Engines: the interface of devices that compute lazy arrays.

use burn::tensor::{DType, TensorData};
use grove_tree::Key;
use std::{any::Any, sync::Arc};

use crate::Graph;

/// An array on the device of an engine.
pub type DeviceArray = Arc<dyn Any + Send + Sync>;

/// A device that compiles and runs programs of lazy arrays, such as OpenXLA on one device.
pub trait Engine: Send + Sync + 'static {
    /// Returns true if the device supports arrays of a dtype.
    fn supports(&self, dtype: DType) -> bool;

    /// Returns true if programs may contain all-reduces over the ranks of a job. The ranks compute them in execution order.
    fn reduces(&self) -> bool {
        false
    }

    /// Copies an array to the device.
    ///
    /// # Errors
    /// A message if there is not enough memory.
    fn upload(&self, data: TensorData) -> Result<DeviceArray, String>;

    /// Copies an array to the host.
    ///
    /// # Errors
    /// A message if the computation of the array failed.
    fn download(&self, array: &DeviceArray) -> Result<TensorData, String>;

    /// Waits until an array has been computed.
    ///
    /// # Errors
    /// A message if the computation of the array failed.
    fn wait(&self, array: &DeviceArray) -> Result<(), String>;

    /// Returns the layout of an array on the device, which is part of the key of a compiled program. Empty if all arrays have
    /// the same layout.
    fn layout(&self, _array: &DeviceArray) -> String {
        String::new()
    }

    /// Compiles a program for inputs with the layouts of these arrays. `donated` is true for inputs whose memory may be reused
    /// for results.
    ///
    /// # Errors
    /// A message if compilation fails.
    fn compile(&self, graph: &Graph, inputs: &[DeviceArray], donated: &[bool]) -> Result<Arc<dyn Executable>, String>;
}

/// A compiled program of an engine.
pub trait Executable: Send + Sync {
    /// Runs the program with its inputs and the keys that it samples with. Donated arrays have no other owner.
    ///
    /// # Errors
    /// A message and the inputs.
    fn run(&self, inputs: Vec<DeviceArray>, keys: &[Key]) -> Result<Vec<DeviceArray>, RunError>;
}

/// Error of a program that did not run.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// Error message.
    pub message: String,
    /// Inputs of the program, in order; `None` for an input that no longer exists.
    pub inputs: Vec<Option<DeviceArray>>,
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
