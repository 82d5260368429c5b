//! Loops over the first axis of arrays.

use grove_backend::{AnyTensor, Backend, Captured};
use grove_transform::{Scan, Stack, Unstack, stack};
use grove_tree::{AnyArray, Path, Tree};

use super::{
    from_traced,
    function::WithGradients,
    gradient::{gradient, of_body, with_gradients_last},
    is_traced,
    nested::{
        LeafSpec, Side, arrays_of, check_same, filled, is_tracked, leaves_of, structure_of, trace_of, traced, unified,
        with_captured, with_what_it_captures,
    },
};
use crate::sub_graph::{HigherOrder, ScanLoop, SubGraph};

/// Scans a function over the leading axis of a tree while passing on a carry: `jax.lax.scan`.
///
/// Outside a trace this is [`grove_transform::scan`]. In a trace the function is traced once, whatever the number of steps, and
/// the graph has one operation with a sub-graph. ([`grove_transform::scan`] records every step, because its carry need not be a
/// tree.) Gradients, [`jvp`](crate::jvp()) and [`vmap`](crate::vmap()) support the operation. For the backward pass, the
/// forward pass stores the carries, and each step is recomputed.
///
/// The function may capture arrays of the enclosing trace, such as the parameters of a model; gradients flow to them. Arrays in
/// the carry that no step changes become constants, unless a gradient is taken.
///
/// A captured random key is a constant: every step draws the same numbers, as in JAX. For different numbers in every step, put
/// a key into the carry, or pass [`Keys`](grove_tree::Keys) as `xs`.
///
/// # Shapes
/// - leaf of `xs` `[t, ...]`; leaf of one step of `xs` `[...]`
/// - leaf of one step of `ys` `[...]`; leaf of the stacked `ys` `[t, ...]`
///
/// # Panics
/// Same as [`grove_transform::scan`]. In a trace, also if the carry changes its structure, shapes or dtypes.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Backend;
/// use grove_compile::{scan, trace};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// fn sums<B: Backend>(xs: Array<B, 2>) -> (Array<B, 1>, Array<B, 2>) {
///     let zero = Array::new(xs.val().sum_dim(0).reshape([-1]) * 0.0);
///     let add = |sum: Array<B, 1>, x: Array<B, 1>| {
///         let sum = Array::<B, 1>::new(sum.val() + x.val());
///         (sum.clone(), sum)
///     };
///     scan(add, zero, xs)
/// }
/// let xs = Array::<B, 2>::new(Tensor::from_floats([[1.0], [2.0], [3.0]], &Default::default()));
/// assert_eq!(sums(xs.clone()).1.val().to_data().to_vec::<f32>().unwrap(), [1.0, 3.0, 6.0]);
/// let graph = trace(sums, &xs);
/// assert_eq!((graph.counts()["scan"], graph.counts().get("add")), (1, None));
/// ```
#[track_caller]
pub fn scan<B, C, X, Y>(f: impl Fn(C, X::Step) -> (C, Y), init: C, xs: X) -> (C, Y::Stacked)
where
    B: Backend,
    C: Tree<B>,
    X: Unstack<B>,
    Y: Stack<B>,
{
    scan_with(Scan::new(), &(), |(), carry, x| f(carry, x), init, xs)
}

