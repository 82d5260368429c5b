//! Sums over the rows of a matrix, for the gradients of a bias and of a norm's weight.
//!
//! The rows are divided into parts, so that a matrix with few columns still occupies the whole device. A second launch sums
//! the parts.

use burn::tensor::{DType, TensorMetadata};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::{prelude::*, zspace::metadata::Metadata};

use super::{
    register::{FusedTensor, register, register_one},
    tensor::{addresses, array, cubes, empty},
};

/// Columns per cube, read by adjacent units.
const COLUMNS: usize = 32;
const UNITS: usize = 256;
/// Number of cubes that occupies a large device.
const CUBES: usize = 1024;
/// Minimum number of rows per part.
const ROWS: usize = 64;

/// Sums a matrix's columns over a part of the rows and, if `normal`, their products with the normalised rows of `x`.
#[cube(launch_unchecked, address_type = "dynamic")]
fn column_sums_kernel<X: Float, G: Float, S: Float>(
    x: &Array<X>,
    stats: &Array<f32>,
    grad: &Array<G>,
    products: &mut Array<S>,
    sums: &mut Array<S>,
    rows: usize,
    size: usize,
    part_rows: usize,
    blocks: usize,
    cubes: usize,
    #[comptime] normal: bool,
    #[define(X, G, S)] _dtypes: [StorageType; 3],
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let slices = comptime!(UNITS / COLUMNS);
    let unit = UNIT_POS as usize;
    let (part, block) = (CUBE_POS / blocks, CUBE_POS % blocks);
    let (column, slice) = (block * COLUMNS + unit % COLUMNS, unit / COLUMNS);
    let all = part * part_rows + part_rows;
    let end = select(all < rows, all, rows);
    let mut product = 0.0f32;
    let mut sum = 0.0f32;
    if column < size {
        let mut row = part * part_rows + slice;
        while row < end {
            let g = f32::cast_from(grad[row * size + column]);
            if comptime!(normal) {
                product += g * (f32::cast_from(x[row * size + column]) - stats[2 * row]) * stats[2 * row + 1];
            }
            sum += g;
            row += slices;
        }
    }
    let mut of_products = SharedMemory::<f32>::new(UNITS);
    let mut of_sums = SharedMemory::<f32>::new(UNITS);
    of_products[unit] = product;
    of_sums[unit] = sum;
    sync_cube();
    if slice == 0 && column < size {
        #[unroll]
        for i in 1..slices {
            product += of_products[unit + comptime!(i * COLUMNS)];
            sum += of_sums[unit + comptime!(i * COLUMNS)];
        }
        if comptime!(normal) {
            products[part * size + column] = S::cast_from(product);
        }
        sums[part * size + column] = S::cast_from(sum);
    }
}

/// Returns the sums of `part_rows` rows each, and of the products with the normalised rows of `norm`, a matrix and its
/// statistics.
fn parts<R: CubeRuntime>(
    grad: &CubeTensor<R>,
    norm: Option<[&CubeTensor<R>; 2]>,
    part_rows: usize,
    dtype: DType,
) -> [CubeTensor<R>; 2] {
    let shape = grad.shape();
    let (rows, size) = (shape[0], shape[1]);
    let (count, blocks) = (rows.div_ceil(part_rows), size.div_ceil(COLUMNS));
    let sums = empty(grad, [count, size], dtype);
    let products = if norm.is_some() { empty(grad, [count, size], dtype) } else { sums.clone() };
    let [x, stats] = norm.unwrap_or([grad; 2]);
    // SAFETY: all tensors are contiguous. Row and column indices are below those of the gradient, whose shape `x` has.
    // There is a pair of statistics per row, and an output row per part. Without a norm, `x`, `stats` and `products` are
    // not accessed.
    unsafe {
        column_sums_kernel::launch_unchecked(
            &grad.client,
            cubes(&grad.client, count * blocks),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[x, grad]),
            array(x),
            array(stats),
            array(grad),
            array(&products),
            array(&sums),
            rows,
            size,
            part_rows,
            blocks,
            count * blocks,
            norm.is_some(),
            [x.dtype.into(), grad.dtype.into(), dtype.into()],
        );
    }
    [products, sums]
}

/// Number of rows per part.
fn rows_of_a_part(rows: usize, size: usize) -> usize {
    let wanted = (CUBES / size.div_ceil(COLUMNS).max(1)).max(1);
    rows.div_ceil(wanted).max(ROWS)
}

/// Sums all rows as a single part.
fn total<R: CubeRuntime>(parts_of: &CubeTensor<R>, dtype: DType) -> CubeTensor<R> {
    let shape = parts_of.shape();
    let [_, mut sums] = parts(parts_of, None, shape[0].max(1), dtype);
    *sums.meta = Metadata::new([shape[1]], [1]);
    sums
}

fn sums<R: CubeRuntime>(grad: CubeTensor<R>, dtype: DType) -> CubeTensor<R> {
    let grad = into_contiguous(grad);
    let shape = grad.shape();
    let part_rows = rows_of_a_part(shape[0], shape[1]);
    if part_rows >= shape[0] {
        return total(&grad, dtype);
    }
    let [_, of_parts] = parts(&grad, None, part_rows, DType::F32);
    total(&of_parts, dtype)
}

fn norm_sums<R: CubeRuntime>(inputs: [CubeTensor<R>; 3], dtype: DType) -> [CubeTensor<R>; 2] {
    let [x, stats, grad] = inputs.map(into_contiguous);
    let shape = grad.shape();
    parts(&grad, Some([&x, &stats]), rows_of_a_part(shape[0], shape[1]), DType::F32)
        .map(|of_parts| total(&of_parts, dtype))
}

/// Returns the sums over the rows of `[rows, size]`, `[size]`. Sums are accumulated in f32 and rounded to the dtype.
pub(super) fn column_sums<R: CubeRuntime>(grad: FusedTensor<R>, dtype: DType) -> FusedTensor<R> {
    let output = ([grad.shape()[1]].into(), dtype);
    register_one("grove_column_sums", [grad], output, move |[grad]| sums(grad, dtype))
}

/// Returns the gradients of a norm's weight and bias, `[size]`, from the rows `x`, their statistics and the gradient.
pub(super) fn norm_column_sums<R: CubeRuntime>(inputs: [FusedTensor<R>; 3], dtype: DType) -> [FusedTensor<R>; 2] {
    let size = inputs[0].shape()[1];
    let outputs = [(); 2].map(|()| ([size].into(), dtype));
    register("grove_row_norm_weight_grad", inputs, outputs, move |inputs| norm_sums(inputs, dtype))
}
