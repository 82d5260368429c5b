//! Burn's CUDA kernels, compiled once and without optimisation.
//!
//! A CubeCL kernel is a Rust function that generates the kernel's source. It runs once per kernel, however often the kernel
//! is launched. These functions amount to 7 million lines of LLVM IR, which rustc would optimise for three minutes. This
//! crate instantiates them at level 0. `grove-backend`, at level 1, depends on it and uses these instantiations (see
//! `grove-cuda-client` for the mechanism, and for the host work of each launch). Nothing here is called.
#![cfg(shares_generics)]

pub mod operations;

use burn_backend::{
    DType, Shape,
    ops::{AttentionModuleOptions, ConvOptions, ConvTransposeOptions},
};
use burn_cubecl::{
    kernel::{attention, conv, matmul, reduce},
    tensor::CubeTensor,
};
use burn_cubecl_fusion::{
    CubeFusionHandle, FallbackOperation,
    optim::{
        matmul::MatmulOptimization, reduce::ReduceOptimization, reduce_broadcasted::ReduceBroadcastedOptimization,
    },
};
use burn_fusion::stream::Context;
use cubecl::cuda::CudaRuntime as R;
use cubek::reduce::components::instructions::ReduceOperationConfig;
use grove_cuda_client as _;

type X = CubeTensor<R>;
type Fallback = fn(usize) -> Box<dyn FallbackOperation<R>>;

/// Instantiates matrix products fused with elementwise operations.
pub fn fused_matmul(fused: &mut MatmulOptimization<R>, context: &mut Context<CubeFusionHandle<R>>, fallback: Fallback) {
    fused.execute(context, fallback);
}

/// Instantiates reductions fused with elementwise operations.
pub fn fused_reduce(fused: &mut ReduceOptimization<R>, context: &mut Context<CubeFusionHandle<R>>, fallback: Fallback) {
    fused.execute(context, fallback);
}

/// Instantiates several reductions of the same rows, fused with elementwise operations.
pub fn fused_reductions(
    fused: &mut ReduceBroadcastedOptimization<R>,
    context: &mut Context<CubeFusionHandle<R>>,
    fallback: Fallback,
) {
    fused.execute(context, fallback);
}

/// Instantiates matrix products.
pub fn product(a: X, b: X, out: Option<X>, dtype: DType) -> Option<X> {
    matmul::matmul(a, b, out, Default::default(), dtype).ok()
}

/// Instantiates convolutions.
pub fn convolution(x: X, weight: X, bias: Option<X>, options: ConvOptions<2>) -> Option<X> {
    conv::conv_forward(x, weight, bias, options, Default::default()).ok()
}

/// Instantiates the input gradient of convolutions.
pub fn convolution_input(grad: X, weight: X, shape: Shape, options: ConvOptions<2>) -> Option<X> {
    conv::conv_data_backward(grad, weight, shape, options, Default::default()).ok()
}

/// Instantiates the weight gradient of convolutions.
pub fn convolution_weight(x: X, grad: X, shape: Shape, options: ConvOptions<2>) -> Option<X> {
    conv::conv_weight_backward(x, grad, shape, options, Default::default()).ok()
}

/// Instantiates transposed convolutions.
pub fn transposed_convolution(x: X, weight: X, bias: Option<X>, options: ConvTransposeOptions<2>) -> Option<X> {
    conv::conv_transpose2d(x, weight, bias, options, Default::default()).ok()
}

/// Instantiates reductions of a whole tensor and along an axis.
pub fn reductions(x: X, dtype: Option<DType>, axis: usize, config: ReduceOperationConfig) -> [Option<X>; 2] {
    let all = reduce::reduce(x.clone(), dtype, Default::default(), config).ok();
    [all, reduce::reduce_dim(x, dtype, axis, Default::default(), config).ok()]
}

/// Instantiates the sum of a whole tensor.
pub fn sum(x: X) -> Option<X> {
    reduce::sum(x, Default::default()).ok()
}

/// Instantiates attention.
pub fn attention([q, k, v]: [X; 3], mask: Option<X>, bias: Option<X>, options: AttentionModuleOptions) -> Option<X> {
    attention::attention(q, k, v, mask, bias, options, Default::default()).ok()
}
