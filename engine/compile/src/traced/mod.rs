//! The backend of traces, which records operations and computes nothing.

mod caller;
mod engine;
mod import;
mod lazy;
mod lazy_device;
mod lifted;
mod nested;
mod programs;
mod recorder;
mod recording;
mod segment;
mod sink;
mod traces;

use burn::tensor::{BoolDType, FloatDType, IntDType};
use burn_backend::{
    DType, DTypeUsage, DTypeUsageSet, ExecutionError, Shape, TensorData,
    backend::{DeviceId, DeviceOps},
};
use burn_ir::{OperationIr, TensorId, TensorIr};
use burn_router::{BackendRouter, MultiBackendBridge, RouterTensor, RunnerChannel, RunnerClient};
use grove_backend::ops::{Call, Ranks, Recorder as Records, Spec};
use grove_tree::Key;
use std::{cell::Cell, pin::Pin};

use crate::{Primitive, types::Types};
pub(crate) use caller::{Caller, naming_lines};
pub use engine::{DeviceArray, Engine, Executable, RunError};
pub(crate) use lazy::call::{OnLazyDevices, call};
pub use lazy_device::{array_of, lazy_array, lazy_device};
pub(crate) use nested::is_of_trace;
pub(crate) use recording::{Recording, any, id_of, outputs_at, tensor_of};
use sink::Sink;

/// The backend of traced functions. Its tensors have shapes and dtypes but no values.
pub type Traced = BackendRouter<TraceChannel>;

/// The device of the tensors of one trace, or a lazy device, whose tensors are computed when they are read. The default is the
/// device of the active trace; outside traces, the first lazy device.
#[derive(Clone, Copy, Debug)]
pub struct TraceDevice {
    index: u16,
    types: Types,
}

/// All devices compare equal, because Burn would otherwise reject tensors of two traces with a message about devices.
impl PartialEq for TraceDevice {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// The device outside traces.
const NONE: TraceDevice = TraceDevice {
    index: u16::MAX,
    types: Types { float: FloatDType::F32, int: IntDType::I64, boolean: BoolDType::Native },
};

thread_local! {
    /// Device of the innermost trace on this thread. It is Burn's default device during the trace.
    static CURRENT: Cell<TraceDevice> = const { Cell::new(NONE) };
}

impl Default for TraceDevice {
    fn default() -> Self {
        let current = CURRENT.get();
        if current.index == NONE.index { lazy_device::default_device().unwrap_or(current) } else { current }
    }
}

impl burn_backend::backend::Device for TraceDevice {
    fn from_id(id: DeviceId) -> Self {
        Self { index: id.index_id, types: Types::from_number(id.type_id) }
    }

    fn to_id(&self) -> DeviceId {
        DeviceId { type_id: self.types.to_number(), index_id: self.index }
    }
}

impl DeviceOps for TraceDevice {}

impl TraceDevice {
    /// Returns true for the permanent device of an engine, false for the device of a trace.
    pub(crate) fn is_lazy(&self) -> bool {
        traces::is_lazy(self.index)
    }

    /// Returns true if both are the same device, regardless of the dtypes of a trace.
    pub fn is_same(&self, other: &Self) -> bool {
        self.index == other.index
    }
}

/// Channel of Burn's router from the tensors of a trace to its recorder.
#[derive(Clone, Debug)]
pub struct TraceChannel;

/// Handle of a trace's recorder.
#[derive(Clone, Copy, Debug)]
pub struct TraceClient {
    device: TraceDevice,
    /// True for an additional handle of a tensor that is held elsewhere: dropping this handle does not drop the tensor.
    borrows: bool,
}

impl RunnerChannel for TraceChannel {
    type Device = TraceDevice;
    type Bridge = NoBridge;
    type Client = TraceClient;
    type FloatElem = f32;
    type IntElem = i64;
    type BoolElem = bool;

    fn name(_device: &TraceDevice) -> String {
        "traced".into()
    }

    fn init_client(device: &TraceDevice) -> TraceClient {
        TraceClient::of(*device)
    }

    fn get_tensor_handle(_tensor: &TensorIr, _client: &TraceClient) {
        panic!("a traced tensor stays in its trace: it cannot move to another device{}", Caller::here())
    }

    fn register_tensor(client: &TraceClient, _handle: (), shape: Shape, dtype: DType) -> RouterTensor<TraceClient> {
        RouterTensor::new(client.create_empty_handle(), shape, dtype, *client)
    }
}

/// Traced tensors cannot move between backends.
#[derive(Clone, Copy, Debug)]
pub struct NoBridge;

impl MultiBackendBridge for NoBridge {
    type TensorHandle = ();
    type Device = TraceDevice;

    fn change_backend_float(_tensor: (), _shape: Shape, _device: &TraceDevice) {}

    fn change_backend_int(_tensor: (), _shape: Shape, _device: &TraceDevice) {}

    fn change_backend_bool(_tensor: (), _shape: Shape, _device: &TraceDevice) {}
}

impl TraceClient {
    fn sink<T>(self, f: impl FnOnce(&mut Sink) -> T) -> T {
        traces::with_sink(self.device.index, f)
    }
}

impl RunnerClient for TraceClient {
    type Device = TraceDevice;

    fn register_op(&self, operation: OperationIr) {
        match operation {
            OperationIr::Drop(_) if self.borrows => {}
            // Drops always go to the device itself, even during a nested trace.
            OperationIr::Drop(_) => traces::dropped(self.device.index, operation),
            operation => self.sink(|sink| sink.operation(operation)),
        }
    }

