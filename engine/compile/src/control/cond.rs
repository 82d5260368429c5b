//! Conditionals.

use burn::tensor::{Bool, Int, Tensor};
use grove_backend::{AnyTensor, Backend, Captured};
use grove_tree::{AnyArray, Tree};

use super::{
    from_traced,
    function::{WithGradients, branch_of},
    gradient::{Gradients, floats, gradient, with_gradients_last},
    is_traced,
    nested::{
        Side, TracedFunction, arrays_of, check_same, filled, is_tracked, leaves_of, trace_of, traced, unified,
        with_captured, with_what_it_captures,
    },
};
use crate::{
    sub_graph::{HigherOrder, SubGraph},
    target::missing,
};

/// Function of one branch.
type Branch<'a, T, O> = &'a dyn Fn(T) -> O;

/// Applies one of two functions to the operands, depending on a boolean on the device: `jax.lax.cond`.
///
/// Outside a trace the boolean is read and the selected function is called. In a trace both functions are traced, and the graph
/// has one operation with two sub-graphs, one of which is run. Gradients, [`jvp`](crate::jvp()) and [`vmap`](crate::vmap())
/// support the operation; `vmap` over the boolean computes both branches and selects between the results.
///
/// The functions may capture arrays of the enclosing trace. If a gradient flows to a captured array, the array becomes an
/// operand. The backward pass recomputes the branch that was taken.
///
/// # Shapes
/// - `pred` `[1]`
///
/// # Panics
/// If `pred` does not have one element. In a trace, if the results of the functions differ in structure, shapes or dtypes.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Backend;
/// use grove_compile::{cond, jit};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// fn log_or_zero<B: Backend>(x: Array<B, 1>) -> Array<B, 1> {
///     let positive = x.val().greater_elem(0.0);
///     cond(positive, |x: Array<B, 1>| x.val().log().into(), |x| x.val().zeros_like().into(), x)
/// }
/// let x = |x: f32| Array::<B, 1>::new(Tensor::from_floats([x], &Default::default()));
/// let jitted = jit(log_or_zero);
/// for value in [1.0, -1.0] {
///     assert_eq!(log_or_zero(x(value)).val().into_scalar(), 0.0);
///     assert_eq!(jitted.call(x(value)).val().into_scalar(), 0.0);
/// }
/// ```
#[track_caller]
pub fn cond<B: Backend, T: Tree<B>, O: Tree<B>>(
    pred: Tensor<B, 1, Bool>,
    true_fn: impl Fn(T) -> O,
    false_fn: impl Fn(T) -> O,
    operands: T,
) -> O {
    choose("cond", pred.into(), &[&false_fn, &true_fn], operands)
}

/// Applies one of several functions to the operands, depending on an index on the device: `jax.lax.switch`. An index out of
/// range is clamped. See [`cond`].
///
/// # Shapes
/// - `index` `[1]`
///
/// # Panics
/// Same as [`cond`], and if there are no branches.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_compile::switch;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([3.0], &Default::default()));
/// let index = Tensor::<B, 1, Int>::from_ints([1], &Default::default());
/// let y = switch(index, &[&|x: Array<B, 1>| x, &|x| Array::new(x.val() * 2.0)], x);
/// assert_eq!(y.val().into_scalar(), 6.0);
/// ```
#[track_caller]
pub fn switch<B: Backend, T: Tree<B>, O: Tree<B>>(
    index: Tensor<B, 1, Int>,
    branches: &[&dyn Fn(T) -> O],
    operands: T,
) -> O {
    assert!(!branches.is_empty(), "`switch` has no branches: give at least one");
    choose("switch", index.into(), branches, operands)
}

