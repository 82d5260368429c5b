//! The gradient of a table of which some rows were taken: one cube for each row that occurs.

use burn::tensor::TensorMetadata;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    reduce::cube_max,
    register::{Lazy, register},
    tensor::{addresses, array, cubes, owned, units_for},
};

/// Positions that are looked through for an index at once.
const CHUNK: usize = 2048;

/// The cube of the first position of an index adds up the gradients of all its positions, in their order, and the cubes of
/// the others end.
#[cube(launch_unchecked, address_type = "dynamic")]
fn embedding_grad_kernel<I: Int, G: Float, S: Float>(
    indices: &Array<I>,
    grad: &Array<G>,
    sums: &mut Array<S>,
    count: usize,
    rows: usize,
    size: usize,
    #[comptime] units: usize,
    #[define(I, G, S)] _dtypes: [StorageType; 3],
) {
    let position = CUBE_POS;
    if position >= count {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let index = indices[position];
    // A negative index is a large number here.
    let row = usize::cast_from(index);
    let mut shared = SharedMemory::<f32>::new(units);
    let mut earlier = 0.0f32;
    let mut i = unit;
    while i < position {
        earlier = select(indices[i] == index, 1.0f32, earlier);
        i += units;
    }
    if row >= rows || cube_max(&mut shared, earlier, units) > 0.0f32 {
        terminate!();
    }
    let mut first = 0;
    while first < size {
        let column = first + unit;
        let mut sum = 0.0f32;
        let mut start = position;
        while start < count {
            let end = select(start + CHUNK < count, start + CHUNK, count);
            let mut here = 0.0f32;
            let mut i = start + unit;
            while i < end {
                here = select(indices[i] == index, 1.0f32, here);
                i += units;
            }
            if cube_max(&mut shared, here, units) > 0.0f32 && column < size {
                let mut i = start;
                while i < end {
                    // Loads of four positions at once.
                    let mut of_four = 0.0f32;
                    #[unroll]
                    for j in 0..4 {
                        if i + j < end && indices[i + j] == index {
                            of_four += f32::cast_from(grad[(i + j) * size + column]);
                        }
                    }
                    sum += of_four;
                    i += 4;
                }
            }
            start += CHUNK;
        }
        if column < size {
            sums[row * size + column] = S::cast_from(f32::cast_from(sums[row * size + column]) + sum);
        }
        first += units;
    }
}

fn launch<R: CubeRuntime>([sums, indices, grad]: [CubeTensor<R>; 3]) -> CubeTensor<R> {
    let (sums, indices, grad) = (owned(sums), into_contiguous(indices), into_contiguous(grad));
    let shape = sums.meta.shape();
    let (rows, size) = (shape[0], shape[1]);
    let count = indices.meta.num_elements();
    let units = units_for(size);
    // SAFETY: all tensors are contiguous. There is a row of the gradient for each index, and only an index below the number
    // of rows is written to.
    unsafe {
        embedding_grad_kernel::launch_unchecked(
            &sums.client,
            cubes(&sums.client, count),
            CubeDim::new_1d(units as u32),
            addresses(&[&sums, &grad]),
            array(&indices),
            array(&grad),
            array(&sums),
            count,
            rows,
            size,
            units,
            [indices.dtype.into(), grad.dtype.into(), sums.dtype.into()],
        );
    }
    sums
}

/// Adds the gradients `[b, t, size]` of rows to those of the table, `[rows, size]`, which it returns.
pub(super) fn embedding_backward<R: CubeRuntime>(sums: Lazy<R>, indices: Lazy<R>, grad: Lazy<R>) -> Lazy<R> {
    let output = [(sums.shape(), sums.dtype())];
    let [sums] = register("grove_embedding_grad", [sums, indices, grad], output, |inputs| [launch(inputs)]);
    sums
}
