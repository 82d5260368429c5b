//! Lazy devices: they are made of engines, and their tensors of arrays.

use burn::tensor::DType;
use burn_backend::set_default_dtypes;
use burn_router::RouterTensor;
use grove_backend::AnyTensor;
use std::sync::OnceLock;

use super::{
    Caller, TraceClient, TraceDevice, Traced,
    engine::{DeviceArray, Engine},
    lazy::Lazy,
    recording::any,
    segment::TYPES,
    sink::Sink,
    traces::{add_lazy, with_sink},
};

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
