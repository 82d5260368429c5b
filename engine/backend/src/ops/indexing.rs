//! Scatter updates at indices: JAX's `x.at[indices]` with all of its updates.
//!
//! Burn's methods of these names only support sums. Here the indices are sorted, updates of equal indices are combined in
//! order, and each element then gathers its own value. All backends, traces and derivatives thus follow the same rule.

use burn::tensor::{Bool, IndexingUpdateOp as Update, Int, Tensor};
use burn_backend::tensor::{BasicOps, Ordered};

use super::{Backend, argsort_int};

/// Selects indices of the first axis, like Burn's `select`. candle's `select` accepts contiguous tensors only; this function
/// accepts all.
///
/// # Shapes
/// - x `[n, ..]`, indices `[k]`, result `[k, ..]`
pub fn select_rows<B: Backend, const D: usize, K: BasicOps<B>>(
    x: Tensor<B, D, K>,
    indices: Tensor<B, 1, Int>,
) -> Tensor<B, D, K> {
    let shape = x.dims();
    // Reshaping makes a tensor contiguous.
    x.reshape([shape.iter().product::<usize>()]).reshape(shape).select(0, indices)
}

/// Updates slices along an axis: JAX's `x.at[indices].set(values)`, `add`, `multiply`, `min` and `max`, along any axis. If
/// an index occurs several times, `set` keeps the last slice, and the other updates are combined.
///
/// Overwritten values have gradient zero. Of equal minima or maxima, the array's element gets the gradient, then the first
/// of the values. NaN propagates.
///
/// # Shapes
/// - x `[.., n, ..]`, indices `[k]`, values `[.., k, ..]`
///
/// # Panics
/// If the shapes do not match, or an index is out of range. XLA ignores updates out of range.
#[track_caller]
pub fn select_assign<B: Backend, const D: usize, K: Ordered<B>>(
    x: Tensor<B, D, K>,
    axis: usize,
    indices: Tensor<B, 1, Int>,
    values: Tensor<B, D, K>,
    update: Update,
) -> Tensor<B, D, K> {
    let ([k], shape) = (indices.dims(), x.dims());
    assert!(axis < D, "the array {shape:?} has no axis {axis}");
    let expected = with_size(shape, axis, k);
    let found = values.dims();
    assert!(found == expected, "{k} slices along axis {axis} of {shape:?} have the shape {expected:?}, not {found:?}");
    if k == 0 {
        return x;
    }
    if let Update::Add = update {
        return x.select_assign(axis, indices, values, update);
    }
    let order = argsort_int(indices.clone(), 0, false);
    let sorted = indices.select(0, order.clone());
    let mut values = values.select(axis, order);
    let along = |size: usize| with_size([1; D], axis, size);
    if let Some(combine) = combination(update) {
        let of_values = sorted.clone().reshape(along(k)).expand(expected);
        values = combine(x.clone().select(axis, sorted.clone()), accumulated(values, &of_values, axis, combine));
    }
    let (slots, is_updated) = slots(sorted, 0, shape[axis]);
    x.mask_where(is_updated.reshape(along(shape[axis])).expand(shape), values.select(axis, slots))
}

/// Updates elements along an axis at elementwise indices. Otherwise like [`select_assign`]; JAX's `x.at[i, indices[i, j]]`
/// for axis 1 of two.
///
/// # Shapes
/// - x `[.., n, ..]`, indices and values `[.., k, ..]`
///
/// # Panics
/// If the shapes do not match, or an index is out of range. XLA ignores updates out of range.
#[track_caller]
pub fn scatter<B: Backend, const D: usize, K: Ordered<B>>(
    x: Tensor<B, D, K>,
    axis: usize,
    indices: Tensor<B, D, Int>,
    values: Tensor<B, D, K>,
    update: Update,
) -> Tensor<B, D, K> {
    let (shape, found) = (x.dims(), indices.dims());
    assert!(axis < D, "the array {shape:?} has no axis {axis}");
    let expected = with_size(shape, axis, found[axis]);
    assert!(found == expected, "indices along axis {axis} of {shape:?} have the shape {expected:?}, not {found:?}");
    assert!(
        values.dims() == expected,
        "values of the shape {:?} were given for indices of the shape {expected:?}",
        values.dims()
    );
    if found[axis] == 0 {
        return x;
    }
    if let Update::Add = update {
        return x.scatter(axis, indices, values, update);
    }
    let order = argsort_int(indices.clone(), axis, false);
    let sorted = indices.gather(axis, order.clone());
    let mut values = values.gather(axis, order);
    if let Some(combine) = combination(update) {
        values = combine(x.clone().gather(axis, sorted.clone()), accumulated(values, &sorted, axis, combine));
    }
    let (slots, is_updated) = slots(sorted, axis, shape[axis]);
    x.mask_where(is_updated, values.gather(axis, slots))
}