    fn read_tensor_async(
        &self,
        tensor: TensorIr,
    ) -> Pin<Box<dyn Future<Output = Result<TensorData, ExecutionError>> + Send>> {
        let read = |sink: &mut Sink| match sink {
            Sink::Lazy(device) => Ok(device.read(&tensor)),
            Sink::Trace(recorder) => Err(recorder.describe(&tensor)),
        };
        let made_by = match self.sink(read) {
            Ok(data) => return Box::pin(std::future::ready(data)),
            Err(made_by) => made_by,
        };
        let caller = Caller::here();
        // Some of Burn's methods compute on the host.
        if let Some(method) = caller.method().filter(|method| !method.contains("data") && !method.contains("scalar")) {
            panic!(
                "`{method}` reads the values of its tensor, but a traced tensor has none: {made_by}. Call it before the trace and \
                 pass its result as an argument, or use an operation that can be traced (`sort`, `argsort`, \
                 `top_k` and `one_hot` of `backend::ops` in place of the methods){caller}"
            )
        }
        panic!(
            "the function reads the values of a traced tensor, which has none: {made_by}. Use operations of tensors (a mask \
             instead of an `if` on a value), or compute the values before the trace and pass them as an argument{caller}"
        )
    }

    fn sync(&self) -> Result<(), ExecutionError> {
        self.sink(|sink| match sink {
            Sink::Lazy(device) => device.sync().map_err(|reason| ExecutionError::WithContext { reason }),
            Sink::Trace(_) => Ok(()),
        })
    }

    fn create_empty_handle(&self) -> TensorId {
        self.sink(Sink::fresh)
    }

    fn register_tensor_data(&self, data: TensorData) -> RouterTensor<Self> {
        let (shape, dtype) = (data.shape.clone(), data.dtype);
        let id = self.sink(|sink| sink.constant(data));
        RouterTensor::new(id, shape, dtype, *self)
    }

    fn device(&self) -> TraceDevice {
        self.device
    }

    fn seed(&self, _seed: u64) {}

    /// Only the boolean dtype of the backend is supported: Burn uses the first supported one as the default.
    fn dtype_usage(&self, dtype: DType) -> DTypeUsageSet {
        match dtype {
            DType::Bool(_) if dtype != DType::from(self.device.types.boolean) => DTypeUsageSet::empty(),
            dtype if !self.sink(|sink| sink.supports(dtype)) => DTypeUsageSet::empty(),
            _ => DTypeUsage::general(),
        }
    }
}

impl Records for TraceClient {
    fn reduces(&self) -> bool {
        self.sink(|sink| sink.reduces())
    }

    fn end_step(&self, label: u64) {
        traces::end_step(self.device.index, label);
    }

    fn has_values(&self) -> bool {
        self.sink(|sink| matches!(sink, Sink::Lazy(_)))
    }

    fn forget<T>(&self, f: impl FnOnce() -> T) -> T {
        // Also runs during a panic, such as a shape error.
        struct End(TraceClient);
        impl Drop for End {
            fn drop(&mut self) {
                self.0.sink(|sink| sink.forget(-1));
            }
        }
        self.sink(|sink| sink.forget(1));
        let _end = End(*self);
        f()
    }

    fn record(
        &self,
        mut call: Call,
        mut inputs: Vec<Option<TensorIr>>,
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<RouterTensor<Self>>> {
        let tensor = |(id, spec): (TensorId, Spec)| RouterTensor::new(id, spec.shape, spec.dtype, *self);
        let array_key = call.key_mut().filter(|words| Key::from_words(**words).is_array());
        let primitive = match array_key {
            Some(words) => {
                let key = Key::from_words(std::mem::take(words)).data::<Traced>(&self.device);
                inputs.insert(0, Some(key.into_primitive().into_ir()));
                Primitive::WithKey(call)
            }
            None => Primitive::Grove(call),
        };
        let outputs = self.add(primitive, &inputs, outputs);
        outputs.into_iter().map(|output| output.map(tensor)).collect()
    }
}

impl TraceClient {
    /// Creates the client of a trace.
    pub(crate) fn of(device: TraceDevice) -> Self {
        Self { device, borrows: false }
    }

    fn add(
        self,
        primitive: Primitive,
        inputs: &[Option<TensorIr>],
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<(TensorId, Spec)>> {
        let ranks = primitive.ranks();
        let (outputs, is_lazy) =
            self.sink(|sink| (sink.primitive(primitive, inputs, outputs), matches!(sink, Sink::Lazy(_))));
        // A rank that reads nothing and waits for other ranks elsewhere would leave them waiting in the all-reduce.
        if let Some(comm) = ranks.filter(|_| is_lazy).and_then(Ranks::origin) {
            comm.before_waiting(self.device.index.into(), move || {
                self.sink(|sink| match sink {
                    Sink::Lazy(device) => device.run_sums(),
                    Sink::Trace(_) => Ok(()),
                })
            });
        }
        outputs
    }

    /// Records a primitive with outputs of the given types.
    pub(crate) fn primitive(
        self,
        primitive: Primitive,
        inputs: Vec<RouterTensor<Self>>,
        outputs: Vec<Spec>,
    ) -> Vec<RouterTensor<Self>> {
        let inputs: Vec<_> = inputs.into_iter().map(|x| Some(x.into_ir())).collect();
        let outputs = outputs.into_iter().map(Some).collect();
        let outputs = self.add(primitive, &inputs, outputs);
        let tensor = |(id, spec): (TensorId, Spec)| RouterTensor::new(id, spec.shape, spec.dtype, self);
        outputs.into_iter().flatten().map(tensor).collect()
    }
}
