//! Sorting, top-k and one-hot encoding.

use burn::tensor::{Int, Tensor};

use super::{Argsort, Backend, Values, functions::apply};

/// Returns the indices that sort the elements along an axis; see [`Argsort`]. Burn's method of this name reads the values
/// of its tensor, which do not exist in a trace.
///
/// # Panics
/// If the axis is out of range.
#[track_caller]
pub fn argsort<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize, descending: bool) -> Tensor<B, D, Int> {
    Tensor::from_primitive(apply::<B>(Argsort { axis, descending }, Values::default().with(x)).take_int(0))
}

/// Sorts integers like [`argsort`].
///
/// # Panics
/// If the axis is out of range.
#[track_caller]
pub fn argsort_int<B: Backend, const D: usize>(
    x: Tensor<B, D, Int>,
    axis: usize,
    descending: bool,
) -> Tensor<B, D, Int> {
    Tensor::from_primitive(apply::<B>(Argsort { axis, descending }, Values::default().with(x)).take_int(0))
}

/// Sorts the elements along an axis: `jax.numpy.sort`. Each element gets the gradient of its sorted position. The sort is
/// stable, and NaN is larger than all other values.
///
/// # Panics
/// If the axis is out of range.
#[track_caller]
pub fn sort<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize, descending: bool) -> Tensor<B, D> {
    let order = argsort(x.clone(), axis, descending);
    x.gather(axis, order)
}

/// Returns the `k` largest elements along an axis, largest first, and their indices: `jax.lax.top_k` along any axis. Of
/// equal elements the first comes first, NaN is larger than all other values, and each element gets the gradient of its
/// output position.
///
/// # Shapes
/// - x `[.., n, ..]`
/// - outputs `[.., k, ..]`
///
/// # Panics
/// If the axis is out of range, or `k` exceeds its size.
#[track_caller]
pub fn top_k<B: Backend, const D: usize>(x: Tensor<B, D>, axis: usize, k: usize) -> (Tensor<B, D>, Tensor<B, D, Int>) {
    let size = x.dims().get(axis).copied().unwrap_or_default();
    assert!(k <= size, "the {k} largest of {size} elements cannot be selected");
    let positions = argsort(x.clone(), axis, true).narrow(axis, 0, k);
    (x.gather(axis, positions.clone()), positions)
}

/// Encodes each index as a one-hot vector along a new last axis: `jax.nn.one_hot`. An index out of range gives zeros.
///
/// # Shapes
/// - indices `[..]`
/// - output `[.., classes]`; `E` is `D + 1`
pub fn one_hot<B: Backend, const D: usize, const E: usize>(indices: Tensor<B, D, Int>, classes: usize) -> Tensor<B, E> {
    let device = indices.device();
    let along: [usize; E] = std::array::from_fn(|axis| if axis + 1 == E { classes } else { 1 });
    let places = Tensor::<B, 1, Int>::arange(0..classes as i64, &device).cast(indices.dtype()).reshape(along);
    indices.unsqueeze_dim::<E>(D).equal(places).float()
}
