//! Burn's kernels on CUDA, compiled once and without optimisation.
//!
//! A kernel of CubeCL is a Rust function that writes the kernel's source: it runs once for each kernel, however often that is
//! launched. There are 7 million lines of LLVM's intermediate code of them, which rustc optimised for three minutes. This
//! crate is at level 0 and instantiates them; `grove-backend` above it, at level 1, takes them from here (see
//! `grove-cuda-client` for how, and for what the host does at each launch). Nothing here is called.
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

/// A matrix product, fused with elementwise operations.
pub fn fused_matmul(fused: &mut MatmulOptimization<R>, context: &mut Context<CubeFusionHandle<R>>, fallback: Fallback) {
    fused.execute(context, fallback);
}

/// A reduction, fused with elementwise operations.
pub fn fused_reduce(fused: &mut ReduceOptimization<R>, context: &mut Context<CubeFusionHandle<R>>, fallback: Fallback) {
    fused.execute(context, fallback);
}

/// Several reductions of the same rows, fused with elementwise operations.
pub fn fused_reductions(
    fused: &mut ReduceBroadcastedOptimization<R>,
    context: &mut Context<CubeFusionHandle<R>>,
    fallback: Fallback,
) {
    fused.execute(context, fallback);
}

/// A matrix product.
pub fn product(a: X, b: X, out: Option<X>, dtype: DType) -> Option<X> {
    matmul::matmul(a, b, out, Default::default(), dtype).ok()
}

/// A convolution.
pub fn convolution(x: X, weight: X, bias: Option<X>, options: ConvOptions<2>) -> Option<X> {
    conv::conv_forward(x, weight, bias, options, Default::default()).ok()
}

/// The gradient of a convolution's input.
pub fn convolution_input(grad: X, weight: X, shape: Shape, options: ConvOptions<2>) -> Option<X> {
    conv::conv_data_backward(grad, weight, shape, options, Default::default()).ok()
}

/// The gradient of a convolution's weight.
pub fn convolution_weight(x: X, grad: X, shape: Shape, options: ConvOptions<2>) -> Option<X> {
    conv::conv_weight_backward(x, grad, shape, options, Default::default()).ok()
}

/// A transposed convolution.
pub fn transposed_convolution(x: X, weight: X, bias: Option<X>, options: ConvTransposeOptions<2>) -> Option<X> {
    conv::conv_transpose2d(x, weight, bias, options, Default::default()).ok()
}

/// Reductions of all of a tensor, and along an axis.
pub fn reductions(x: X, dtype: Option<DType>, axis: usize, config: ReduceOperationConfig) -> [Option<X>; 2] {
    let all = reduce::reduce(x.clone(), dtype, Default::default(), config).ok();
    [all, reduce::reduce_dim(x, dtype, axis, Default::default(), config).ok()]
}

/// The sum of all of a tensor.
pub fn sum(x: X) -> Option<X> {
    reduce::sum(x, Default::default()).ok()
}

/// Attention.
pub fn attention([q, k, v]: [X; 3], mask: Option<X>, bias: Option<X>, options: AttentionModuleOptions) -> Option<X> {
    attention::attention(q, k, v, mask, bias, options, Default::default()).ok()
}
