//! Key-value cache: keys and values are written in place in one launch, and the visible part is a view.

use burn::tensor::TensorMetadata;
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::prelude::*;
use std::ops::Range;

use super::{
    register::{FusedTensor, register},
    tensor::{Strides, StridesLaunch, addresses, array, cubes, view},
};

const UNITS: usize = 256;

#[cube(launch_unchecked, address_type = "dynamic")]
fn append_kernel<X: Float>(
    new_keys: &Array<X>,
    new_values: &Array<X>,
    keys: &mut Array<X>,
    values: &mut Array<X>,
    from_keys: Strides,
    from_values: Strides,
    to_keys: Strides,
    to_values: Strides,
    count: usize,
    n_head: usize,
    t: usize,
    head_dim: usize,
    at: usize,
    #[define(X)] _dtype: StorageType,
) {
    let i = ABSOLUTE_POS;
    if i >= count {
        terminate!();
    }
    let (number, row) = (i % head_dim, i / head_dim);
    let (position, head, b) = (row % t, row / t % n_head, row / t / n_head);
    let from = b * from_keys.batch + head * from_keys.head + position * from_keys.position + number * from_keys.number;
    let to = b * to_keys.batch + head * to_keys.head + (at + position) * to_keys.position + number * to_keys.number;
    keys[to] = new_keys[from];
    let from =
        b * from_values.batch + head * from_values.head + position * from_values.position + number * from_values.number;
    let to =
        b * to_values.batch + head * to_values.head + (at + position) * to_values.position + number * to_values.number;
    values[to] = new_values[from];
}

/// Writes the new positions. Returns the buffers and their visible parts.
fn write<R: CubeRuntime>(
    [keys, values, new_keys, new_values]: [CubeTensor<R>; 4],
    at: usize,
    seen: Range<usize>,
) -> [CubeTensor<R>; 4] {
    // A tensor that is shared or overlaps itself is copied before it is written.
    let own = |x: CubeTensor<R>| if x.can_mut() && x.is_nonoverlapping() { x } else { x.copy() };
    let (keys, values) = (own(keys), own(values));
    let shape = new_keys.shape();
    let count = shape.num_elements();
    // SAFETY: each new element is read by its strides and written to an element of the buffers, which have room for `t`
    // positions from `at` on, as `append` asserts.
    unsafe {
        append_kernel::launch_unchecked(
            &keys.client,
            cubes(&keys.client, count.div_ceil(UNITS)),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&keys, &values, &new_keys, &new_values]),
            array(&new_keys),
            array(&new_values),
            array(&keys),
            array(&values),
            StridesLaunch::of(&new_keys),
            StridesLaunch::of(&new_values),
            StridesLaunch::of(&keys),
            StridesLaunch::of(&values),
            count,
            shape[1],
            shape[2],
            shape[3],
            at,
            keys.dtype.into(),
        );
    }
    let [seen_keys, seen_values] = [&keys, &values].map(|x| view(x.clone(), 2, seen.clone()));
    [keys, values, seen_keys, seen_values]
}

/// See [`UpdateCache`](crate::ops::UpdateCache).
pub(super) fn append<R: CubeRuntime>(
    inputs: [FusedTensor<R>; 4],
    at: usize,
    seen: Range<usize>,
) -> [FusedTensor<R>; 4] {
    let [keys, _, new_keys, _] = &inputs;
    let (shape, dtype) = (keys.shape(), keys.dtype());
    let (t, capacity) = (new_keys.shape()[2], shape[2]);
    assert!(at + t <= capacity && seen.end <= capacity, "{t} positions from {at} on in {capacity}");
    let mut shape_seen = shape.clone();
    shape_seen[2] = seen.len();
    let outputs = [&shape, &shape, &shape_seen, &shape_seen].map(|shape| (shape.clone(), dtype));
    register("grove_append", inputs, outputs, move |inputs| write(inputs, at, seen.clone()))
}
