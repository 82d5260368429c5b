//! Kernels of our own for Burn's fusing backends (CUDA, wgpu, ROCm), in CubeCL.
//!
//! A fusing backend collects operations and joins them into kernels. What it does not join well, many small launches or
//! copies, is registered here as one [custom operation](register) with one kernel. Kernels need nothing of a device but
//! shared memory: no planes, no tensor cores, no atomics. They sum in f32.

mod adam;
mod gemv;
mod reduce;
mod register;
mod rotary;
mod row_norm;
mod tensor;

/// [`Backend`](crate::Backend) for a fusing backend, with the kernels of this module.
macro_rules! fusing_backend {
    ($backend:ty) => {
        impl crate::Backend for $backend {
            const FUSES_VECTORS_WRONGLY: bool = true;

            fn matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
                let (a, b) = (lhs.shape(), rhs.shape());
                let d = a.num_dims();
                let one_batch = a[..d - 2] == b[..d - 2] && lhs.dtype() == rhs.dtype();
                if one_batch && $crate::ops::cube::gemv::is_narrow(a[d - 2], a[d - 1], b[d - 1]) {
                    return $crate::ops::cube::gemv::matmul(lhs, rhs);
                }
                $crate::matmul::by_pairs::<Self>(lhs, rhs)
            }

            fn affine(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                bias: Option<FloatTensor<Self>>,
            ) -> FloatTensor<Self> {
                let (shape, weights) = (x.shape(), weight.shape());
                let rows = shape[..shape.num_dims() - 1].iter().product();
                if rows <= $crate::ops::cube::gemv::MOST_ROWS
                    && $crate::ops::cube::gemv::is_narrow(rows, weights[0], weights[1])
                {
                    return $crate::ops::cube::gemv::affine(x, weight, bias);
                }
                $crate::ops::affine::forward::<Self>(x, weight, bias)
            }

            fn rotate(
                x: FloatTensor<Self>,
                cos: FloatTensor<Self>,
                sin: FloatTensor<Self>,
                interleaved: bool,
            ) -> FloatTensor<Self> {
                $crate::ops::cube::rotary::rotate(x, cos, sin, interleaved)
            }

            fn row_norm(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                bias: Option<FloatTensor<Self>>,
                options: RowNormOptions,
            ) -> (FloatTensor<Self>, FloatTensor<Self>) {
                $crate::ops::cube::row_norm::row_norm(x, weight, bias, options)
            }

            fn row_norm_backward(
                inputs: [FloatTensor<Self>; 2],
                stats: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                options: RowNormOptions,
                needs: [bool; 3],
            ) -> [Option<FloatTensor<Self>>; 3] {
                $crate::ops::cube::row_norm::row_norm_backward(inputs, stats, grad, options, needs)
            }

            fn adam_step(leaf: [FloatTensor<Self>; 4], numbers: FloatTensor<Self>) -> [FloatTensor<Self>; 3] {
                $crate::ops::cube::adam::adam_step(leaf, numbers)
            }
        }
    };
}

use burn::tensor::{TensorMetadata, ops::FloatTensor};

use super::RowNormOptions;

#[cfg(feature = "cuda")]
fusing_backend!(burn_cuda::Cuda);
#[cfg(feature = "rocm")]
fusing_backend!(burn_rocm::Rocm);
#[cfg(feature = "wgpu")]
fusing_backend!(burn_wgpu::Wgpu);
