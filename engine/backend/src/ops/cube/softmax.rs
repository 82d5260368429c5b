//! Softmax of attention scores and its gradient: one cube per row.

use burn::tensor::TensorMetadata;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    Fusing,
    key_range::{Limits, Ranges, visible_keys},
    reduce::{cube_max, cube_sum},
    register::{FusedTensor, register_list, register_one},
    tensor::{addresses, array, cubes, empty, units_for},
};
use crate::ops::{KeyRanges, MaskedSoftmax, Values};

#[cube(launch_unchecked, address_type = "dynamic")]
fn softmax_kernel<X: Float, P: Int, L: Int>(
    scores: &Array<X>,
    padding: &Array<P>,
    lengths: &Array<L>,
    weights: &mut Array<X>,
    rows: usize,
    n_head: usize,
    t: usize,
    s: usize,
    window: usize,
    scale: f32,
    #[comptime] limits: Limits,
    #[comptime] units: usize,
    #[define(X, P, L)] _dtypes: [StorageType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = SharedMemory::<f32>::new(units);
    let unit = UNIT_POS as usize;
    let start = row * s;
    let keys = visible_keys::<P, L>(row / t / n_head, row % t, t, s, window, padding, lengths, limits);
    let (first, end) = (keys.start, keys.end);
    let mut largest = f32::min_value();
    let mut i = first + unit;
    while i < end {
        let score = f32::cast_from(scores[start + i]) * scale;
        largest = select(score > largest, score, largest);
        i += units;
    }
    let largest = cube_max(&mut shared, largest, units);
    let mut sum = 0.0f32;
    let mut i = first + unit;
    while i < end {
        sum += f32::exp(f32::cast_from(scores[start + i]) * scale - largest);
        i += units;
    }
    let sum = cube_sum(&mut shared, sum, units);
    // A fully masked row gives zeros. A NaN sum propagates.
    let divisor = select(sum == 0.0f32, 1.0f32, sum);
    let mut i = unit;
    while i < s {
        let mut weight = 0.0f32;
        if i >= first && i < end {
            weight = f32::exp(f32::cast_from(scores[start + i]) * scale - largest) / divisor;
        }
        weights[start + i] = X::cast_from(weight);
        i += units;
    }
}

fn launch<R: CubeRuntime>(inputs: Vec<CubeTensor<R>>, scale: f32, ranges: Ranges) -> CubeTensor<R> {
    let mut inputs = inputs.into_iter();
    let scores = into_contiguous(inputs.next().expect("the scores come first"));
    let [(padding, p_type), (lengths, l_type)] = ranges.tensors(inputs, &scores);
    let shape = scores.shape();
    let (n_head, t, s) = (shape[1], shape[2], shape[3]);
    let rows = shape[..3].iter().product::<usize>();
    let weights = empty(&scores, shape, scores.dtype);
    let units = units_for(s);
    // SAFETY: scores and weights are contiguous, with `rows` rows of `s` elements. Padding and lengths have one element per
    // sequence if they are read.
    unsafe {
        softmax_kernel::launch_unchecked(
            &scores.client,
            cubes(&scores.client, rows),
            CubeDim::new_1d(units as u32),
            addresses(&[&scores, &weights]),
            array(&scores),
            array(&padding),
            array(&lengths),
            array(&weights),
            rows,
            n_head,
            t,
            s,
            ranges.window,
            scale,
            ranges.limits,
            units,
            [scores.dtype.into(), p_type, l_type],
        );
    }
    weights
}

/// See [`MaskedSoftmax`].
pub(super) fn masked_softmax<R: CubeRuntime, B: Fusing<R>>(
    softmax: MaskedSoftmax,
    mut values: Values<B>,
) -> FusedTensor<R> {
    let (shape, scale) = (values.shape(0), softmax.scale as f32);
    let output = vec![(shape.clone(), values.dtype(0))];
    let mut inputs = vec![values.take_float(0)];
    let ranges = KeyRanges::take(softmax.causal, softmax.window, &mut values, 1);
    let ranges = Ranges::register(ranges, shape[3], &mut inputs);
    let weights = register_list("grove_softmax", inputs, output, move |inputs| vec![launch(inputs, scale, ranges)]);
    weights.into_iter().next().expect("one output was described")
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn softmax_grad_kernel<X: Float, G: Float>(
    weights: &Array<X>,
    grad: &Array<G>,
    slope: &mut Array<G>,
    rows: usize,
    s: usize,
    scale: f32,
    #[comptime] units: usize,
    #[define(X, G)] _dtypes: [StorageType; 2],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = SharedMemory::<f32>::new(units);
    let unit = UNIT_POS as usize;
    let start = row * s;
    let mut sum = 0.0f32;
    let mut i = unit;
    while i < s {
        sum += f32::cast_from(weights[start + i]) * f32::cast_from(grad[start + i]);
        i += units;
    }
    let mean = cube_sum(&mut shared, sum, units);
    let mut i = unit;
    while i < s {
        let weight = f32::cast_from(weights[start + i]) * scale;
        slope[start + i] = G::cast_from((f32::cast_from(grad[start + i]) - mean) * weight);
        i += units;
    }
}

fn launch_grad<R: CubeRuntime>(inputs: [CubeTensor<R>; 2], scale: f32) -> CubeTensor<R> {
    let [weights, grad] = inputs.map(into_contiguous);
    let shape = grad.shape();
    let s = shape[3];
    let rows = shape[..3].iter().product::<usize>();
    let slope = empty(&grad, shape, grad.dtype);
    let units = units_for(s);
    // SAFETY: all tensors are contiguous, with `rows` rows of `s` elements.
    unsafe {
        softmax_grad_kernel::launch_unchecked(
            &grad.client,
            cubes(&grad.client, rows),
            CubeDim::new_1d(units as u32),
            addresses(&[&weights, &slope]),
            array(&weights),
            array(&grad),
            array(&slope),
            rows,
            s,
            scale,
            units,
            [weights.dtype.into(), grad.dtype.into()],
        );
    }
    slope
}

/// Returns the gradient of the scores of [`MaskedSoftmax`].
pub(super) fn masked_softmax_backward<R: CubeRuntime>(
    weights: FusedTensor<R>,
    grad: FusedTensor<R>,
    scale: f64,
) -> FusedTensor<R> {
    let output = (grad.shape(), grad.dtype());
    register_one("grove_softmax_grad", [weights, grad], output, move |inputs| launch_grad(inputs, scale as f32))
}
