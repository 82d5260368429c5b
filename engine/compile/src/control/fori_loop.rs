//! Loops over a range of integers.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_tree::{Array, Tree, device_of};
use std::ops::Range;

use super::scan;

/// Applies a function to a carry for each integer of a range: `jax.lax.fori_loop`.
///
/// The integer is passed as an array, so in a trace the function is traced once and the graph has one [`scan`]. Derivatives
/// flow through the loop as through a scan; put a parameter that needs a gradient into the carry. If the bounds are arrays, use
/// [`while_loop`](crate::while_loop()) with a counter in its carry.
///
/// # Shapes
/// - first argument of `body_fun` `[1]`
///
/// # Panics
/// In a trace, if the carry changes its structure, shapes or dtypes.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_backend::Backend;
/// use grove_compile::{fori_loop, jit};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// fn factorial<B: Backend>(one: Array<B, 1>) -> Array<B, 1> {
///     fori_loop(1..6, |i: Tensor<B, 1, Int>, x: Array<B, 1>| Array::new(x.val() * i.float()), one)
/// }
/// let one = Array::<B, 1>::new(Tensor::ones([1], &Default::default()));
/// assert_eq!(factorial(one.clone()).val().into_scalar(), 120.0);
/// assert_eq!(jit(factorial).call(one).val().into_scalar(), 120.0);
/// ```
#[track_caller]
pub fn fori_loop<B: Backend, C: Tree<B>>(
    range: Range<i64>,
    body_fun: impl Fn(Tensor<B, 1, Int>, C) -> C,
    init: C,
) -> C {
    let count = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or_default();
    if count == 0 {
        return init;
    }
    let device = device_of(&init).unwrap_or_default();
    let integers = Array::<B, 2, Int>::new(Tensor::<B, 1, Int>::arange(range, &device).reshape([count, 1]));
    scan(|carry, i: Array<B, 1, Int>| (body_fun(i.val(), carry), ()), init, integers).0
}
