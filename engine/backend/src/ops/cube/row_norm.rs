//! Normalisation of rows: one cube per row.

use burn::tensor::{DType, TensorMetadata};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    super::{RowNorm, precision::is_half},
    column_sums::norm_column_sums,
    reduce::cube_sum,
    register::{FusedTensor, register, register_one},
    tensor::{addresses, array, cubes, empty, units_for},
};

/// If `rounds`, 16-bit rows are rounded before they are scaled, and again before they are shifted.
#[cube(launch_unchecked, address_type = "dynamic")]
fn row_norm_kernel<X: Float, W: Float, B: Float>(
    x: &Array<X>,
    weight: &Array<W>,
    bias: &Array<B>,
    y: &mut Array<X>,
    stats: &mut Array<f32>,
    rows: usize,
    size: usize,
    row_stride: usize,
    column_stride: usize,
    eps: f32,
    #[comptime] centred: bool,
    #[comptime] has_bias: bool,
    #[comptime] rounds: bool,
    #[comptime] units: usize,
    #[define(X, W, B)] _dtypes: [StorageType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = SharedMemory::<f32>::new(units);
    let unit = UNIT_POS as usize;
    let (start, count) = (row * row_stride, f32::cast_from(size));
    let mut mean = 0.0f32;
    if comptime!(centred) {
        let mut sum = 0.0f32;
        let mut i = unit;
        while i < size {
            sum += f32::cast_from(x[start + i * column_stride]);
            i += units;
        }
        mean = cube_sum(&mut shared, sum, units) / count;
    }
    let mut squares = 0.0f32;
    let mut i = unit;
    while i < size {
        let difference = f32::cast_from(x[start + i * column_stride]) - mean;
        squares += difference * difference;
        i += units;
    }
    let inverse = 1.0f32 / f32::sqrt(cube_sum(&mut shared, squares, units) / count + eps);
    let mut i = unit;
    while i < size {
        let mut normal = (f32::cast_from(x[start + i * column_stride]) - mean) * inverse;
        let mut scale = f32::cast_from(weight[i]);
        if comptime!(rounds) {
            normal = f32::cast_from(X::cast_from(normal));
            scale = f32::cast_from(X::cast_from(scale));
        }
        let mut result = normal * scale;
        if comptime!(has_bias) {
            let mut shift = f32::cast_from(bias[i]);
            if comptime!(rounds) {
                result = f32::cast_from(X::cast_from(result));
                shift = f32::cast_from(X::cast_from(shift));
            }
            result += shift;
        }
        y[row * size + i] = X::cast_from(result);
        i += units;
    }
    if unit == 0 {
        stats[2 * row] = mean;
        stats[2 * row + 1] = inverse;
    }
}

fn forward<R: CubeRuntime>(
    x: CubeTensor<R>,
    weight: CubeTensor<R>,
    bias: Option<CubeTensor<R>>,
    options: RowNorm,
) -> [CubeTensor<R>; 2] {
    let (shape, strides) = (x.shape(), x.meta.strides().clone());
    let (rows, size) = (shape[0], shape[1]);
    let (y, stats) = (empty(&x, shape, x.dtype), empty(&x, [rows, 2], DType::F32));
    let (weight, bias) = (into_contiguous(weight), bias.map(into_contiguous));
    let (b, has_bias) = bias.as_ref().map_or((&weight, false), |bias| (bias, true));
    let units = units_for(size);
    let rounds = !options.centred && is_half(x.dtype);
    // SAFETY: row and column indices are below those of `x`, whose shape `y` has. There is a weight and a bias per column,
    // and a pair of statistics per row.
    unsafe {
        row_norm_kernel::launch_unchecked(
            &x.client,
            cubes(&x.client, rows),
            CubeDim::new_1d(units as u32),
            addresses(&[&x, &y]),
            array(&x),
            array(&weight),
            array(b),
            array(&y),
            array(&stats),
            rows,
            size,
            strides[0],
            strides[1],
            options.eps as f32,
            options.centred,
            has_bias,
            rounds,
            units,
            [x.dtype.into(), weight.dtype.into(), b.dtype.into()],
        );
    }
    [y, stats]
}

