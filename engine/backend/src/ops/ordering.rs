//! Functions of the order and the positions of elements: sorts, the largest elements, and ones at indices.

use burn::tensor::{Int, Tensor};

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
