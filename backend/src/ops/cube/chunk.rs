//! Taking a tensor apart along an axis, without a copy where the device allows it.

use burn::tensor::TensorMetadata;
use burn_cubecl::CubeRuntime;

use super::{
    register::{Lazy, register_all},
    tensor::view,
};

/// See [`Backend::chunk`](crate::Backend::chunk).
pub(super) fn chunk<R: CubeRuntime>(x: Lazy<R>, count: usize, axis: usize) -> Vec<Lazy<R>> {
    let (mut shape, dtype) = (x.shape(), x.dtype());
    assert!(count > 0 && shape[axis].is_multiple_of(count), "{count} equal parts of axis {axis} of {shape:?}");
    let size = shape[axis] / count;
    shape[axis] = size;
    let outputs = vec![(shape, dtype); count];
    register_all("grove_chunk", [x], outputs, move |[x]| {
        (0..count).map(|i| view(x.clone(), axis, i * size..(i + 1) * size)).collect()
    })
}
