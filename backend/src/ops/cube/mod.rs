//! Kernels of our own for Burn's fusing backends (CUDA, wgpu, ROCm), in CubeCL.
//!
//! A fusing backend collects operations and joins them into kernels. What it does not join well, many small launches or
//! copies, is registered here as one [custom operation](register) with one kernel. Kernels need nothing of a device but
//! shared memory: no planes, no tensor cores, no atomics. They sum in f32.

mod attention;
mod cache;
mod chunk;
mod gemv;
mod leaves;
mod nll;
mod read;
mod reduce;
mod register;
mod rotary;
mod row_norm;
mod softmax;
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

            fn attend(
                inputs: [FloatTensor<Self>; 3],
                options: AttendOptions<Self>,
                keep: bool,
            ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
                let small =
                    $crate::ops::cube::attention::is_small(&inputs[0].shape(), &inputs[1].shape(), options.causal);
                if small && !keep && options.factors.is_none() {
                    let AttendOptions { scale, causal, hidden, .. } = options;
                    return ($crate::ops::cube::attention::attention(inputs, hidden, scale, causal), None);
                }
                $crate::ops::attend::forward::<Self>(inputs, options, keep)
            }

            fn append(
                buffers: [FloatTensor<Self>; 2],
                new: [FloatTensor<Self>; 2],
                at: usize,
                seen: Range<usize>,
            ) -> [[FloatTensor<Self>; 2]; 2] {
                $crate::ops::cube::cache::append(buffers, new, at, seen)
            }

            fn attention_weights(scores: FloatTensor<Self>, scale: f64, causal: bool) -> FloatTensor<Self> {
                $crate::ops::cube::softmax::attention_weights(scores, scale, causal)
            }

            fn attention_weights_backward(
                weights: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                scale: f64,
            ) -> FloatTensor<Self> {
                $crate::ops::cube::softmax::attention_weights_backward(weights, grad, scale)
            }

            fn nll(logits: FloatTensor<Self>, labels: IntTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
                $crate::ops::cube::nll::nll(logits, labels)
            }

            fn nll_backward(
                logits: FloatTensor<Self>,
                labels: IntTensor<Self>,
                normaliser: FloatTensor<Self>,
                grad: FloatTensor<Self>,
            ) -> FloatTensor<Self> {
                $crate::ops::cube::nll::nll_backward(logits, labels, normaliser, grad)
            }

            fn chunk(x: FloatTensor<Self>, count: usize, axis: usize) -> Vec<FloatTensor<Self>> {
                $crate::ops::cube::chunk::chunk(x, count, axis)
            }

            fn unchunk(parts: Vec<FloatTensor<Self>>, axis: usize) -> FloatTensor<Self> {
                if parts.len() > $crate::ops::cube::chunk::MOST_PARTS {
                    return Self::float_cat(parts, axis);
                }
                $crate::ops::cube::chunk::unchunk(parts, axis)
            }

            fn adam_step(leaf: [FloatTensor<Self>; 4], numbers: FloatTensor<Self>) -> [FloatTensor<Self>; 3] {
                let mut leaves = Self::adam_steps(vec![leaf], numbers);
                leaves.pop().expect("a leaf for a leaf")
            }

            fn adam_steps(
                leaves: Vec<[FloatTensor<Self>; 4]>,
                numbers: FloatTensor<Self>,
            ) -> Vec<[FloatTensor<Self>; 3]> {
                if numbers.dtype() != DType::F32 {
                    return leaves
                        .into_iter()
                        .map(|leaf| $crate::ops::optimizer::adam_step::<Self>(leaf, numbers.clone()))
                        .collect();
                }
                $crate::ops::cube::leaves::adam_steps(leaves, numbers)
            }

            fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
                match Self::sum_of_all_squares(vec![x]) {
                    Some(sum) => sum,
                    None => unreachable!("there is one tensor"),
                }
            }

            fn sum_of_all_squares(leaves: Vec<FloatTensor<Self>>) -> Option<FloatTensor<Self>> {
                if leaves.iter().any(|x| x.dtype() == DType::F64) {
                    let squares = leaves.into_iter().map($crate::ops::optimizer::sum_of_squares::<Self>);
                    return squares.reduce(Self::float_add);
                }
                let device = Self::float_device(leaves.first()?);
                let leaves: Vec<_> = leaves.into_iter().filter(|x| x.shape().num_elements() > 0).collect();
                let zero = || Self::float_zeros([1].into(), &device, FloatDType::F32);
                Some($crate::ops::cube::leaves::sum_of_squares(leaves).unwrap_or_else(zero))
            }

            fn start_read(x: FloatTensor<Self>) -> PendingRead {
                $crate::ops::cube::read::start_read(x)
            }

            fn scale_all(leaves: Vec<FloatTensor<Self>>, factor: FloatTensor<Self>) -> Vec<FloatTensor<Self>> {
                if factor.dtype() == DType::F64 {
                    return $crate::ops::optimizer::scale_all::<Self>(leaves, factor);
                }
                $crate::ops::cube::leaves::scale(leaves, factor)
            }
        }
    };
}

use burn::tensor::{
    DType, FloatDType, TensorMetadata,
    ops::{FloatTensor, FloatTensorOps, IntTensor},
};
use std::ops::Range;

use super::{AttendOptions, Backend, PendingRead, RowNormOptions};

#[cfg(feature = "cuda")]
fusing_backend!(burn_cuda::Cuda);
#[cfg(feature = "rocm")]
fusing_backend!(burn_rocm::Rocm);
#[cfg(feature = "wgpu")]
fusing_backend!(burn_wgpu::Wgpu);
