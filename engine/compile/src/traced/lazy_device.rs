//! Creating lazy devices from engines, and tensors from their arrays.

use burn::tensor::DType;
use burn_backend::set_default_dtypes;
use burn_router::RouterTensor;
use grove_backend::AnyTensor;
use std::sync::OnceLock;

use super::{
    Caller, TraceClient, TraceDevice, Traced,
    engine::{DeviceArray, Engine},
    lazy::LazyArrays,
    recording::any,
    segment::TYPES,
    sink::Sink,
    traces::{add_lazy, with_sink},
};

/// Creates a device from an engine. Its arrays are computed when they are read. The first lazy device is the default device of
/// [`Traced`] outside traces.
pub fn lazy_device(engine: impl Engine) -> TraceDevice {
    let device = add_lazy(TYPES, |number| LazyArrays::new(number, Box::new(engine)));
    // An error means that an earlier device with this index and these dtypes has set them already.
    drop(set_default_dtypes::<Traced>(&device, TYPES.float, TYPES.int));
    let _ = FIRST.set(device);
    device
}

/// Creates a tensor with this shape and dtype from an array of a lazy device's engine.
///
/// # Panics
/// If the device belongs to a trace.
pub fn lazy_array(device: &TraceDevice, array: DeviceArray, shape: Vec<usize>, dtype: DType) -> AnyTensor<Traced> {
    let id = with_sink(device.index, |sink| match sink {
        Sink::Lazy(device) => device.adopt(array),
        Sink::Trace(_) => panic!("the device of a trace has no arrays{}", Caller::here()),
    });
    any(RouterTensor::new(id, shape.into(), dtype, TraceClient::of(*device)))
}

/// Returns the array of a tensor on a lazy device after running the operations recorded there.
///
/// # Errors
/// If the program that computes the array fails, or the tensor belongs to a trace.
pub fn array_of(x: &AnyTensor<Traced>) -> Result<DeviceArray, String> {
    let device = x.device();
    let (AnyTensor::Float(tensor) | AnyTensor::Int(tensor) | AnyTensor::Bool(tensor)) = x.clone();
    let tensor = tensor.into_ir();
    with_sink(device.index, |sink| match sink {
        Sink::Lazy(device) => device.array(&tensor),
        Sink::Trace(_) => Err("a traced tensor has no array".into()),
    })
}

/// The first lazy device. It belongs to the process, because Burn's default device has no arguments.
static FIRST: OnceLock<TraceDevice> = OnceLock::new();

/// Returns the default lazy device, if there is one.
pub(super) fn default_device() -> Option<TraceDevice> {
    FIRST.get().copied()
}