/// See [`RowNorm`].
pub(super) fn row_norm<R: CubeRuntime>(
    x: FusedTensor<R>,
    weight: FusedTensor<R>,
    bias: Option<FusedTensor<R>>,
    options: RowNorm,
) -> [FusedTensor<R>; 2] {
    let shape = x.shape();
    let outputs = [(shape.clone(), x.dtype()), ([shape[0], 2].into(), DType::F32)];
    match bias {
        Some(bias) => register("grove_row_norm", [x, weight, bias], outputs, move |[x, weight, bias]| {
            forward(x, weight, Some(bias), options)
        }),
        None => register("grove_row_norm", [x, weight], outputs, move |[x, weight]| forward(x, weight, None, options)),
    }
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn input_grad_kernel<X: Float, W: Float, G: Float>(
    x: &Array<X>,
    weight: &Array<W>,
    stats: &Array<f32>,
    grad: &Array<G>,
    dx: &mut Array<G>,
    rows: usize,
    size: usize,
    #[comptime] centred: bool,
    #[comptime] units: usize,
    #[define(X, W, G)] _dtypes: [StorageType; 3],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = SharedMemory::<f32>::new(units);
    let unit = UNIT_POS as usize;
    let (start, count) = (row * size, f32::cast_from(size));
    let (mean, inverse) = (stats[2 * row], stats[2 * row + 1]);
    let mut along = 0.0f32;
    let mut sum = 0.0f32;
    let mut i = unit;
    while i < size {
        let scaled = f32::cast_from(grad[start + i]) * f32::cast_from(weight[i]);
        along += scaled * (f32::cast_from(x[start + i]) - mean) * inverse;
        sum += scaled;
        i += units;
    }
    let along = cube_sum(&mut shared, along, units) / count;
    let mut shift = 0.0f32;
    if comptime!(centred) {
        shift = cube_sum(&mut shared, sum, units) / count;
    }
    let mut i = unit;
    while i < size {
        let scaled = f32::cast_from(grad[start + i]) * f32::cast_from(weight[i]);
        let normal = (f32::cast_from(x[start + i]) - mean) * inverse;
        dx[start + i] = G::cast_from((scaled - shift - normal * along) * inverse);
        i += units;
    }
}

fn input_grad<R: CubeRuntime>(inputs: [CubeTensor<R>; 4], options: RowNorm) -> CubeTensor<R> {
    let [x, weight, stats, grad] = inputs.map(into_contiguous);
    let shape = x.shape();
    let (rows, size) = (shape[0], shape[1]);
    let dx = empty(&x, shape, grad.dtype);
    let units = units_for(size);
    // SAFETY: all tensors are contiguous. Row and column indices are below those of `x`, whose shape the gradients have.
    unsafe {
        input_grad_kernel::launch_unchecked(
            &x.client,
            cubes(&x.client, rows),
            CubeDim::new_1d(units as u32),
            addresses(&[&x, &dx]),
            array(&x),
            array(&weight),
            array(&stats),
            array(&grad),
            array(&dx),
            rows,
            size,
            options.centred,
            units,
            [x.dtype.into(), weight.dtype.into(), grad.dtype.into()],
        );
    }
    dx
}

/// Returns the gradients of the inputs of [`RowNorm`].
pub(super) fn row_norm_backward<R: CubeRuntime>(
    [x, weight]: [FusedTensor<R>; 2],
    stats: FusedTensor<R>,
    grad: FusedTensor<R>,
    options: RowNorm,
    needs: [bool; 3],
) -> [Option<FusedTensor<R>>; 3] {
    let (shape, of_weight) = (x.shape(), weight.dtype());
    let sums = (needs[1] || needs[2]).then(|| norm_column_sums([x.clone(), stats.clone(), grad.clone()], of_weight));
    let dx = needs[0].then(|| {
        let output = (shape, grad.dtype());
        let inputs = [x, weight, stats, grad];
        register_one("grove_row_norm_input_grad", inputs, output, move |inputs| input_grad(inputs, options))
    });
    let [d_weight, d_bias] = sums.map_or([None, None], |sums| sums.map(Some));
    [dx, d_weight.filter(|_| needs[1]), d_bias.filter(|_| needs[2])]
}