/// Like [`scan`], with options and with parameters: values that the function uses in every step, such as a model. In a trace,
/// gradients flow to the parameters without recording each step.
///
/// # Panics
/// Same as [`scan`], and if the number of steps in the options disagrees with `xs`.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::{Autodiff, Backend};
/// use grove_compile::{Traced, jit, scan_with};
/// use grove_transform::{Scan, grad};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// /// `a` to the fifth power.
/// fn fifth<B: Backend>(a: Array<B, 1>) -> Tensor<B, 1> {
///     let one = Array::new(a.val().ones_like());
///     let times = |a: Array<B, 1>, x: Array<B, 1>, ()| (Array::new(a.val() * x.val()), ());
///     scan_with(Scan::new().length(5), &a, times, one, ()).0.val()
/// }
/// let slope = jit(|a: Array<Traced, 1>| grad(&a, fifth));
/// let a = Array::<B, 1>::new(Tensor::from_floats([2.0], &Default::default()));
/// assert_eq!(slope.call(a).val().into_scalar(), 80.0);
/// assert!(slope.graph().unwrap().counts().contains_key("scan"));
/// ```
#[track_caller]
pub fn scan_with<B, P, C, X, Y>(
    options: Scan,
    params: &P,
    f: impl Fn(P, C, X::Step) -> (C, Y),
    init: C,
    xs: X,
) -> (C, Y::Stacked)
where
    B: Backend,
    P: Tree<B>,
    C: Tree<B>,
    X: Unstack<B>,
    Y: Stack<B>,
{
    let in_place = |init: C, xs: X| options.run(|carry, x| f(params.clone(), carry, x), init, xs);
    // With zero steps, the function must be called with zeros to determine the shapes of the results.
    let length = if is_traced::<B>() { options.steps(&xs) } else { 0 };
    if length == 0 {
        return in_place(init, xs);
    }
    let captured = match as_operation(options, length, params, &f, &init, &xs) {
        Ok(result) => return result,
        Err(captured) if captured.arrays().is_empty() => return in_place(init, xs),
        Err(captured) => captured,
    };
    // Captured arrays become parameters.
    let arrays: Vec<AnyArray<B>> = captured.arrays().iter().cloned().map(AnyArray::present).collect();
    let with_arrays = |(params, arrays): (P, Vec<AnyArray<B>>), carry: C, x: X::Step| {
        with_captured(&captured, |(params, carry, x)| f(params, carry, x))(((params, carry, x), arrays))
    };
    match as_operation(options, length, &(params.clone(), arrays), &with_arrays, &init, &xs) {
        Ok(result) => result,
        Err(_) => in_place(init, xs),
    }
}

/// Records one operation with a sub-graph for one step. If a gradient flows to captured arrays, returns these arrays as the
/// error.
#[track_caller]
fn as_operation<B, P, C, X, Y>(
    options: Scan,
    length: usize,
    params: &P,
    f: &impl Fn(P, C, X::Step) -> (C, Y),
    init: &C,
    xs: &X,
) -> Result<(C, Y::Stacked), Captured<B>>
where
    B: Backend,
    P: Tree<B>,
    C: Tree<B>,
    X: Unstack<B>,
    Y: Stack<B>,
{
    // Parameters are arrays of the carry that no step changes.
    let carry = (params.clone(), init.clone());
    let (of_carry, of_xs) = (leaves_of(&carry), leaves_of(xs));
    let (carry_arrays, xs_arrays) = (arrays_of(&carry), arrays_of(xs));
    let around = trace_of(carry_arrays.iter().chain(&xs_arrays));
    let step = one_step::<B, X>(xs.clone());
    let of_step = leaves_of(&step).into_iter().zip(&of_xs);
    let of_step: Vec<_> = of_step.map(|(leaf, stacked)| LeafSpec { present: stacked.present, ..leaf }).collect();
    let arguments: Vec<_> = [&of_carry[..], &of_step[..]].concat();
    let body = |((params, carry), x): ((P, C), X::Step)| {
        let (carry, y) = f(params.clone(), carry, x);
        ((params, carry), y)
    };
    let (function, captured) =
        with_what_it_captures(around, || traced(around, (carry.clone(), step.clone()), &arguments, body));
    if function.tracked {
        return Err(captured);
    }
    let ((_, next), y) = function.shell.clone();
    let of_init = leaves_of(init);
    let after_params = of_carry.len() - of_init.len();
    let (of_next, of_y) = function.leaves[after_params..].split_at(leaves_of(&next).len());
    let in_result = relative(of_next, 2);
    check_same(
        "the carry of `scan` must keep its structure, shapes and types",
        &Side { name: "`init`", structure: structure_of(init), leaves: &of_init },
        &Side { name: "`f`", structure: structure_of(&next), leaves: &in_result },
    );
    let of_y = of_y.to_vec();
    let raw = match is_tracked(&carry_arrays) || is_tracked(&xs_arrays) {
        true => match gradient(around, &(carry, step), &arguments, body) {
            Some(raw) => Some(raw),
            None => return Err(Captured::default()),
        },
        false => None,
    };
    let (mut graphs, captured) = unified(std::iter::once(function.into_parts()).chain(raw).collect());
    let raw = graphs.split_off(1).pop();
    let Some(graph) = graphs.pop() else { unreachable!("there is a graph for each function") };
    let counts = [carry_arrays.len(), xs_arrays.len()];
    // A step may return an array of the carry with its gradient stopped, which the graph does not show. Only the parameters are
    // known to be unchanged.
    let constant = if raw.is_some() { arrays_of(params).len() } else { counts[0] };
    let (op, kept) = operation(graph, captured.len(), [constant, counts[0]], length, options.is_reverse());
    let specs: Vec<_> = of_y.iter().filter(|leaf| leaf.present).map(|leaf| leaf.spec.clone()).collect();
    let gradients = raw.map(|raw| {
        let raw = with_gradients_last(raw, counts[0] + counts[1], captured.len());
        of_body(raw, captured.len(), &kept, counts[1], &specs)
    });
    let captured = captured.into_iter().map(from_traced::<B>);
    let constants = carry_arrays.iter().zip(&kept).filter(|(_, kept)| **kept).map(|(x, _)| x.clone());
    let changing = carry_arrays.iter().zip(&kept).filter(|(_, kept)| !**kept).map(|(x, _)| x.clone());
    let inputs = captured.chain(constants).chain(changing).chain(xs_arrays).map(Some).collect();
    let outputs = match gradients {
        Some(gradients) => B::run_function(&WithGradients { op, gradients }, inputs),
        None => B::run_function(&op, inputs),
    };
    let mut outputs = outputs.into_values().into_iter().flatten();
    let carried: Vec<AnyTensor<B>> = carry_arrays
        .iter()
        .zip(&kept)
        .filter_map(|(x, kept)| if *kept { Some(x.clone()) } else { outputs.next() })
        .collect();
    let of_params = carried.len() - of_init.iter().filter(|leaf| leaf.present).count();
    let carry = filled(next, &of_init, carried.into_iter().skip(of_params));
    Ok((carry, stacked_ys(y, &of_y, outputs, length)))
}

