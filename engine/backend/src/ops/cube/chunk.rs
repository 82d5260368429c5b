//! Splitting a tensor along an axis, without a copy if the device supports the offsets, and joining parts in one launch.

use burn::tensor::TensorMetadata;
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    register::{FusedTensor, register_list},
    tensor::{addresses, cubes, empty, view},
};

const UNITS: usize = 256;

/// See [`Chunk`](crate::ops::Chunk).
pub(super) fn chunk<R: CubeRuntime>(x: FusedTensor<R>, count: usize, axis: usize) -> Vec<FusedTensor<R>> {
    let (mut shape, dtype) = (x.shape(), x.dtype());
    assert!(count > 0 && shape[axis].is_multiple_of(count), "{count} equal parts of axis {axis} of {shape:?}");
    let size = shape[axis] / count;
    shape[axis] = size;
    let outputs = vec![(shape, dtype); count];
    register_list("grove_chunk", vec![x], outputs, move |x| {
        (0..count).map(|i| view(x[0].clone(), axis, i * size..(i + 1) * size)).collect()
    })
}

/// Each unit copies `span` adjacent elements of the last axis, so that it decodes its index only once.
#[cube(launch_unchecked, address_type = "dynamic")]
fn join_kernel<X: Numeric>(
    parts: &Sequence<Tensor<X>>,
    joined: &mut Tensor<X>,
    count: usize,
    #[comptime] axis: usize,
    #[comptime] rank: usize,
    #[comptime] span: usize,
    #[define(X)] _dtype: StorageType,
) {
    let i = ABSOLUTE_POS * span;
    if i >= count {
        terminate!();
    }
    let size = joined.shape(axis) / parts.len();
    let at = i / joined.stride(axis) % joined.shape(axis);
    let part = at / size;
    #[unroll]
    for p in 0..parts.len() {
        if part == p {
            let x = parts.index(p);
            let mut from = (at % size) * x.stride(axis);
            #[unroll]
            for d in 0..rank {
                if comptime!(d != axis) {
                    from += i / joined.stride(d) % joined.shape(d) * x.stride(d);
                }
            }
            #[unroll]
            for j in 0..span {
                joined[i + comptime!(j)] = x[from + comptime!(j) * x.stride(comptime!(rank - 1))];
            }
        }
    }
}

fn join<R: CubeRuntime>(parts: Vec<CubeTensor<R>>, axis: usize) -> CubeTensor<R> {
    let mut shape = parts[0].shape();
    shape[axis] *= parts.len();
    let (rank, count) = (shape.num_dims(), shape.num_elements());
    let joined = empty(&parts[0], shape, parts[0].dtype);
    if count == 0 {
        return joined;
    }
    let last = parts[0].shape()[rank - 1];
    let span = [4, 2].into_iter().find(|span| last.is_multiple_of(*span)).unwrap_or(1);
    let address = addresses(&parts.iter().chain([&joined]).collect::<Vec<_>>());
    // SAFETY: the parts have one shape. The result is contiguous and has that shape, with the axis multiplied by the number
    // of parts. Each unit reads an element within a part's shape by the part's strides, and the following elements along
    // the last axis of the same part, whose size is a multiple of the span.
    unsafe {
        join_kernel::launch_unchecked(
            &joined.client,
            cubes(&joined.client, (count / span).div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            address,
            parts.iter().map(|part| part.clone().into_tensor_arg()).collect(),
            joined.clone().into_tensor_arg(),
            count,
            axis,
            rank,
            span,
            joined.dtype.into(),
        );
    }
    joined
}

/// Maximum number of parts that [`unchunk`] joins in one launch, limited by the device with the fewest bindings.
pub(super) const MAX_PARTS: usize = 4;

/// See [`Concat`](crate::ops::Concat).
///
/// # Panics
/// If there are no parts, or they differ in shape.
pub(super) fn unchunk<R: CubeRuntime>(parts: Vec<FusedTensor<R>>, axis: usize) -> FusedTensor<R> {
    let mut shape = parts[0].shape();
    assert!(parts.iter().all(|part| part.shape() == shape), "the parts differ in shape");
    shape[axis] *= parts.len();
    let outputs = vec![(shape, parts[0].dtype())];
    let mut joined = register_list("grove_unchunk", parts, outputs, move |parts| vec![join(parts, axis)]);
    joined.pop().expect("one output")
}
