//! Loops with a condition.

use burn::tensor::{Bool, Tensor};
use grove_backend::Backend;
use grove_tree::{Array, Tree};

use super::{
    from_traced,
    function::holds,
    is_traced,
    nested::{
        Side, arrays_of, check_same, filled, leaves_of, structure_of, trace_of, traced, unified, with_last_first,
    },
};
use crate::sub_graph::{HigherOrder, WhileLoop};

/// Applies a function to a carry while a condition of the carry is true: `jax.lax.while_loop`.
///
/// Outside a trace the condition is read to the host in each step, which takes microseconds. In a trace both functions are
/// traced once, and the graph has one operation with two sub-graphs. Jitted on the flex backend, a loop over arrays of at most
/// 4,096 elements runs as one program, in tens of nanoseconds per step. [`jvp`](crate::jvp()) and [`vmap`](crate::vmap())
/// support the operation. If the condition is batched, the loop runs until it is false for every example; the carry of a
/// finished example stays unchanged.
///
/// In a trace there is no reverse mode, as in JAX, because the number of steps is unknown; use [`scan`](crate::scan()) instead.
/// Outside a trace, gradients flow through the executed steps. The functions may capture arrays of the enclosing trace through
/// which no gradient flows.
///
/// # Shapes
/// - result of `cond_fun` `[1]`
///
/// # Panics
/// If the condition does not have one element. In a trace, if the carry changes its structure, shapes or dtypes, or if a
/// gradient flows to the loop: immediately for captured arrays, in the backward pass for the carry.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Backend;
/// use grove_compile::{jit, while_loop};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// /// Newton's iteration.
/// fn square_root<B: Backend>(a: Array<B, 1>) -> Array<B, 1> {
///     let apart = |(a, x): &(Array<B, 1>, Array<B, 1>)| (x.val() * x.val() - a.val()).abs();
///     let next = |(a, x): (Array<B, 1>, Array<B, 1>)| (a.clone(), Array::new((x.val() + a.val() / x.val()) * 0.5));
///     while_loop(|carry| apart(&carry).greater_elem(1e-4), next, (a.clone(), a)).1
/// }
/// let two = Array::<B, 1>::new(Tensor::from_floats([2.0], &Default::default()));
/// let root = jit(square_root).call(two.clone()).val().into_scalar();
/// assert!((root - 2f32.sqrt()).abs() < 1e-4);
/// assert_eq!(square_root(two).val().into_scalar(), root);
/// ```
#[track_caller]
pub fn while_loop<B: Backend, T: Tree<B>>(
    cond_fun: impl Fn(T) -> Tensor<B, 1, Bool>,
    body_fun: impl Fn(T) -> T,
    init: T,
) -> T {
    if !is_traced::<B>() {
        let mut carry = init;
        loop {
            let condition = cond_fun(carry.clone());
            check_condition(condition.dims());
            if !holds(condition.into()) {
                return carry;
            }
            carry = body_fun(carry);
        }
    }
    let leaves = leaves_of(&init);
    let arrays = arrays_of(&init);
    let around = trace_of(&arrays);
    let condition = |carry| Array::<B, 1, Bool>::new(cond_fun(carry));
    let cond = traced(around, init.clone(), &leaves, condition);
    check_condition(cond.shell.shape());
    let body = traced(around, init.clone(), &leaves, body_fun);
    check_same(
        "the carry of `while_loop` must keep its structure, shapes and types",
        &Side { name: "`init`", structure: structure_of(&init), leaves: &leaves },
        &Side { name: "`body_fun`", structure: body.structure::<B>(), leaves: &body.leaves },
    );
    assert!(
        !body.tracked,
        "`while_loop` in a trace cannot be differentiated in reverse mode with respect to an array that `body_fun` \
         captures, because the number of its steps is unknown: use `scan`, or `detach` the array"
    );
    let shell = body.shell.clone();
    let (graphs, captured) = unified(vec![cond.into_parts(), body.into_parts()]);
    let Ok([cond, body]) = <[_; 2]>::try_from(graphs) else { unreachable!("there is a graph for each function") };
    let consts = captured.len();
    let op = HigherOrder::While(WhileLoop {
        cond: with_last_first(cond, consts),
        body: with_last_first(body, consts),
        consts,
    });
    let captured = captured.into_iter().map(from_traced);
    let outputs = B::run_function(&op, captured.chain(arrays).map(Some).collect()).into_values();
    filled(shell, &leaves, outputs.into_iter().flatten())
}

#[track_caller]
fn check_condition(shape: [usize; 1]) {
    assert!(
        shape == [1],
        "the condition of `while_loop` has shape {shape:?}, but must be one boolean: reduce it with `all` or `any`"
    );
}
