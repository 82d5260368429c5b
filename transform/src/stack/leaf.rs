use burn::tensor::{Shape, Slice, Tensor, TensorData, TensorMetadata, ops::FloatTensor};
use grove_backend::{Backend, ops};
use grove_tree::{AnyArray, AnyTensor, Array, Kind, Path, Tree};
use std::ops::Range;

use crate::tape::Column;

/// Stacks the leaf at `path` of each step; `E` is `D + 1`.
pub(super) fn stack_leaf<B: Backend, K: Kind, const D: usize, const E: usize>(
    steps: Vec<Array<B, D, K>>,
    path: &Path,
) -> Array<B, E, K> {
    let first = &steps[0];
    for (i, step) in steps.iter().enumerate() {
        assert!(
            step.shape() == first.shape() && step.dtype() == first.dtype(),
            "the leaf `{path}` is {first} in the first step and {step} in step {i}: only equal ones can be stacked"
        );
        assert!(
            step.is_present() == first.is_present(),
            "the leaf `{path}` is absent in some steps and present in others, such as step {i}"
        );
    }
    if !first.is_present() {
        let shape = std::array::from_fn(|axis| if axis == 0 { steps.len() } else { first.shape()[axis - 1] });
        return Array::absent_of(shape, first.dtype());
    }
    Array::from(Tensor::stack(steps.into_iter().filter_map(Array::into_val).collect(), 0))
}

/// Splits a leaf along its first axis, which has `steps` elements; `E` is `D + 1`.
pub(super) fn unstack_leaf<B: Backend, K: Kind, const D: usize, const E: usize>(
    leaf: Array<B, E, K>,
    steps: usize,
) -> Vec<Array<B, D, K>> {
    let (shape, dtype) = (leaf.shape(), leaf.dtype());
    let Some(x) = leaf.into_val() else {
        return vec![Array::absent_of(std::array::from_fn(|axis| shape[axis + 1]), dtype); steps];
    };
    let parts: Vec<Tensor<B, E, K::On<B>>> = match K::erase(x.clone()) {
        AnyTensor::Float(_) if steps == 0 => vec![],
        AnyTensor::Float(x) => {
            let parts = ops::apply::<B>(ops::Chunk { count: steps, axis: 0 }, ops::Values::floats([x])).into_floats();
            parts.into_iter().filter_map(|row| K::restore(AnyTensor::Float(row))).collect()
        }
        _ => (0..steps).map(|i| x.clone().narrow(0, i, 1)).collect(),
    };
    parts.into_iter().map(|part| Array::from(part.squeeze_dim(0))).collect()
}

/// A range of rows of a stacked leaf.
pub(crate) fn rows<B: Backend>(leaf: AnyArray<B>, range: Range<usize>) -> AnyArray<B> {
    let mut shape = leaf.shape().to_vec();
    let dtype = leaf.dtype();
    let mut slices = vec![Slice::full(); shape.len()];
    slices[0] = Slice::from(range.clone());
    AnyArray::present(match leaf.into_value() {
        None => {
            shape[0] = range.len();
            return AnyArray::absent(shape, dtype);
        }
        Some(AnyTensor::Float(x)) => AnyTensor::Float(B::float_slice(x, &slices)),
        Some(AnyTensor::Int(x)) => AnyTensor::Int(B::int_slice(x, &slices)),
        Some(AnyTensor::Bool(x)) => AnyTensor::Bool(B::bool_slice(x, &slices)),
    })
}

/// Zeros like a stacked leaf, with another number of steps.
pub(crate) fn zero_rows<B: Backend>(leaf: AnyArray<B>, steps: usize) -> AnyArray<B> {
    let mut shape = leaf.shape().to_vec();
    shape[0] = steps;
    match leaf.device() {
        Some(device) => AnyArray::from_data(TensorData::full_dtype(shape, 0, leaf.dtype()), &device),
        None => AnyArray::absent(shape, leaf.dtype()),
    }
}

/// One row of a stacked tensor, without its first axis.
pub(crate) fn row<B: Backend>(x: FloatTensor<B>, i: usize) -> FloatTensor<B> {
    let shape = x.shape().to_vec();
    let mut slices = vec![Slice::full(); shape.len()];
    slices[0] = Slice::from(i..i + 1);
    B::float_reshape(B::float_slice(x, &slices), Shape::from(shape[1..].to_vec()))
}

/// The gradients of a stacked tree, given those of its steps: zeros for a step without one, `None` if no step has
/// one.
pub(crate) fn stack_rows<B: Backend, X: Tree<B>>(stacked: &X, steps: Vec<Column<B>>) -> Column<B> {
    let mut steps: Vec<_> = steps.into_iter().map(Vec::into_iter).collect();
    let mut grads = Column::<B>::new();
    stacked.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| {
        let rows: Column<B> = steps.iter_mut().map(|step| step.next().flatten()).collect();
        let Some(some) = rows.iter().flatten().next() else { return grads.push(None) };
        let shape = Shape::from([&[1], &leaf.shape()[1..]].concat());
        let zeros = B::float_zeros(shape.clone(), &B::float_device(some), some.dtype().into());
        let row = |grad: Option<FloatTensor<B>>| {
            grad.map_or_else(|| zeros.clone(), |grad| B::float_reshape(grad, shape.clone()))
        };
        grads.push(Some(B::float_cat(rows.into_iter().map(row).collect(), 0)));
    });
    grads
}