#[track_caller]
pub(super) fn choose<B: Backend, T: Tree<B>, O: Tree<B>>(
    name: &str,
    index: AnyTensor<B>,
    branches: &[Branch<'_, T, O>],
    operands: T,
) -> O {
    let shape = index.shape();
    assert!(
        shape.num_elements() == 1,
        "the first argument of `{name}` has shape {:?}, but must be one value, `[1]`: to select a branch for each \
         example, use `vmap`",
        &shape[..]
    );
    if !is_traced::<B>() {
        return branches[branch_of(index, branches.len())](operands);
    }
    let captured = match as_operation(name, &index, branches, &operands) {
        Ok(result) => return result,
        Err(captured) if captured.arrays().is_empty() => return select(index, branches, operands),
        Err(captured) => captured,
    };
    // Captured arrays become operands.
    let arrays: Vec<AnyArray<B>> = captured.arrays().iter().cloned().map(AnyArray::present).collect();
    let with_arrays: Vec<_> = branches.iter().map(|f| with_captured(&captured, f)).collect();
    let with_arrays: Vec<_> = with_arrays.iter().map(|f| f as Branch<'_, (T, Vec<AnyArray<B>>), O>).collect();
    match as_operation(name, &index, &with_arrays, &(operands.clone(), arrays)) {
        Ok(result) => result,
        Err(_) => select(index, branches, operands),
    }
}

/// Records one operation with a sub-graph for each branch. If a gradient flows to captured arrays, returns these arrays as the
/// error.
#[track_caller]
fn as_operation<B: Backend, T: Tree<B>, O: Tree<B>>(
    name: &str,
    index: &AnyTensor<B>,
    branches: &[Branch<'_, T, O>],
    operands: &T,
) -> Result<O, Captured<B>> {
    let leaves = leaves_of(operands);
    let arrays = arrays_of(operands);
    let around = trace_of([index]);
    let trace = || branches.iter().map(|f| traced(around, operands.clone(), &leaves, f)).collect();
    let (functions, captured): (Vec<TracedFunction<O>>, _) = with_what_it_captures(around, trace);
    check::<B, O>(name, &functions);
    if functions.iter().any(|function| function.tracked) {
        return Err(captured);
    }
    let mut gradients = Vec::new();
    if is_tracked(&arrays) {
        for f in branches {
            match gradient(around, operands, &leaves, f) {
                Some(raw) => gradients.push(raw),
                None => return Err(Captured::default()),
            }
        }
    }
    let (results, shell) = (functions[0].leaves.clone(), functions[0].shell.clone());
    let specs: Vec<_> = leaves.iter().filter(|leaf| leaf.present).map(|leaf| leaf.spec.clone()).collect();
    let functions = functions.into_iter().map(TracedFunction::into_parts);
    let (mut graphs, captured) = unified(functions.chain(gradients).collect());
    let gradients = graphs.split_off(branches.len()).into_iter();
    let gradients = gradients.map(|graph| with_gradients_last(graph, specs.len(), captured.len())).collect::<Vec<_>>();
    let op = HigherOrder::Cond { branches: graphs.into_iter().map(SubGraph::new).collect() };
    let of = [floats(&specs), vec![false; captured.len()]].concat();
    let captured = captured.into_iter().map(from_traced);
    let inputs = std::iter::once(index.clone()).chain(arrays).chain(captured).map(Some).collect();
    let outputs = match gradients.is_empty() {
        true => B::run_function(&op, inputs),
        false => B::run_function(&WithGradients { op, gradients: Gradients { graphs: gradients, of } }, inputs),
    };
    let outputs = outputs.into_values();
    Ok(filled(shell, &results, outputs.into_iter().flatten()))
}

/// Panics unless all branches return the same structure, shapes and dtypes.
#[track_caller]
fn check<B: Backend, O: Tree<B>>(name: &str, functions: &[TracedFunction<O>]) {
    let names: Vec<_> = match (name, functions.len()) {
        ("cond", 2) => vec!["`false_fn`".to_owned(), "`true_fn`".to_owned()],
        (_, count) => (0..count).map(|i| format!("branch {i}")).collect(),
    };
    let side =
        |i: usize| Side { name: &names[i], structure: functions[i].structure::<B>(), leaves: &functions[i].leaves };
    let first = side(0);
    let rule = format!("the branches of `{name}` must return results of the same structure, shapes and types");
    (1..functions.len()).for_each(|i| check_same(&rule, &first, &side(i)));
}

/// Computes all branches in the enclosing trace and selects between the results.
fn select<B: Backend, T: Tree<B>, O: Tree<B>>(index: AnyTensor<B>, branches: &[Branch<'_, T, O>], operands: T) -> O {
    let mut results: Vec<O> = branches.iter().map(|f| f(operands.clone())).collect();
    let mut result = results.pop().unwrap_or_else(|| missing());
    for (i, earlier) in results.into_iter().enumerate().rev() {
        let is_earlier: Tensor<B, 1, Bool> = match index.clone().reshape([1]) {
            AnyTensor::Bool(pred) => Tensor::<B, 1, Bool>::from_primitive(pred).bool_not(),
            AnyTensor::Int(index) => Tensor::<B, 1, Int>::from_primitive(index).lower_equal_elem(i as i64),
            AnyTensor::Float(_) => unreachable!("a branch is selected by a boolean or an index"),
        };
        let pairs = arrays_of(&result).into_iter().zip(arrays_of(&earlier));
        let selected: Vec<_> = pairs.map(|(x, y)| y.select(&is_earlier, x)).collect();
        let leaves = leaves_of(&result);
        result = filled(result, &leaves, selected);
    }
    result
}
