//! Range of keys that a query attends to, computed in kernels; see [`KeyRanges`].

use burn::tensor::{DType, Tensor};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{Fusing, register::FusedTensor};
use crate::KeyRanges;

/// A half-open range of keys.
#[derive(CubeType)]
pub(super) struct KeyRange {
    pub start: usize,
    pub end: usize,
}

/// Limits of the ranges that are present. A kernel is compiled for each combination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Limits {
    causal: bool,
    windowed: bool,
    padded: bool,
    bounded: bool,
}

/// Returns the keys, out of `s`, that one of `t` queries attends to.
#[cube]
#[allow(clippy::collapsible_if)] // one is taken when the kernel is generated, the other when it runs
pub(super) fn visible_keys<P: Int, L: Int>(
    b: usize,
    query: usize,
    t: usize,
    s: usize,
    window: usize,
    padding: &Array<P>,
    lengths: &Array<L>,
    #[comptime] limits: Limits,
) -> KeyRange {
    let mut start = 0usize;
    let mut end = s;
    if comptime!(limits.causal) {
        // With more queries than keys, the first queries attend to nothing.
        let reach = s + query + 1;
        end = 0;
        if reach > t {
            end = reach - t;
        }
    }
    if comptime!(limits.windowed) {
        if end > window {
            start = end - window;
        }
    }
    if comptime!(limits.padded) {
        let before = i32::cast_from(padding[b]);
        if before > 0 {
            let first = usize::cast_from(before);
            start = select(first > start, first, start);
            if comptime!(limits.causal) {
                // A padding query attends to its own key.
                if end > 0 && start >= end {
                    start = end - 1;
                }
            }
        }
    }
    if comptime!(limits.bounded) {
        let length = i32::cast_from(lengths[b]);
        let length = select(length > 0, usize::cast_from(length), 0usize);
        end = select(length < end, length, end);
    }
    start = select(start > end, end, start);
    KeyRange { start, end }
}

/// [`KeyRanges`] without their tensors, which are inputs of an operation.
#[derive(Clone, Copy)]
pub(super) struct Ranges {
    pub limits: Limits,
    pub window: usize,
}

impl Ranges {
    /// Returns the ranges of an operation on `s` keys, and appends their tensors to the operation's inputs.
    pub(super) fn register<R: CubeRuntime, B: Fusing<R>>(
        ranges: KeyRanges<B>,
        s: usize,
        inputs: &mut Vec<FusedTensor<R>>,
    ) -> Self {
        let KeyRanges { causal, window, padding, lengths } = ranges;
        let window = window.filter(|&window| window < s);
        let limits =
            Limits { causal, windowed: window.is_some(), padded: padding.is_some(), bounded: lengths.is_some() };
        inputs.extend(padding.into_iter().chain(lengths).map(Tensor::into_primitive));
        Self { limits, window: window.unwrap_or(s) }
    }

    /// Returns padding and lengths from the remaining inputs of an operation. `other` is a placeholder for missing ones,
    /// and is not read.
    pub(super) fn tensors<R: CubeRuntime>(
        &self,
        mut inputs: impl Iterator<Item = CubeTensor<R>>,
        other: &CubeTensor<R>,
    ) -> [(CubeTensor<R>, StorageType); 2] {
        [self.limits.padded, self.limits.bounded].map(|given| match given.then(|| inputs.next()).flatten() {
            Some(numbers) => {
                let dtype = numbers.dtype.into();
                (into_contiguous(numbers), dtype)
            }
            None => (other.clone(), DType::I32.into()),
        })
    }
}
