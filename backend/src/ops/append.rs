//! A cache of keys and values, written with Burn's operations: the default of [`Backend`].

use burn::tensor::{Slice, TensorMetadata, ops::FloatTensor};
use std::ops::Range;

use super::Backend;

/// A buffer with new positions in it, and those that are seen.
pub(super) fn one<B: Backend>(
    buffer: FloatTensor<B>,
    new: FloatTensor<B>,
    at: usize,
    seen: Range<usize>,
) -> [FloatTensor<B>; 2] {
    let positions = |range: Range<usize>| [Slice::full(), Slice::full(), range.into(), Slice::full()];
    let t = new.shape()[2];
    let buffer = B::float_slice_assign(buffer, &positions(at..at + t), new);
    let seen = B::float_slice(buffer.clone(), &positions(seen));
    [buffer, seen]
}
