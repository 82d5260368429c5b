//! Host work of each kernel launch on CUDA, compiled once and with optimisation.
//!
//! At the dev profile's level, rustc shares instantiations of generic functions between crates: dependent crates do not
//! compile a function again that this crate has instantiated. This crate instantiates the code of each launch: the device's
//! client, its queue and its memory, and the plans of fused elementwise kernels. `grove-cuda-kernels`, which depends on it,
//! instantiates the kernels themselves. Nothing here is called. At other levels nothing is shared, and the crate is empty.
#![cfg(shares_generics)]

use burn_backend::{
    DType,
    ops::{FloatTensorOps, IntTensorOps},
};
use burn_cubecl::{CubeBackend, kernel, tensor::CubeTensor};
use burn_cubecl_fusion::{
    CubeFusionHandle,
    optim::{CubeOptimization, elemwise::ElemwiseOptimization},
};
use burn_fusion::stream::Context;
use burn_ir::{HandleContainer, OperationIr, TensorId, TensorIr};
use cubecl::{client::ComputeClient, cuda::CudaRuntime as R};
use std::ops::Range;

type B = CubeBackend<R, f32, i32, u8>;
type Handles = HandleContainer<CubeFusionHandle<R>>;

/// Instantiates fused elementwise kernels.
pub fn elementwise(fused: &ElemwiseOptimization<R>, context: &mut Context<CubeFusionHandle<R>>) {
    fused.execute(context);
}

/// Instantiates copies of tensors into contiguous memory.
pub fn contiguous(x: CubeTensor<R>) -> CubeTensor<R> {
    kernel::into_contiguous_aligned(kernel::into_contiguous(x))
}

/// Instantiates conversions.
pub fn cast(x: CubeTensor<R>, dtype: DType) -> CubeTensor<R> {
    kernel::cast(x, dtype)
}

/// Instantiates slices.
pub fn slice(x: CubeTensor<R>, parts: &[Range<usize>]) -> CubeTensor<R> {
    kernel::slice(x, parts)
}

/// Instantiates the sum of two tensors, the operation that is most often left unfused (residual connections).
pub fn sum(x: CubeTensor<R>, y: CubeTensor<R>) -> CubeTensor<R> {
    B::float_add(x, y)
}

/// Instantiates lookups of table rows.
pub fn select(x: CubeTensor<R>, indices: [CubeTensor<R>; 2]) -> [CubeTensor<R>; 2] {
    let [of_floats, of_integers] = indices;
    [B::float_select(x, 0, of_floats.clone()), B::int_select(of_floats, 0, of_integers)]
}

/// Instantiates the handles of fused operations, by tensor ID.
pub fn handles(known: &mut Handles, x: &TensorIr, y: TensorId) -> [CubeTensor<R>; 3] {
    let handle = known.get_handle(&x.id, &x.status);
    known.register_handle(y, handle.clone());
    let tensors = [known.get_float_tensor::<B>(x), known.get_int_tensor::<B>(x), known.get_bool_tensor::<B>(x)];
    known.register_float_tensor::<B>(&y, tensors[0].clone());
    known.register_int_tensor::<B>(&y, tensors[1].clone());
    known.register_bool_tensor::<B>(&y, tensors[2].clone());
    known.free(x);
    drop(known.remove_handle(y));
    tensors
}

/// Instantiates copies of the parts of an operation.
pub fn copies(x: &CubeTensor<R>, client: &ComputeClient<R>, operations: &[OperationIr]) -> (CubeTensor<R>, usize) {
    drop((client.clone(), operations.to_vec(), x.meta.shape().clone(), x.meta.strides().clone()));
    (x.clone(), x.meta.num_elements())
}

/// Instantiates the destructors of the objects created at each launch.
pub fn ends(fused: Vec<CubeOptimization<R>>, context: Context<CubeFusionHandle<R>>, operations: Vec<OperationIr>) {
    drop((fused, context, operations));
}
