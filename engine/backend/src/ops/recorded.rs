//! The recording backend: one method that passes any operation to the recorder of Burn's operations.

use burn::tensor::{
    DType, IntDType, TensorData, TensorMetadata,
    backend::ExecutionError,
    ops::{FloatTensor, FloatTensorOps, IntTensor},
    try_read_sync,
};
use burn_ir::TensorIr;
use burn_router::{BackendRouter, RouterTensor, RunnerChannel, RunnerClient, get_client};
use grove_communicator::Communicator;

use super::{AnyTensor, Backend, Operation, Outcome, Spec, Values, Wanted};

/// A call of one of grove's operations.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub enum Call {
    /// [`Backend::run`], with the inputs that need a gradient. The saved residuals follow the outputs.
    Run(Operation, Vec<bool>),
    /// [`Backend::run_vjp`], with the number of residuals. The gradients of the outputs follow the residuals.
    Vjp(Operation, usize, Wanted),
}

impl Call {
    /// Returns the two words of the call's random key, if it has one; see [`Operation::key_mut`].
    pub fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
        let (Self::Run(operation, _) | Self::Vjp(operation, ..)) = self;
        operation.key_mut()
    }
}

/// A router client that records operations instead of running them.
pub trait Recorder: RunnerClient {
    /// Returns true if recorded programs may contain all-reduces; see [`Backend::reduces`].
    fn reduces(&self) -> bool;

    /// See [`Backend::end_step`].
    fn end_step(&self, label: u64);

    /// Returns false if tensors have no values, as in a trace.
    fn has_values(&self) -> bool;

    /// Runs a function and discards the operations that it recorded.
    fn forget<T>(&self, f: impl FnOnce() -> T) -> T;

    /// Records a call. A missing input or output is `None`.
    fn record(
        &self,
        call: Call,
        inputs: Vec<Option<TensorIr>>,
        outputs: Vec<Option<Spec>>,
    ) -> Vec<Option<RouterTensor<Self>>>;
}