/// Replaces slices along an axis: [`select_assign`] with `set`, PyTorch's `index_copy`.
///
/// # Shapes
/// - x `[.., n, ..]`, indices `[k]`, values `[.., k, ..]`
///
/// # Panics
/// If the shapes do not match, or an index is out of range. XLA ignores updates out of range.
#[track_caller]
pub fn index_copy<B: Backend, const D: usize, K: Ordered<B>>(
    x: Tensor<B, D, K>,
    axis: usize,
    indices: Tensor<B, 1, Int>,
    values: Tensor<B, D, K>,
) -> Tensor<B, D, K> {
    select_assign(x, axis, indices, values, Update::Assign)
}

fn with_size<const D: usize>(mut shape: [usize; D], axis: usize, size: usize) -> [usize; D] {
    shape[axis] = size;
    shape
}

/// A function of two arrays of the same shape.
type Combination<B, const D: usize, K> = fn(Tensor<B, D, K>, Tensor<B, D, K>) -> Tensor<B, D, K>;

/// Returns the combination of an earlier and a later value; `None` if the later value replaces the earlier.
fn combination<B: Backend, const D: usize, K: Ordered<B>>(update: Update) -> Option<Combination<B, D, K>> {
    /// Selects the earlier value if the mask is true or the earlier value is NaN.
    fn either<B: Backend, const D: usize, K: Ordered<B>>(
        [a, b]: [Tensor<B, D, K>; 2],
        is_earlier: Tensor<B, D, Bool>,
    ) -> Tensor<B, D, K> {
        let is_nan = a.clone().not_equal(a.clone());
        b.mask_where(is_earlier.bool_or(is_nan), a)
    }
    match update {
        Update::Assign => None,
        Update::Add => Some(|a, b| a + b),
        Update::Mul => Some(|a, b| a * b),
        Update::Min => Some(|a, b| either([a.clone(), b.clone()], a.lower_equal(b))),
        Update::Max => Some(|a, b| either([a.clone(), b.clone()], a.greater_equal(b))),
    }
}

/// Combines each element along an axis with all earlier elements of the same index. Indices are sorted.
fn accumulated<B: Backend, const D: usize, K: Ordered<B>>(
    mut values: Tensor<B, D, K>,
    sorted: &Tensor<B, D, Int>,
    axis: usize,
    combine: Combination<B, D, K>,
) -> Tensor<B, D, K> {
    let k = values.dims()[axis];
    let mut step = 1;
    // Each element combines the last `step` elements up to itself.
    while step < k {
        let pair = |start: usize| values.clone().narrow(axis, start, k - step);
        let index = |start: usize| sorted.clone().narrow(axis, start, k - step);
        let combined = pair(step).mask_where(index(0).equal(index(step)), combine(pair(0), pair(step)));
        values = Tensor::cat(vec![values.clone().narrow(axis, 0, step), combined], axis);
        step *= 2;
    }
    values
}

/// For each element along an axis of length `size`: the last position with its index, and whether one exists. Indices are
/// sorted.
fn slots<B: Backend, const D: usize>(
    sorted: Tensor<B, D, Int>,
    axis: usize,
    size: usize,
) -> (Tensor<B, D, Int>, Tensor<B, D, Bool>) {
    let (dims, device, dtype) = (sorted.dims(), sorted.device(), sorted.dtype());
    let k = dims[axis];
    let numbers = Tensor::<B, 1, Int>::arange(1..k as i64 + 1, &device).cast(dtype);
    let numbers = numbers.reshape(with_size([1; D], axis, k)).expand(dims);
    let last = Tensor::<B, D, Int>::full(with_size(dims, axis, 1), k as i64, (&device, dtype));
    let staying = match k {
        1 => last,
        _ => {
            let index = |start: usize| sorted.clone().narrow(axis, start, k - 1);
            let not_last = numbers.narrow(axis, 0, k - 1).mask_fill(index(0).equal(index(1)), 0);
            Tensor::cat(vec![not_last, last], axis)
        }
    };
    let none = Tensor::<B, D, Int>::zeros(with_size(dims, axis, size), (&device, dtype));
    let slots = none.scatter(axis, sorted, staying, Update::Add);
    ((slots.clone() - 1).clamp_min(0), slots.greater_elem(0))
}
