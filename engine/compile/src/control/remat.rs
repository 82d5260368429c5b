//! Rematerialisation.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_tree::{Tree, device_of};

use super::{cond::choose, is_traced};

/// Applies a function that the backward pass recomputes, so that a traced gradient stores only the function's arguments:
/// `jax.checkpoint`, also named `jax.remat`. In a graph it is one operation with a sub-graph, named `checkpoint` as in JAX.
///
/// Outside a trace the function is simply called and its residuals are stored. Differentiate inside [`jit`](crate::jit())
/// instead, or recompute all memory-bound operations with `recompute` of `GradOptions`.
///
/// The function may capture differentiated values, such as the layers that it applies.
///
/// # Panics
/// Panics if the function panics.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Backend;
/// use grove_compile::{Traced, remat, jit};
/// use grove_transform::grad;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// fn loss<B: Backend>(x: Array<B, 1>) -> Tensor<B, 1> {
///     remat(|x: Array<B, 1>| Array::<B, 1>::new(x.val().sin().exp()), x).val().sum()
/// }
/// let slope = jit(|x: Array<Traced, 1>| grad(&x, loss));
/// let zero = Array::<B, 1>::new(Tensor::zeros([2], &Default::default()));
/// assert_eq!(slope.call(zero).val().to_data().to_vec::<f32>().unwrap(), [1.0, 1.0]);
/// // The sine is computed in the backward pass, and not before it.
/// assert!(slope.graph().unwrap().counts().contains_key("checkpoint"));
/// ```
#[track_caller]
pub fn remat<B: Backend, T: Tree<B>, O: Tree<B>>(f: impl Fn(T) -> O, args: T) -> O {
    if !is_traced::<B>() {
        return f(args);
    }
    // A `cond` with a single branch, which always runs.
    let device = device_of(&args).unwrap_or_default();
    choose("remat", Tensor::<B, 1, Int>::zeros([1], &device).into(), &[&f], args)
}
