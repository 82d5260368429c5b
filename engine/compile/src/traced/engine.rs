//! Engines of lazy devices.

use burn::tensor::{DType, FloatDType, IntDType, TensorData};
use burn_backend::{BoolDType, set_default_dtypes};
use burn_router::RouterTensor;
use grove_backend::AnyTensor;
use grove_tree::Key;
use std::{
    any::Any,
    sync::{Arc, OnceLock},
};

use super::{
    Caller, TraceClient, TraceDevice, Traced, Types,
    lazy::Lazy,
    recorder::{add_lazy, any, with_sink},
    sink::Sink,
};
use crate::Graph;

/// The default types of lazy devices.
pub(super) const TYPES: Types = Types { float: FloatDType::F32, int: IntDType::I32, boolean: BoolDType::Native };

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
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RunError {
    /// A sentence.
    pub message: String,
    /// The inputs of the program, in order, where they still exist.
    pub inputs: Vec<Option<DeviceArray>>,
}

/// Makes a device of an engine, whose arrays are computed when they are read. The first one is the default device of [`Traced`] where no
/// trace is going on.
pub fn lazy_device(engine: impl Engine) -> TraceDevice {
    let device = add_lazy(TYPES, |number| Lazy::new(number, Box::new(engine)));
    // An error says that an earlier device with this index and these types has done so.
    drop(set_default_dtypes::<Traced>(&device, TYPES.float, TYPES.int));
    let _ = FIRST.set(device);
    device
}

/// Makes a tensor of an array of a lazy device's engine, of a shape and type.
///
/// # Panics
/// If the device is that of a trace.
pub fn lazy_array(device: &TraceDevice, array: DeviceArray, shape: Vec<usize>, dtype: DType) -> AnyTensor<Traced> {
    let id = with_sink(device.index, |sink| match sink {
        Sink::Lazy(device) => device.adopt(array),
        Sink::Trace(_) => panic!("the device of a trace has no arrays{}", Caller::here()),
    });
    any(RouterTensor::new(id, shape.into(), dtype, TraceClient::of(*device)))
}

/// Returns the array of a tensor on a lazy device, after what was recorded there has run.
///
/// # Errors
/// The program that computes it failed, or the tensor is one of a trace.
pub fn array_of(x: &AnyTensor<Traced>) -> Result<DeviceArray, String> {
    let device = x.device();
    let (AnyTensor::Float(tensor) | AnyTensor::Int(tensor) | AnyTensor::Bool(tensor)) = x.clone();
    let tensor = tensor.into_ir();
    with_sink(device.index, |sink| match sink {
        Sink::Lazy(device) => device.array(&tensor),
        Sink::Trace(_) => Err("a traced tensor has no array".into()),
    })
}

/// The lazy device that was made first.
static FIRST: OnceLock<TraceDevice> = OnceLock::new();

/// The default lazy device, if there is one.
pub(super) fn default_device() -> Option<TraceDevice> {
    FIRST.get().copied()
}
