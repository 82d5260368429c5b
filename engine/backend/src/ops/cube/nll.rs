//! Negative log-likelihood of labels: one cube per row in the forward pass, one unit per logit in the backward pass.

use burn::tensor::{DType, TensorMetadata};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    reduce::{cube_max, cube_sum},
    register::{FusedTensor, register, register_one},
    tensor::{addresses, array, cubes, empty, units_for},
};

const UNITS: usize = 256;

#[cube(launch_unchecked, address_type = "dynamic")]
fn nll_kernel<X: Float, L: Int>(
    logits: &Array<X>,
    labels: &Array<L>,
    losses: &mut Array<X>,
    normaliser: &mut Array<f32>,
    rows: usize,
    classes: usize,
    #[comptime] units: usize,
    #[define(X, L)] _dtypes: [StorageType; 2],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = SharedMemory::<f32>::new(units);
    let unit = UNIT_POS as usize;
    let start = row * classes;
    let mut largest = f32::min_value();
    let mut i = unit;
    while i < classes {
        let logit = f32::cast_from(logits[start + i]);
        largest = select(logit > largest, logit, largest);
        i += units;
    }
    let largest = cube_max(&mut shared, largest, units);
    let mut sum = 0.0f32;
    let mut i = unit;
    while i < classes {
        sum += f32::exp(f32::cast_from(logits[start + i]) - largest);
        i += units;
    }
    let total = cube_sum(&mut shared, sum, units);
    let log = f32::ln(total);
    if unit == 0 {
        // A negative label wraps to a large number.
        let label = usize::cast_from(labels[row]);
        // The logarithm of a negative number is NaN. GPU compilers reject NaN constants.
        let mut loss = f32::ln(-total);
        if label < classes {
            // The log-sum is subtracted from the shifted logit, which loses few digits.
            loss = log - (f32::cast_from(logits[start + label]) - largest);
        }
        losses[row] = X::cast_from(loss);
        normaliser[row] = log + largest;
    }
}

fn launch<R: CubeRuntime>(inputs: [CubeTensor<R>; 2]) -> [CubeTensor<R>; 2] {
    let [logits, labels] = inputs.map(into_contiguous);
    let shape = logits.shape();
    let (rows, classes) = (shape[0], shape[1]);
    let (losses, normaliser) = (empty(&logits, [rows], logits.dtype), empty(&logits, [rows], DType::F32));
    let units = units_for(classes);
    // SAFETY: row indices are below the number of rows of the logits, which all other tensors share, and class indices
    // below the number of classes. A label is used as an index only if it is a valid class.
    unsafe {
        nll_kernel::launch_unchecked(
            &logits.client,
            cubes(&logits.client, rows),
            CubeDim::new_1d(units as u32),
            addresses(&[&logits]),
            array(&logits),
            array(&labels),
            array(&losses),
            array(&normaliser),
            rows,
            classes,
            units,
            [logits.dtype.into(), labels.dtype.into()],
        );
    }
    [losses, normaliser]
}

/// See [`Nll`](crate::ops::Nll).
pub(super) fn nll<R: CubeRuntime>(logits: FusedTensor<R>, labels: FusedTensor<R>) -> [FusedTensor<R>; 2] {
    let rows = logits.shape()[0];
    let outputs = [([rows].into(), logits.dtype()), ([rows].into(), DType::F32)];
    register("grove_nll", [logits, labels], outputs, launch)
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn nll_grad_kernel<X: Float, L: Int, N: Float, G: Float>(
    logits: &Array<X>,
    labels: &Array<L>,
    normaliser: &Array<N>,
    grad: &Array<G>,
    slope: &mut Array<X>,
    count: usize,
    classes: usize,
    #[define(X, L, N, G)] _dtypes: [StorageType; 4],
) {
    let i = ABSOLUTE_POS;
    if i >= count {
        terminate!();
    }
    let (row, class) = (i / classes, i % classes);
    let mut probability = f32::exp(f32::cast_from(logits[i]) - f32::cast_from(normaliser[row]));
    if class == usize::cast_from(labels[row]) {
        probability -= 1.0f32;
    }
    slope[i] = X::cast_from(probability * f32::cast_from(grad[row]));
}

fn launch_grad<R: CubeRuntime>(inputs: [CubeTensor<R>; 4]) -> CubeTensor<R> {
    let [logits, labels, normaliser, grad] = inputs.map(into_contiguous);
    let shape = logits.shape();
    let (count, classes) = (shape.num_elements(), shape[1]);
    let slope = empty(&logits, shape, logits.dtype);
    let dtypes = [&logits, &labels, &normaliser, &grad].map(|x| x.dtype.into());
    // SAFETY: element indices are below the number of logits, which the result shares. The other tensors have one element
    // per row.
    unsafe {
        nll_grad_kernel::launch_unchecked(
            &logits.client,
            cubes(&logits.client, count.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&logits, &slope]),
            array(&logits),
            array(&labels),
            array(&normaliser),
            array(&grad),
            array(&slope),
            count,
            classes,
            dtypes,
        );
    }
    slope
}

/// Returns the gradient of the logits; see [`Nll`](crate::ops::Nll).
pub(super) fn nll_backward<R: CubeRuntime>(
    logits: FusedTensor<R>,
    labels: FusedTensor<R>,
    normaliser: FusedTensor<R>,
    grad: FusedTensor<R>,
) -> FusedTensor<R> {
    let output = (logits.shape(), logits.dtype());
    register_one("grove_nll_grad", [logits, labels, normaliser, grad], output, launch_grad)
}
