//! The softmax of attention's scores and its gradient: a cube to a row.

use burn::tensor::TensorMetadata;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    reduce::{cube_max, cube_sum},
    register::{Lazy, register},
    tensor::{addresses, array, cubes, empty, units_for},
};

#[cube(launch_unchecked, address_type = "dynamic")]
fn softmax_kernel<X: Float>(
    scores: &Array<X>,
    weights: &mut Array<X>,
    rows: usize,
    t: usize,
    s: usize,
    scale: f32,
    #[comptime] causal: bool,
    #[comptime] units: usize,
    #[define(X)] _dtype: StorageType,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = SharedMemory::<f32>::new(units);
    let unit = UNIT_POS as usize;
    let start = row * s;
    // Of more queries than keys the first see nothing.
    let mut seen = s;
    if comptime!(causal) {
        let reach = s + row % t + 1;
        seen = 0;
        if reach > t {
            seen = reach - t;
        }
    }
    let mut largest = f32::min_value();
    let mut i = unit;
    while i < seen {
        let score = f32::cast_from(scores[start + i]) * scale;
        largest = select(score > largest, score, largest);
        i += units;
    }
    let largest = cube_max(&mut shared, largest, units);
    let mut sum = 0.0f32;
    let mut i = unit;
    while i < seen {
        sum += f32::exp(f32::cast_from(scores[start + i]) * scale - largest);
        i += units;
    }
    let sum = cube_sum(&mut shared, sum, units);
    // A row from which all is hidden becomes zeros; a sum that is no number stays one.
    let divisor = select(sum == 0.0f32, 1.0f32, sum);
    let mut i = unit;
    while i < s {
        let mut weight = 0.0f32;
        if i < seen {
            weight = f32::exp(f32::cast_from(scores[start + i]) * scale - largest) / divisor;
        }
        weights[start + i] = X::cast_from(weight);
        i += units;
    }
}

fn launch<R: CubeRuntime>(scores: CubeTensor<R>, scale: f32, causal: bool) -> CubeTensor<R> {
    let scores = into_contiguous(scores);
    let shape = scores.shape();
    let (t, s) = (shape[2], shape[3]);
    let rows = shape[..3].iter().product::<usize>();
    let weights = empty(&scores, shape, scores.dtype);
    let units = units_for(s);
    // SAFETY: both are contiguous, of `rows` rows of `s` elements.
    unsafe {
        softmax_kernel::launch_unchecked(
            &scores.client,
            cubes(&scores.client, rows),
            CubeDim::new_1d(units as u32),
            addresses(&[&scores, &weights]),
            array(&scores),
            array(&weights),
            rows,
            t,
            s,
            scale,
            causal,
            units,
            scores.dtype.into(),
        );
    }
    weights
}

/// See [`Backend::attention_weights`](crate::Backend::attention_weights).
pub(super) fn attention_weights<R: CubeRuntime>(scores: Lazy<R>, scale: f64, causal: bool) -> Lazy<R> {
    let output = [(scores.shape(), scores.dtype())];
    let [weights] = register("grove_softmax", [scores], output, move |[scores]| [launch(scores, scale as f32, causal)]);
    weights
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
    // SAFETY: all are contiguous, of `rows` rows of `s` elements.
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

/// See [`Backend::attention_weights_backward`](crate::Backend::attention_weights_backward).
pub(super) fn attention_weights_backward<R: CubeRuntime>(weights: Lazy<R>, grad: Lazy<R>, scale: f64) -> Lazy<R> {
    let output = [(grad.shape(), grad.dtype())];
    let [slope] =
        register("grove_softmax_grad", [weights, grad], output, move |inputs| [launch_grad(inputs, scale as f32)]);
    slope
}
