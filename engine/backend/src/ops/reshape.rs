//! Reshapes of views, which Burn 0.21 gets wrong on GPUs.

use burn::tensor::{Shape, TensorMetadata};

/// Reshapes a tensor by a backend's method, in two steps if one [would be wrong](flattened_first).
pub(crate) fn reshape<T: TensorMetadata>(x: T, shape: Shape, method: impl Fn(T, Shape) -> T) -> T {
    match flattened_first(&x.shape(), &shape) {
        Some(flat) => method(method(x, flat), shape),
        None => method(x, shape),
    }
}

/// Returns the shape `[n]` to which a tensor must be flattened before it is reshaped; `None` if one reshape is right.
///
/// Burn's reshape on a GPU to more axes is wrong if the tensor is a view whose last axis has one element: its elements get
/// the stride of that axis ([#5071](https://github.com/tracel-ai/burn/pull/5071), fixed in later versions).
pub(crate) fn flattened_first(from: &Shape, to: &Shape) -> Option<Shape> {
    let is_affected = to.num_dims() > from.num_dims() && from.num_dims() > 1 && from.as_slice().last() == Some(&1);
    is_affected.then(|| [from.num_elements()].into())
}
