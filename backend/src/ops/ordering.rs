//! Functions of the order and the positions of elements: sorts, the largest elements, and arrays with parts replaced.

use burn::tensor::{IndexingUpdateOp, Int, Tensor};

use super::{Argsort, Backend, Values, functions::apply};

/// Returns the positions of the elements along an axis in the order of their values; see [`Argsort`]. Burn's method of this name
/// reads its tensor, which a trace has no values for.
///
/// # Panics
/// If there is no such axis.
#[track_caller]
pub fn argsort<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize, descending: bool) -> Tensor<B, D, Int> {
    Tensor::from_primitive(apply::<B>(Argsort { axis, descending }, Values::default().with(x)).take_int(0))
}

/// As [`argsort`], of integers.
///
/// # Panics
/// If there is no such axis.
#[track_caller]
pub fn argsort_int<B: Backend, const D: usize>(
    x: Tensor<B, D, Int>,
    axis: usize,
    descending: bool,
) -> Tensor<B, D, Int> {
    Tensor::from_primitive(apply::<B>(Argsort { axis, descending }, Values::default().with(x)).take_int(0))
}

/// Returns the elements along an axis in order: `jax.numpy.sort`. Each element gets the gradient of its place. Equal elements
/// stay in order, and NaN is larger than all others.
///
/// # Panics
/// If there is no such axis.
#[track_caller]
pub fn sort<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize, descending: bool) -> Tensor<B, D> {
    let order = argsort(x.clone(), axis, descending);
    x.gather(axis, order)
}

/// Returns the `k` largest elements along an axis, the largest first, and their positions: `jax.lax.top_k` along any axis. Of
/// equal elements the first comes first, NaN is larger than all others, and each element gets the gradient of its place.
///
/// # Shapes
/// - x `[.., n, ..]`
/// - outputs `[.., k, ..]`
///
/// # Panics
/// If there is no such axis, or `k` is larger than it.
#[track_caller]
pub fn top_k<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize, k: usize) -> (Tensor<B, D>, Tensor<B, D, Int>) {
    let size = x.dims().get(axis).copied().unwrap_or_default();
    assert!(k <= size, "the {k} largest of {size} elements are asked for");
    let positions = argsort(x.clone(), axis, true).narrow(axis, 0, k);
    (x.gather(axis, positions.clone()), positions)
}

/// Returns 1 at the position of each index along a new last axis, and 0 elsewhere: `jax.nn.one_hot`. An index out of range has no
/// 1.
///
/// # Shapes
/// - indices `[..]`
/// - output `[.., classes]`, so that `E` is `D + 1`
pub fn one_hot<B: Backend, const D: usize, const E: usize>(indices: Tensor<B, D, Int>, classes: usize) -> Tensor<B, E> {
    let device = indices.device();
    let along: [usize; E] = std::array::from_fn(|axis| if axis + 1 == E { classes } else { 1 });
    let places = Tensor::<B, 1, Int>::arange(0..classes as i64, &device).cast(indices.dtype()).reshape(along);
    indices.unsqueeze_dim::<E>(D).equal(places).float()
}

/// Returns an array with slices along an axis replaced: `x.at[indices].set(values)` of JAX, `index_copy` of PyTorch. Where an
/// index occurs several times, its last slice stays. Slices that are replaced, and those that do not stay, have a gradient of
/// zero.
///
/// To add slices, `select_assign` with [`IndexingUpdateOp::Add`] is a method of tensors.
///
/// # Shapes
/// - x `[.., n, ..]`, indices `[k]`, values `[.., k, ..]`
///
/// # Panics
/// If the shapes do not fit, or an index is out of range; on XLA it is moved into the range.
#[track_caller]
pub fn index_copy<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    axis: usize,
    indices: Tensor<B, 1, Int>,
    values: Tensor<B, D>,
) -> Tensor<B, D> {
    let ([k], device, shape) = (indices.dims(), indices.device(), x.dims());
    let mut expected = shape;
    assert!(axis < D, "the array {shape:?} has no axis {axis}");
    expected[axis] = k;
    let found = values.dims();
    assert!(found == expected, "{k} slices along axis {axis} of {shape:?} are {expected:?}, and {found:?} are given");
    if k == 0 {
        return x;
    }
    // Of equal indices, the last in their order stays.
    let order = argsort_int(indices.clone(), 0, false);
    let sorted = indices.select(0, order.clone());
    let last = match k {
        1 => Tensor::full([1], true, &device),
        _ => {
            let differs = sorted.clone().narrow(0, 1, k - 1).not_equal(sorted.clone().narrow(0, 0, k - 1));
            Tensor::cat(vec![differs, Tensor::full([1], true, &device)], 0)
        }
    };
    let along = |size: usize| -> [usize; D] { std::array::from_fn(|i| if i == axis { size } else { 1 }) };
    let dropped = last.bool_not().reshape(along(k)).expand(expected);
    let staying = values.select(axis, order).mask_fill(dropped, 0.0);
    let placed = x.zeros_like().select_assign(axis, sorted.clone(), staying, IndexingUpdateOp::Add);
    let count = Tensor::<B, 1>::zeros([shape[axis]], &device);
    let count = count.select_assign(0, sorted, Tensor::ones([k], &device), IndexingUpdateOp::Add);
    let replaced = count.greater_elem(0.5).reshape(along(shape[axis])).expand(shape);
    x.mask_where(replaced, placed)
}
