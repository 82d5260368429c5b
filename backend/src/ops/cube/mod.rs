//! CubeCL kernels of grove for Burn's fusing backends (CUDA, wgpu, ROCm).
//!
//! A fusing backend collects operations and fuses them into kernels. Operations that it does not fuse well, with many
//! small launches or copies, are registered here as one [custom operation](register) with one kernel. The kernels need
//! no device feature but shared memory: no planes, no tensor cores, no atomics. They sum in f32.
//!
//! Products and convolutions of f32 that tensor cores would [round](matmul) are custom operations too, with kernels of
//! CubeK.

mod attention;
mod cache;
mod chunk;
mod conv;
mod gemv;
mod key_range;
mod leaves;
pub(crate) mod matmul;
mod nll;
mod random;
mod read;
mod recurrent;
mod recurrent_step;
mod reduce;
mod register;
mod rotary;
mod row_norm;
mod sample;
mod softmax;
mod tensor;

/// Implements [`Backend`](crate::Backend) for a fusing backend, with the kernels of this module.
macro_rules! fusing_backend {
    ($backend:ty) => {
        impl crate::Backend for $backend {
            const FUSES_VECTORS_WRONGLY: bool = true;
            const SAMPLES: bool = true;

            fn matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
                let (a, b) = (lhs.shape(), rhs.shape());
                let d = a.num_dims();
                let one_batch = a[..d - 2] == b[..d - 2] && lhs.dtype() == rhs.dtype();
                if one_batch && $crate::ops::cube::gemv::is_narrow(a[d - 2], a[d - 1], b[d - 1]) {
                    return $crate::ops::cube::gemv::matmul(lhs, rhs);
                }
                let is_empty = a.num_elements() * b[d - 1] == 0;
                if lhs.dtype() == rhs.dtype() && !is_empty && $crate::ops::cube::matmul::must_stay_f32(&lhs) {
                    return $crate::ops::cube::matmul::matmul(lhs, rhs);
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
                if $crate::ops::cube::matmul::must_stay_f32(&x) {
                    return $crate::ops::affine::by_rows::<Self>(x, weight, bias);
                }
                $crate::ops::affine::forward::<Self>(x, weight, bias)
            }

            fn convolve(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                options: ConvolveOptions,
            ) -> FloatTensor<Self> {
                if $crate::ops::cube::matmul::must_stay_f32(&x) {
                    return $crate::ops::cube::conv::forward::<Self, _>(x, weight, options);
                }
                $crate::ops::convolve::forward::<Self>(x, weight, options)
            }

            fn convolve_backward(
                x: FloatTensor<Self>,
                weight: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                options: ConvolveOptions,
                needs: [bool; 2],
            ) -> [Option<FloatTensor<Self>>; 2] {
                if $crate::ops::cube::matmul::must_stay_f32(&x) {
                    return $crate::ops::cube::conv::backward::<Self, _>(x, weight, grad, options, needs);
                }
                $crate::ops::convolve::backward::<Self>(x, weight, grad, options, needs)
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
                let causal = options.visible.causal;
                let small = $crate::ops::cube::attention::is_small(&inputs[0].shape(), &inputs[1].shape(), causal);
                if small && !keep && options.dropout.is_none() {
                    return ($crate::ops::cube::attention::attention::<_, Self>(inputs, options), None);
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

            fn attention_weights(scores: FloatTensor<Self>, scale: f64, visible: KeyRanges<Self>) -> FloatTensor<Self> {
                $crate::ops::cube::softmax::attention_weights::<_, Self>(scores, scale, visible)
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

            fn random_bits(key: [u32; 2], shape: Shape, device: &Self::Device) -> IntTensor<Self> {
                $crate::ops::cube::random::random_bits(key, shape, device)
            }

            fn dropout(x: FloatTensor<Self>, dropout: Dropout) -> FloatTensor<Self> {
                $crate::ops::cube::random::dropout(x, dropout)
            }

            fn sample(
                logits: FloatTensor<Self>,
                occurred: Option<IntTensor<Self>>,
                options: SampleOptions,
            ) -> Option<SampledPrimitives<Self>> {
                Some($crate::ops::cube::sample::sample::<_, Self>(logits, occurred, options))
            }

            fn unchunk(parts: Vec<FloatTensor<Self>>, axis: usize) -> FloatTensor<Self> {
                if parts.len() > $crate::ops::cube::chunk::MOST_PARTS {
                    return Self::float_cat(parts, axis);
                }
                $crate::ops::cube::chunk::unchunk(parts, axis)
            }

            fn lstm(inputs: [FloatTensor<Self>; 6], steps: &Steps, keep: bool) -> Recurrence<Self, 2> {
                use $crate::ops::cube::recurrent::{Cell, forward, takes};
                if takes(&inputs) {
                    return forward::<Self, _>(Cell::Lstm, inputs, steps, keep);
                }
                $crate::ops::recurrent::lstm::<Self>(inputs, steps, keep)
            }

            fn lstm_backward(
                inputs: [FloatTensor<Self>; 6],
                kept: [FloatTensor<Self>; 2],
                output: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                steps: &Steps,
                needs: [bool; 6],
            ) -> [Option<FloatTensor<Self>>; 6] {
                use $crate::ops::cube::recurrent::{Cell, backward, takes};
                if takes(&inputs) && grad.dtype() == inputs[0].dtype() {
                    return backward::<Self, _>(Cell::Lstm, inputs, kept, output, grad, steps, needs);
                }
                $crate::ops::recurrent::lstm_backward::<Self>(inputs, kept, output, grad, steps, needs)
            }

            fn gru(inputs: [FloatTensor<Self>; 5], reset: GruReset, steps: &Steps, keep: bool) -> Recurrence<Self, 2> {
                use $crate::ops::cube::recurrent::{Cell, forward, takes};
                if reset == GruReset::After && takes(&inputs) {
                    let [x, w_ih, w_hh, bias, h] = inputs;
                    return forward::<Self, _>(Cell::Gru, [x, w_ih, w_hh, bias, h.clone(), h], steps, keep);
                }
                $crate::ops::recurrent::gru::<Self>(inputs, reset, steps, keep)
            }

            fn gru_backward(
                inputs: [FloatTensor<Self>; 5],
                kept: [FloatTensor<Self>; 2],
                output: FloatTensor<Self>,
                grad: FloatTensor<Self>,
                reset: GruReset,
                steps: &Steps,
                needs: [bool; 5],
            ) -> [Option<FloatTensor<Self>>; 5] {
                use $crate::ops::cube::recurrent::{Cell, backward, takes};
                if reset == GruReset::After && takes(&inputs) && grad.dtype() == inputs[0].dtype() {
                    let [x, w_ih, w_hh, bias, h] = inputs;
                    let [x_needs, w_ih_needs, w_hh_needs, bias_needs, h_needs] = needs;
                    let needs = [x_needs, w_ih_needs, w_hh_needs, bias_needs, h_needs, false];
                    let inputs = [x, w_ih, w_hh, bias, h.clone(), h];
                    let grads = backward::<Self, _>(Cell::Gru, inputs, kept, output, grad, steps, needs);
                    let [dx, dw_ih, dw_hh, db, dh, _] = grads;
                    return [dx, dw_ih, dw_hh, db, dh];
                }
                $crate::ops::recurrent::gru_backward::<Self>(inputs, kept, output, grad, reset, steps, needs)
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
    DType, FloatDType, Shape, TensorMetadata,
    ops::{FloatTensor, FloatTensorOps, IntTensor},
};
use std::ops::Range;

use super::{
    AttendOptions, ConvolveOptions, Dropout, GruReset, KeyRanges, PendingRead, Recurrence, RowNormOptions,
    SampleOptions, SampledPrimitives, Steps,
};

#[cfg(feature = "cuda")]
fusing_backend!(burn_cuda::Cuda);
#[cfg(feature = "rocm")]
fusing_backend!(burn_rocm::Rocm);
#[cfg(feature = "wgpu")]
fusing_backend!(burn_wgpu::Wgpu);
