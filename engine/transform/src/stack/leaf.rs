use burn::tensor::TensorData;
use grove_backend::{AnyTensor, Backend};
use grove_tree::{AnyArray, Array, Kind, Path, Tree, leaf_name, leaves};
use std::ops::Range;

use crate::tape::Column;

/// Panics unless the leaf at `path` of a step (or of another `item`) can be stacked with the first one.
#[track_caller]
pub(super) fn check_leaf<B: Backend>(path: &Path, first: &AnyArray<B>, leaf: &AnyArray<B>, item: &str, index: usize) {
    assert!(
        leaf.shape() == first.shape() && leaf.dtype() == first.dtype(),
        "the {} is {first} in the first {item} and {leaf} in {item} {index}: only equal ones can be stacked",
        leaf_name("leaf", path.as_str())
    );
    assert!(
        leaf.is_present() == first.is_present(),
        "the {} is absent in some {item}s and present in others, such as {item} {index}",
        leaf_name("leaf", path.as_str())
    );
}

/// Stacks one or more leaves along a new first axis. The leaves must have one shape and dtype and be all present or all
/// absent.
pub(super) fn stack_leaves<B: Backend>(leaves: Vec<AnyArray<B>>) -> AnyArray<B> {
    let (shape, dtype) = ([&[leaves.len()], leaves[0].shape()].concat(), leaves[0].dtype());
    match leaves.into_iter().map(AnyArray::into_value).collect() {
        Some(tensors) => AnyArray::present(AnyTensor::stack(tensors)),
        None => AnyArray::absent(shape, dtype),
    }
}

/// Splits a leaf along its first axis, which has `count` elements.
pub(super) fn unstack_leaves<B: Backend>(leaf: AnyArray<B>, count: usize) -> Vec<AnyArray<B>> {
    let absent = AnyArray::absent(&leaf.shape()[1..], leaf.dtype());
    match leaf.into_value() {
        Some(x) => x.unstack().into_iter().map(AnyArray::present).collect(),
        None => vec![absent; count],
    }
}

/// Stacks the leaf at `path` of each step.
pub(super) fn stack_any<B: Backend>(steps: Vec<AnyArray<B>>, path: &Path) -> AnyArray<B> {
    steps.iter().enumerate().for_each(|(i, step)| check_leaf(path, &steps[0], step, "step", i));
    stack_leaves(steps)
}

/// Like [`stack_any`], with ranks in the types; `E` is `D + 1`.
pub(super) fn stack_leaf<B: Backend, K: Kind, const D: usize, const E: usize>(
    steps: Vec<Array<B, D, K>>,
    path: &Path,
) -> Array<B, E, K> {
    let stacked = stack_any(steps.into_iter().map(Array::into_any).collect(), path);
    Array::from_any(stacked).expect("stacking keeps the kind and adds one axis")
}

/// Splits a leaf along its first axis, which has `steps` elements; `E` is `D + 1`.
pub(super) fn unstack_leaf<B: Backend, K: Kind, const D: usize, const E: usize>(
    leaf: Array<B, E, K>,
    steps: usize,
) -> Vec<Array<B, D, K>> {
    let steps = unstack_leaves(leaf.into_any(), steps).into_iter().map(Array::from_any);
    steps.map(|step| step.expect("unstacking keeps the kind and takes one axis")).collect()
}

/// Returns a range of rows of a stacked leaf.
pub(crate) fn rows<B: Backend>(leaf: AnyArray<B>, range: Range<usize>) -> AnyArray<B> {
    let (mut shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
    match leaf.into_value() {
        Some(x) => AnyArray::present(x.rows(range)),
        None => {
            shape[0] = range.len();
            AnyArray::absent(shape, dtype)
        }
    }
}

/// Concatenates stacked trees of the same structure along their first axes.
pub(crate) fn join_rows<B: Backend, T: Tree<B>>(parts: Vec<T>) -> T {
    let mut parts = parts.into_iter();
    let first = parts.next().expect("at least one part");
    let mut columns: Vec<_> = parts.map(|part| leaves(&part).into_iter()).collect();
    first.map(&mut Path::root(), &mut |path, first| {
        let mut all = vec![first];
        for column in &mut columns {
            let (_, leaf) = column.next().expect("parts of the same structure have the same number of leaves");
            check_leaf(path, &rows(all[0].clone(), 0..1), &rows(leaf.clone(), 0..1), "part", all.len());
            all.push(leaf);
        }
        let (mut shape, dtype) = (all[0].shape().to_vec(), all[0].dtype());
        shape[0] = all.iter().map(|leaf| leaf.shape()[0]).sum();
        match all.into_iter().map(AnyArray::into_value).collect() {
            Some(tensors) => AnyArray::present(AnyTensor::cat(tensors, 0)),
            None => AnyArray::absent(shape, dtype),
        }
    })
}

/// Returns zeros like a stacked leaf, with another number of steps.
pub(crate) fn zero_rows<B: Backend>(leaf: AnyArray<B>, steps: usize) -> AnyArray<B> {
    let mut shape = leaf.shape().to_vec();
    shape[0] = steps;
    match leaf.device() {
        Some(device) => AnyArray::from_data(TensorData::full_dtype(shape, 0, leaf.dtype()), &device),
        None => AnyArray::absent(shape, leaf.dtype()),
    }
}

/// Returns one row of a stacked leaf, without the first axis.
pub(super) fn row<B: Backend>(leaf: AnyArray<B>, index: usize) -> AnyArray<B> {
    let absent = AnyArray::absent(&leaf.shape()[1..], leaf.dtype());
    leaf.into_value().map_or(absent, |x| AnyArray::present(x.row(index)))
}

/// Stacks the gradients of the steps into the gradients of a stacked tree: zeros for a step without a gradient, `None`
/// if no step has one.
pub(crate) fn stack_rows<B: Backend, X: Tree<B>>(stacked: &X, steps: Vec<Column<B>>) -> Column<B> {
    let mut steps: Vec<_> = steps.into_iter().map(Vec::into_iter).collect();
    let mut grads = Column::<B>::new();
    stacked.visit(&mut Path::root(), &mut |_: &Path, _: &AnyArray<B>| {
        let rows: Column<B> = steps.iter_mut().map(|step| step.next().flatten()).collect();
        let zeros = rows.iter().flatten().next().map(AnyTensor::zeros_like);
        grads.push(zeros.map(|zeros| {
            AnyTensor::stack(rows.into_iter().map(|grad| grad.unwrap_or_else(|| zeros.clone())).collect())
        }));
    });
    grads
}