/// A router with a recording client; see grove-compile.
impl<C: RunnerChannel> Backend for BackendRouter<C>
where
    C::Client: Recorder,
{
    const MIXED_DTYPE_WEIGHTS: bool = true;
    const DIVIDES_BY_ZERO: bool = true;
    const POOLS_NAN: bool = true;
    const LAZY: bool = true;

    fn computes_in(_device: &Self::Device, dtype: DType) -> bool {
        dtype.is_float()
    }

    fn has_values(device: &Self::Device) -> bool {
        get_client::<C>(device).has_values()
    }

    fn reduces(device: &Self::Device, _comm: &Communicator) -> bool {
        get_client::<C>(device).reduces()
    }

    fn end_step(device: &Self::Device, label: u64) {
        get_client::<C>(device).end_step(label)
    }

    fn read(x: FloatTensor<Self>) -> Result<TensorData, ExecutionError> {
        let client = x.client.clone();
        try_read_sync(client.read_tensor_async(x.into_ir())).expect("an engine answers at once")
    }

    fn argtopk(x: FloatTensor<Self>, dim: usize, k: usize, dtype: IntDType) -> IntTensor<Self> {
        Self::float_argtopk(x, dim, k, dtype)
    }

    fn run(operation: &Operation, inputs: Values<Self>, needs: &[bool]) -> Outcome<Self> {
        let client = client_of(&inputs);
        let outputs_of = |dtype| {
            let shapes = operation.shapes(&inputs.shapes()).into_iter();
            shapes.map(|shape| Some(Spec { shape, dtype })).collect()
        };
        let (outputs, saved) = match operation {
            // These compositions compute values on the host, but only shapes and dtypes are needed.
            Operation::RandomBits(_) | Operation::RandomKeyData(_) | Operation::RandomFoldIn(_) => {
                (outputs_of(DType::U32), vec![])
            }
            Operation::RandomSamples(samples) => (vec![Some(samples.spec::<Self>(inputs.device()))], vec![]),
            Operation::Dropout(_) => (vec![inputs.get(0).map(spec)], vec![]),
            Operation::Argsort(argsort) => (vec![inputs.get(0).map(|x| argsort.spec(x))], vec![]),
            Operation::Dequantize(_) => (outputs_of(DType::F32), vec![]),
            // The composition communicates with the other ranks.
            Operation::AllReduce(_) => ((0..inputs.len()).map(|i| inputs.get(i).map(spec)).collect(), vec![]),
            _ => match operation.first_step() {
                // All steps are alike, so the first one determines the dtypes.
                Some((first, steps)) => {
                    let shapes = operation.shapes(&inputs.shapes());
                    let outcome = client.forget(|| first.compose(steps.first_of_inputs(inputs.clone()), needs));
                    let output = specs(outcome.outputs).into_iter().zip(shapes);
                    let output = output.map(|(spec, shape)| spec.map(|spec| Spec { shape, ..spec }));
                    let of_rows = |spec: Spec| Spec { shape: [steps.rows(), spec.shape[1]].into(), ..spec };
                    let saved = specs(outcome.saved).into_iter().map(|spec| spec.map(of_rows));
                    (output.collect(), saved.collect())
                }
                None => {
                    let outcome = client.forget(|| operation.compose(inputs.clone(), needs));
                    (specs(outcome.outputs), specs(outcome.saved))
                }
            },
        };
        let count = outputs.len();
        let call = Call::Run(operation.clone(), needs.to_vec());
        let mut outputs = client.record(call, in_order(inputs), outputs.into_iter().chain(saved).collect());
        let saved = outputs.split_off(count);
        Outcome { outputs: values(outputs), saved: values(saved) }
    }

    fn run_vjp(operation: &Operation, residuals: Values<Self>, grads: Values<Self>, wanted: &Wanted) -> Values<Self> {
        let client = client_of(&grads);
        let outputs = match operation {
            Operation::Dropout(_) => vec![grads.get(0).map(spec)],
            _ => match operation.first_step() {
                Some((first, steps)) => {
                    let (residuals, grads) = steps.first_of_residuals(residuals.clone(), grads.clone());
                    let first = specs(client.forget(|| first.compose_vjp(residuals, grads, wanted))).into_iter();
                    let whole = first.enumerate().map(|(i, spec)| {
                        let (spec, wanted) = (spec?, wanted.get(i)?);
                        Some(Spec { shape: wanted.shape.clone(), ..spec })
                    });
                    whole.collect()
                }
                None => specs(client.forget(|| operation.compose_vjp(residuals.clone(), grads.clone(), wanted))),
            },
        };
        let call = Call::Vjp(operation.clone(), residuals.len(), wanted.clone());
        let inputs = in_order(residuals).into_iter().chain(in_order(grads)).collect();
        values(client.record(call, inputs, outputs))
    }
}

fn client_of<C: RunnerChannel>(values: &Values<BackendRouter<C>>) -> C::Client {
    let tensor = (0..values.len()).find_map(|position| values.get(position));
    match tensor {
        Some(AnyTensor::Float(x) | AnyTensor::Int(x) | AnyTensor::Bool(x)) => x.client.clone(),
        None => get_client::<C>(values.device()),
    }
}

fn spec<B: burn::tensor::backend::Backend>(value: &AnyTensor<B>) -> Spec {
    Spec { shape: value.shape(), dtype: value.dtype() }
}

fn specs<B: burn::tensor::backend::Backend>(values: Values<B>) -> Vec<Option<Spec>> {
    values.into_values().iter().map(|value| value.as_ref().map(spec)).collect()
}

fn in_order<C: RunnerChannel>(values: Values<BackendRouter<C>>) -> Vec<Option<TensorIr>> {
    let ir = |value| match value {
        AnyTensor::Float(x) | AnyTensor::Int(x) | AnyTensor::Bool(x) => RouterTensor::into_ir(x),
    };
    values.into_values().into_iter().map(|value| value.map(ir)).collect()
}

/// Wraps each tensor in the kind of its dtype.
fn values<C: RunnerChannel>(tensors: Vec<Option<RouterTensor<C::Client>>>) -> Values<BackendRouter<C>> {
    let kind = |x: RouterTensor<C::Client>| match x.dtype() {
        dtype if dtype.is_float() => AnyTensor::Float(x),
        DType::Bool(_) => AnyTensor::Bool(x),
        _ => AnyTensor::Int(x),
    };
    tensors.into_iter().map(|x| x.map(kind)).collect()
}