/// Removes the first segments of the paths of leaves.
fn relative(leaves: &[LeafSpec], segments: usize) -> Vec<LeafSpec> {
    leaves.iter().map(|leaf| leaf.without_segments(segments)).collect()
}

/// Creates a scan from the graph of one step, whose inputs are the carry, one step of the arrays and the captured arrays. Also
/// returns, for each array of the carry, true if it became a constant: it is among the first `constant` arrays and no step
/// changes it.
fn operation(
    mut graph: crate::Graph,
    captured: usize,
    [constant, carries]: [usize; 2],
    length: usize,
    reverse: bool,
) -> (HigherOrder, Vec<bool>) {
    let pairs = graph.inputs.iter().zip(&graph.outputs).take(carries);
    let kept: Vec<_> =
        pairs.enumerate().map(|(i, ((_, input), (_, output)))| i < constant && input == output).collect();
    let mut inputs = std::mem::take(&mut graph.inputs);
    let of_captured = inputs.split_off(inputs.len() - captured);
    let xs = inputs.split_off(carries);
    let outputs = std::mem::take(&mut graph.outputs);
    let kept_outputs = kept.iter().copied().chain(std::iter::repeat(false));
    graph.outputs = outputs.into_iter().zip(kept_outputs).filter(|(_, kept)| !kept).map(|(output, _)| output).collect();
    let (constants, changing): (Vec<_>, Vec<_>) = inputs.into_iter().zip(&kept).partition(|(_, kept)| **kept);
    let of =
        |inputs: Vec<((String, crate::Var), &bool)>| inputs.into_iter().map(|(input, _)| input).collect::<Vec<_>>();
    let (consts, carries) = (captured + constants.len(), changing.len());
    graph.inputs = [of_captured, of(constants), of(changing), xs].concat();
    (HigherOrder::Scan(ScanLoop { body: SubGraph::new(graph), length, reverse, consts, carries }), kept)
}

/// Returns one step of a stacked tree, with absent leaves.
fn one_step<B: Backend, X: Unstack<B>>(xs: X) -> X::Step {
    let row = |_: &Path, leaf: AnyArray<B>| {
        let mut shape = leaf.shape().to_vec();
        shape[0] = 1;
        AnyArray::absent(shape, leaf.dtype())
    };
    let rows = xs.map(&mut Path::root(), &mut { row });
    match rows.unstack(1).pop() {
        Some(step) => step,
        None => unreachable!("one row is one step"),
    }
}

/// Returns the stacked results of all steps as a tree.
fn stacked_ys<B: Backend, Y: Stack<B>>(
    y: Y,
    leaves: &[LeafSpec],
    arrays: impl Iterator<Item = AnyTensor<B>>,
    length: usize,
) -> Y::Stacked {
    let (mut leaves, mut arrays) = (leaves.iter(), arrays);
    stack(vec![y]).map(&mut Path::root(), &mut |_, leaf| {
        let array = leaves.next().filter(|leaf| leaf.present).and_then(|_| arrays.next());
        array.map_or_else(
            || {
                let mut shape = leaf.shape().to_vec();
                shape[0] = length;
                AnyArray::absent(shape, leaf.dtype())
            },
            AnyArray::present,
        )
    })
}
