//! Products of a few rows with a matrix (gemv), as in decoding, in one launch including the bias.

use burn::tensor::{DType, Shape, TensorMetadata};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    register::{FusedTensor, register_one},
    tensor::{addresses, array, cubes, empty, joined},
};

/// Maximum number of rows for this kernel. Each row needs one more accumulator per unit; the matrix is read once.
pub(super) const MAX_ROWS: usize = 8;

const UNITS: usize = 256;

/// Sizes and strides of a product.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    k: usize,
    n: usize,
    x_batch: usize,
    x_row: usize,
    x_column: usize,
    weight_batch: usize,
    weight_row: usize,
    weight_column: usize,
    y_batch: usize,
    y_row: usize,
    y_column: usize,
}

/// A cube computes `columns` columns of all rows. Its units split the sums over `k`. Adjacent units read adjacent memory:
/// columns if the rows of the matrix are contiguous (`row_major`), otherwise terms of a sum.
#[cube(launch_unchecked, address_type = "dynamic")]
fn gemv_kernel<X: Float, W: Float, B: Float>(
    x: &Array<X>,
    weight: &Array<W>,
    bias: &Array<B>,
    y: &mut Array<X>,
    sizes: Sizes,
    blocks: usize,
    cubes: usize,
    #[comptime] rows: usize,
    #[comptime] columns: usize,
    #[comptime] row_major: bool,
    #[comptime] has_bias: bool,
    #[define(X, W, B)] _dtypes: [StorageType; 3],
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let slices = comptime!(UNITS / columns);
    let unit = UNIT_POS as usize;
    let (column, slice) =
        if comptime!(row_major) { (unit % columns, unit / columns) } else { (unit / slices, unit % slices) };
    let (batch, block) = (CUBE_POS / blocks, CUBE_POS % blocks);
    let n = block * columns + column;
    let mut sums = Array::<f32>::new(rows);
    #[unroll]
    for row in 0..rows {
        sums[row] = 0.0;
    }
    if n < sizes.n {
        let x_start = batch * sizes.x_batch;
        let weight_start = batch * sizes.weight_batch + n * sizes.weight_column;
        let mut k = slice;
        while k < sizes.k {
            let w = f32::cast_from(weight[weight_start + k * sizes.weight_row]);
            #[unroll]
            for row in 0..rows {
                sums[row] += f32::cast_from(x[x_start + row * sizes.x_row + k * sizes.x_column]) * w;
            }
            k += slices;
        }
    }
    let mut shared = SharedMemory::<f32>::new(comptime!(UNITS * rows));
    #[unroll]
    for row in 0..rows {
        shared[row * UNITS + unit] = sums[row];
    }
    sync_cube();
    #[unroll]
    for i in 0..comptime!(slices.trailing_zeros() as usize) {
        let half = comptime!(slices >> (i + 1));
        let partner = unit + if comptime!(row_major) { half * columns } else { half };
        if slice < half {
            #[unroll]
            for row in 0..rows {
                shared[row * UNITS + unit] += shared[row * UNITS + partner];
            }
        }
        sync_cube();
    }
    if slice == 0 && n < sizes.n {
        #[unroll]
        for row in 0..rows {
            let mut sum = shared[row * UNITS + unit];
            if comptime!(has_bias) {
                sum += f32::cast_from(bias[n]);
            }
            y[batch * sizes.y_batch + row * sizes.y_row + n * sizes.y_column] = X::cast_from(sum);
        }
    }
}

/// A batch of matrices, with the strides of batch, rows and columns.
struct Matrices<R: CubeRuntime> {
    tensor: CubeTensor<R>,
    batch: usize,
    sizes: [usize; 2],
    strides: [usize; 3],
}

impl<R: CubeRuntime> Matrices<R> {
    /// Takes the last two axes as the matrix. Copies only if the batch axes cannot be joined.
    fn new(tensor: CubeTensor<R>) -> Self {
        let read = |x: &CubeTensor<R>| {
            let (shape, strides, d) = (x.meta.shape(), x.meta.strides(), x.meta.num_dims());
            let (batch, stride) = joined(&shape[..d - 2], &strides[..d - 2])?;
            Some((batch, [shape[d - 2], shape[d - 1]], [stride, strides[d - 2], strides[d - 1]]))
        };
        let (tensor, (batch, sizes, strides)) = joined_or_copied(tensor, read);
        Self { tensor, batch, sizes, strides }
    }

    /// Takes the last axis as columns and joins all others into the rows of a single matrix.
    fn of_rows(tensor: CubeTensor<R>) -> Self {
        let read = |x: &CubeTensor<R>| {
            let (shape, strides, d) = (x.meta.shape(), x.meta.strides(), x.meta.num_dims());
            let (rows, stride) = joined(&shape[..d - 1], &strides[..d - 1])?;
            Some(([rows, shape[d - 1]], [0, stride, strides[d - 1]]))
        };
        let (tensor, (sizes, strides)) = joined_or_copied(tensor, read);
        Self { tensor, batch: 1, sizes, strides }
    }

    fn transposed(self) -> Self {
        let ([m, n], [batch, row, column]) = (self.sizes, self.strides);
        Self { sizes: [n, m], strides: [batch, column, row], ..self }
    }
}

