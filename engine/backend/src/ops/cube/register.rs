//! Custom operations of a fusing backend, which executes them in order without fusing them.

use burn::tensor::{DType, Shape, TensorMetadata};
use burn_cubecl::{CubeBackend, CubeRuntime, fusion::FusionCubeRuntime, tensor::CubeTensor};
use burn_fusion::{
    FusionRuntime, FusionTensor,
    client::GlobalFusionClient,
    stream::{Operation, OperationStreams},
};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};
use std::fmt;

/// A tensor of a fusing backend, which may not be computed yet.
pub(crate) type FusedTensor<R> = FusionTensor<FusionCubeRuntime<R>>;

/// The backend below the fusing one. Handles are the same for all element types.
pub(super) type Inner<R> = CubeBackend<R, f32, i32, u8>;

type Handles<R> = HandleContainer<<FusionCubeRuntime<R> as FusionRuntime>::FusionHandle>;

/// Boxed, so that the fusing backend's methods are compiled for one type of operation.
type Compute<R> = Box<dyn Fn(Vec<CubeTensor<R>>) -> Vec<CubeTensor<R>> + Send + Sync>;

struct Custom<R: CubeRuntime> {
    desc: CustomOpIr,
    compute: Compute<R>,
}

impl<R: CubeRuntime> fmt::Debug for Custom<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.desc.fmt(f)
    }
}

impl<R: CubeRuntime> Operation<FusionCubeRuntime<R>> for Custom<R> {
    fn execute(&self, handles: &mut Handles<R>) {
        let inputs = self.desc.inputs.iter().map(|input| handles.get_float_tensor::<Inner<R>>(input)).collect();
        for (ir, output) in self.desc.outputs.iter().zip((self.compute)(inputs)) {
            debug_assert_eq!((&ir.shape, ir.dtype), (&output.shape(), output.dtype), "{}", self.desc.id);
            handles.register_float_tensor::<Inner<R>>(&ir.id, output);
        }
    }
}

/// Registers an operation by its name and the shapes and dtypes of its outputs. The fusing backend calls `compute` with the
/// inputs, of any element type, when it executes the operation. An input that is not shared may be written in place.
///
/// # Panics
/// If there are no inputs.
pub(super) fn register_list<R: CubeRuntime>(
    name: &'static str,
    inputs: Vec<FusedTensor<R>>,
    outputs: Vec<(Shape, DType)>,
    compute: impl Fn(Vec<CubeTensor<R>>) -> Vec<CubeTensor<R>> + Send + Sync + 'static,
) -> Vec<FusedTensor<R>> {
    register_with(inputs[0].client.clone(), name, inputs, outputs, Box::new(compute))
}

/// [`register_list`] for a fixed number of inputs and outputs.
pub(super) fn register<R: CubeRuntime, const N: usize, const M: usize>(
    name: &'static str,
    inputs: [FusedTensor<R>; N],
    outputs: [(Shape, DType); M],
    compute: impl Fn([CubeTensor<R>; N]) -> [CubeTensor<R>; M] + Send + Sync + 'static,
) -> [FusedTensor<R>; M] {
    array(register_list(name, inputs.into(), outputs.into(), move |inputs| compute(array(inputs)).into()))
}

/// [`register`] for one output.
pub(super) fn register_one<R: CubeRuntime, const N: usize>(
    name: &'static str,
    inputs: [FusedTensor<R>; N],
    output: (Shape, DType),
    compute: impl Fn([CubeTensor<R>; N]) -> CubeTensor<R> + Send + Sync + 'static,
) -> FusedTensor<R> {
    let [output] = register(name, inputs, [output], move |inputs| [compute(inputs)]);
    output
}

/// [`register_one`] for an operation without inputs, on a device.
pub(super) fn register_source<R: CubeRuntime>(
    name: &'static str,
    device: &R::Device,
    output: (Shape, DType),
    compute: impl Fn() -> CubeTensor<R> + Send + Sync + 'static,
) -> FusedTensor<R> {
    let client = GlobalFusionClient::<FusionCubeRuntime<R>>::load(device);
    let [output] = array(register_with(client, name, vec![], vec![output], Box::new(move |_| vec![compute()])));
    output
}

/// Converts a list of registered tensors, whose number is known, to an array.
fn array<T, const N: usize>(tensors: Vec<T>) -> [T; N] {
    tensors.try_into().unwrap_or_else(|_| unreachable!("as many tensors as were registered"))
}

/// Wraps computed tensors as tensors of a fusing backend.
#[cfg(feature = "cuda")]
pub(super) fn register_ready<R: CubeRuntime>(
    client: GlobalFusionClient<FusionCubeRuntime<R>>,
    name: &'static str,
    tensors: Vec<CubeTensor<R>>,
) -> Vec<FusedTensor<R>> {
    let outputs = tensors.iter().map(|x| (x.shape(), x.dtype())).collect();
    register_with(client, name, vec![], outputs, Box::new(move |_| tensors.clone()))
}

fn register_with<R: CubeRuntime>(
    client: GlobalFusionClient<FusionCubeRuntime<R>>,
    name: &'static str,
    inputs: Vec<FusedTensor<R>>,
    outputs: Vec<(Shape, DType)>,
    compute: Compute<R>,
) -> Vec<FusedTensor<R>> {
    let streams = OperationStreams::with_inputs(&inputs);
    let inputs: Vec<_> = inputs.into_iter().map(FusedTensor::into_ir).collect();
    let uninit = |(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype);
    let outputs: Vec<_> = outputs.into_iter().map(uninit).collect();
    let desc = CustomOpIr::new(name, &inputs, &outputs);
    let operation = Custom { desc: desc.clone(), compute };
    client.register(streams, OperationIr::Custom(desc), operation)
}
