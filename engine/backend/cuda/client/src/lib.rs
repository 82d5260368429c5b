//! The host's work at each launch on CUDA, compiled once and with optimisation.
//!
//! rustc shares instantiations of generic functions between crates at the dev profile's level: a function that one crate has
//! instantiated, the crates above it do not compile again. This crate instantiates what runs at each launch: the client of the
//! device, its queue and its memory, and the plans of fused elementwise kernels. `grove-cuda-kernels` above it has the kernels
//! themselves. Nothing here is called, and at other levels, where nothing is shared, the crate is empty.
#![cfg(shares_generics)]

use burn_backend::DType;
use burn_cubecl::{kernel, tensor::CubeTensor};
use burn_cubecl_fusion::{CubeFusionHandle, optim::elemwise::ElemwiseOptimization};
use burn_fusion::stream::Context;
use cubecl::cuda::CudaRuntime as R;
use std::ops::Range;

/// A fused elementwise kernel.
pub fn elementwise(fused: &ElemwiseOptimization<R>, context: &mut Context<CubeFusionHandle<R>>) {
    fused.execute(context);
}

/// Copies of tensors into contiguous memory.
pub fn contiguous(x: CubeTensor<R>) -> CubeTensor<R> {
    kernel::into_contiguous_aligned(kernel::into_contiguous(x))
}

/// Conversions.
pub fn cast(x: CubeTensor<R>, dtype: DType) -> CubeTensor<R> {
    kernel::cast(x, dtype)
}

/// Parts of tensors.
pub fn slice(x: CubeTensor<R>, parts: &[Range<usize>]) -> CubeTensor<R> {
    kernel::slice(x, parts)
}