/// Applies `read` to a tensor, or to a contiguous copy if it returns `None`.
fn joined_or_copied<R: CubeRuntime, T>(
    tensor: CubeTensor<R>,
    read: impl Fn(&CubeTensor<R>) -> Option<T>,
) -> (CubeTensor<R>, T) {
    if let Some(found) = read(&tensor) {
        return (tensor, found);
    }
    let tensor = into_contiguous(tensor);
    let found = read(&tensor).expect("contiguous axes can be taken as one");
    (tensor, found)
}

/// Computes `x W + b` into an output with the given strides of batch, rows and columns.
fn launch<R: CubeRuntime>(
    x: Matrices<R>,
    weight: Matrices<R>,
    bias: Option<CubeTensor<R>>,
    y: &CubeTensor<R>,
    y_strides: [usize; 3],
) {
    let ([rows, k], [_, n]) = (x.sizes, weight.sizes);
    let row_major = weight.strides[2] <= weight.strides[1];
    // At least a whole memory sector per row, and enough cubes to occupy the device.
    let columns = match n {
        _ if !row_major => 8,
        0..2048 => 8,
        2048..8192 => 16,
        _ => 32,
    };
    let blocks = n.div_ceil(columns);
    let count = x.batch * blocks;
    let sizes = SizesLaunch::new(
        k,
        n,
        x.strides[0],
        x.strides[1],
        x.strides[2],
        weight.strides[0],
        weight.strides[1],
        weight.strides[2],
        y_strides[0],
        y_strides[1],
        y_strides[2],
    );
    let bias = bias.map(into_contiguous);
    // Without a bias another array is passed as a placeholder, and is not read.
    let (b, has_bias) = bias.as_ref().map_or((&x.tensor, false), |bias| (bias, true));
    // SAFETY: `x` is read at rows and columns below its sizes, and weight and bias at columns below `n`, each by its own
    // strides. `y` has an element for each row and column.
    unsafe {
        gemv_kernel::launch_unchecked(
            &y.client,
            cubes(&y.client, count),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&x.tensor, &weight.tensor, y]),
            array(&x.tensor),
            array(&weight.tensor),
            array(b),
            array(y),
            sizes,
            blocks,
            count,
            rows,
            columns,
            row_major,
            has_bias,
            [x.tensor.dtype.into(), weight.tensor.dtype.into(), b.dtype.into()],
        );
    }
}

/// Returns true for a product `[m, k]` by `[k, n]` that this kernel supports.
pub(super) fn is_narrow(m: usize, k: usize, n: usize) -> bool {
    m.min(n) <= MAX_ROWS && m * n * k > 0
}

/// Returns the product of matrices, `[.., m, k]` and `[.., k, n]`, of the same batch. `m` or `n` must be small.
fn multiply<R: CubeRuntime>(lhs: CubeTensor<R>, rhs: CubeTensor<R>) -> CubeTensor<R> {
    let mut shape = lhs.shape();
    let d = shape.num_dims();
    let (m, n) = (shape[d - 2], rhs.meta.shape()[d - 1]);
    shape[d - 1] = n;
    let y = empty(&lhs, shape, lhs.dtype);
    let (lhs, rhs) = (Matrices::new(lhs), Matrices::new(rhs));
    if m <= MAX_ROWS {
        launch(lhs, rhs, None, &y, [m * n, n, 1]);
    } else {
        launch(rhs.transposed(), lhs.transposed(), None, &y, [m * n, 1, n]);
    }
    y
}

/// Returns the product of `[.., m, k]` and `[.., k, n]`, of one dtype. `m` or `n` must be small.
pub(super) fn matmul<R: CubeRuntime>(lhs: FusedTensor<R>, rhs: FusedTensor<R>) -> FusedTensor<R> {
    let (mut shape, dtype) = (lhs.shape(), lhs.dtype());
    let d = shape.num_dims();
    shape[d - 1] = rhs.shape()[d - 1];
    register_one("grove_gemv", [lhs, rhs], (shape, dtype), |[lhs, rhs]| multiply(lhs, rhs))
}

/// Returns `x W + b` for a few rows, `[.., k]`.
fn linear_rows<R: CubeRuntime>(x: CubeTensor<R>, weight: CubeTensor<R>, bias: Option<CubeTensor<R>>) -> CubeTensor<R> {
    let mut shape = x.shape();
    let (d, n) = (shape.num_dims(), weight.meta.shape()[1]);
    shape[d - 1] = n;
    let y = empty(&x, shape, x.dtype);
    launch(Matrices::of_rows(x), Matrices::new(weight), bias, &y, [0, n, 1]);
    y
}

/// Returns `x W + b` for a few rows, `[.., k]`, in the dtype of `x`. Weight and bias may have other dtypes.
pub(super) fn linear<R: CubeRuntime>(
    x: FusedTensor<R>,
    weight: FusedTensor<R>,
    bias: Option<FusedTensor<R>>,
) -> FusedTensor<R> {
    let (mut shape, dtype): (Shape, DType) = (x.shape(), x.dtype());
    let d = shape.num_dims();
    shape[d - 1] = weight.shape()[1];
    let output = (shape, dtype);
    match bias {
        Some(bias) => register_one("grove_linear", [x, weight, bias], output, |[x, weight, bias]| {
            linear_rows(x, weight, Some(bias))
        }),
        None => register_one("grove_linear", [x, weight], output, |[x, weight]| linear_rows(x, weight, None)),
    }
}
