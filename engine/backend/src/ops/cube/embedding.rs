//! Gradient of an embedding table: one cube per position, of which the first one of each index writes a row.

use burn::tensor::TensorMetadata;
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    reduce::cube_max,
    register::{FusedTensor, register_one},
    tensor::{addresses, array, cubes, owned, units_for},
};

/// Number of positions that are searched for an index at once.
const CHUNK: usize = 2048;

/// The cube of the first position of an index sums the gradients of all positions of that index, in order. The other cubes
/// of the index exit.
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
    // A negative index wraps to a large number.
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
                    // Reads four positions at a time, to overlap the loads.
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
    // SAFETY: all tensors are contiguous. There is a gradient row per index, and only rows below `rows` are written.
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

/// Adds the gradients `[b, t, size]` of looked-up rows to the gradient of the table, `[rows, size]`, and returns it.
pub(super) fn embedding_backward<R: CubeRuntime>(
    sums: FusedTensor<R>,
    indices: FusedTensor<R>,
    grad: FusedTensor<R>,
) -> FusedTensor<R> {
    let output = (sums.shape(), sums.dtype());
    register_one("grove_embedding_grad", [sums, indices, grad], output, launch)
}
