//! Engines of lazy devices.

use burn::tensor::{DType, TensorData};
use grove_tree::Key;
use std::{any::Any, sync::Arc};

use crate::Graph;

/// An array on the device of an engine.
pub type DeviceArray = Arc<dyn Any + Send + Sync>;

/// A device that computes lazy arrays, such as OpenXLA on one device.
pub trait Engine: Send + Sync + 'static {
    /// True if the device has arrays of a type.
    fn supports(&self, dtype: DType) -> bool;

    /// True if programs may hold sums over the ranks of a job, which they compute in the order in which they run.
    fn reduces(&self) -> bool {
        false
    }

    /// Copies an array to the device.
    ///
    /// # Errors
    /// A sentence, if memory does not suffice.
    fn upload(&self, data: TensorData) -> Result<DeviceArray, String>;

    /// Copies an array to the host.
    ///
    /// # Errors
    /// A sentence, if what computes it failed.
    fn download(&self, array: &DeviceArray) -> Result<TensorData, String>;

    /// Waits until an array is computed.
    ///
    /// # Errors
    /// A sentence, if what computes it failed.
    fn wait(&self, array: &DeviceArray) -> Result<(), String>;

    /// The place of an array on the device, for programs that depend on it; nothing where there is one way.
    fn layout(&self, _array: &DeviceArray) -> String {
        String::new()
    }

    /// Compiles a program for inputs that lie as these, given for each whether its memory may be used for results.
    ///
    /// # Errors
    /// A sentence.
    fn compile(&self, graph: &Graph, inputs: &[DeviceArray], donated: &[bool]) -> Result<Arc<dyn Executable>, String>;
}

/// A program of an engine.
pub trait Executable: Send + Sync {
    /// Runs the program with its inputs and the keys that it draws with. Nobody else holds an array that is donated.
    ///
    /// # Errors
    /// A sentence, and the inputs.
    fn run(&self, inputs: Vec<DeviceArray>, keys: &[Key]) -> Result<Vec<DeviceArray>, RunError>;
}

/// The error of a program that did not run.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// A sentence.
    pub message: String,
    /// The inputs of the program, in order, where they still exist.
    pub inputs: Vec<Option<DeviceArray>>,
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for RunError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}
