//! Rotary position embedding: one unit per pair.

use burn::tensor::{Shape, TensorMetadata};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    register::{FusedTensor, register_one},
    tensor::{addresses, array, cubes, empty},
};

const UNITS: usize = 256;

/// Sizes and strides of `x`, `[b, t, n_head, 2 half]`.
#[derive(CubeType, CubeLaunch)]
struct Sizes {
    pairs: usize,
    t: usize,
    n_head: usize,
    half: usize,
    batch: usize,
    position: usize,
    head: usize,
    number: usize,
    /// Stride of the angles from one sequence to the next; 0 if all sequences share them.
    angles: usize,
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn rotate_kernel<X: Float, A: Float>(
    x: &Array<X>,
    cos: &Array<A>,
    sin: &Array<A>,
    y: &mut Array<X>,
    sizes: Sizes,
    #[comptime] interleaved: bool,
    #[define(X, A)] _dtypes: [StorageType; 2],
) {
    let pair = ABSOLUTE_POS;
    if pair >= sizes.pairs {
        terminate!();
    }
    let half = sizes.half;
    let (j, head) = (pair % half, pair / half % sizes.n_head);
    let position = pair / half / sizes.n_head;
    let (i, b) = (position % sizes.t, position / sizes.t);
    let (first, second) = if comptime!(interleaved) { (2 * j, 2 * j + 1) } else { (j, j + half) };
    let from = b * sizes.batch + i * sizes.position + head * sizes.head;
    let to = (pair / half) * 2 * half;
    let angle = b * sizes.angles + i * half + j;
    let (c, s) = (f32::cast_from(cos[angle]), f32::cast_from(sin[angle]));
    let p = f32::cast_from(x[from + first * sizes.number]);
    let q = f32::cast_from(x[from + second * sizes.number]);
    y[to + first] = X::cast_from(p * c - q * s);
    y[to + second] = X::cast_from(q * c + p * s);
}

fn launch<R: CubeRuntime>([x, cos, sin]: [CubeTensor<R>; 3], interleaved: bool) -> CubeTensor<R> {
    let (cos, sin) = (into_contiguous(cos), into_contiguous(sin));
    let (shape, strides): (Shape, _) = (x.shape(), x.meta.strides().clone());
    let (t, n_head, half) = (shape[1], shape[2], shape[3] / 2);
    let pairs = shape.num_elements() / 2;
    let y = empty(&x, shape, x.dtype);
    let angles = if cos.meta.shape()[0] == 1 { 0 } else { t * half };
    let sizes = SizesLaunch::new(pairs, t, n_head, half, strides[0], strides[1], strides[2], strides[3], angles);
    // SAFETY: each pair is within `x`, by its strides, and within `y`, which is contiguous. Its angle belongs to a position
    // of its sequence or of the shared angles.
    unsafe {
        rotate_kernel::launch_unchecked(
            &x.client,
            cubes(&x.client, pairs.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&x, &y]),
            array(&x),
            array(&cos),
            array(&sin),
            array(&y),
            sizes,
            interleaved,
            [x.dtype.into(), cos.dtype.into()],
        );
    }
    y
}

/// See [`Rope`](crate::ops::Rope).
pub(super) fn rotate<R: CubeRuntime>(
    x: FusedTensor<R>,
    cos: FusedTensor<R>,
    sin: FusedTensor<R>,
    interleaved: bool,
) -> FusedTensor<R> {
    let output = (x.shape(), x.dtype());
    register_one("grove_rotate", [x, cos, sin], output, move |inputs| launch(inputs, interleaved))
}
