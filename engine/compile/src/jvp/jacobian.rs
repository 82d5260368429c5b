//! Jacobians and Hessians.

use burn::tensor::Tensor;
use grove_backend::{AnyTensor, Autodiff, Backend, ops::Spec};
use grove_transform::{grad, vjp};
use grove_tree::{AnyArray, Array, Path, Tree, leaves};
use std::fmt;

use super::{
    TracedCall,
    linear::{LinearMap, derivative, linear_part},
    traced_call,
};
use crate::{
    Traced,
    trace::{argument, arguments_for, captured_on},
    traced::Recording,
    tree_arrays::arrays,
    types::Types,
};

/// Derivatives of each element of a function's results with respect to each element of its arguments.
///
/// There is one block for each pair of a floating-point result and a floating-point argument. Its shape is the shape of the
/// result followed by the shape of the argument.
#[derive(Clone, Debug)]
pub struct Jacobian<B: Backend> {
    blocks: Vec<Block<B>>,
}

#[derive(Clone, Debug)]
struct Block<B: Backend> {
    result: String,
    argument: String,
    array: AnyArray<B>,
}

impl<B: Backend> Jacobian<B> {
    /// Returns the block for the paths of a result and an argument; `None` if there is no such block.
    pub fn get(&self, result: &str, argument: &str) -> Option<&AnyArray<B>> {
        self.blocks.iter().find(|block| block.result == result && block.argument == argument).map(|block| &block.array)
    }

    /// Returns all blocks with the paths of their results and arguments.
    pub fn blocks(&self) -> impl Iterator<Item = (&str, &str, &AnyArray<B>)> {
        self.blocks.iter().map(|block| (&block.result[..], &block.argument[..], &block.array))
    }

    /// Returns the only block of a function with one result and one argument.
    ///
    /// # Shapes
    /// - result `[m...]`, argument `[n...]`
    /// - block `[m..., n...]`; `D` is the sum of the ranks
    ///
    /// # Panics
    /// If there is not exactly one block, or its rank is not `D`.
    #[track_caller]
    pub fn array<const D: usize>(&self) -> Array<B, D> {
        let [block] = &self.blocks[..] else {
            panic!("the Jacobian has {} blocks: choose one with `get`", self.blocks.len())
        };
        let rank = block.array.shape().len();
        Array::from_any(block.array.clone()).unwrap_or_else(|| {
            panic!("the block of derivatives, {}, has rank {rank}, but was requested with rank {D}", block.array)
        })
    }
}

impl<B: Backend> fmt::Display for Jacobian<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = |block: &Block<B>| format!("d({})/d({}): {}", block.result, block.argument, block.array);
        write!(f, "{}", self.blocks.iter().map(line).collect::<Vec<_>>().join("\n"))
    }
}

/// Computes the Jacobian of a function by forward-mode differentiation: `jax.jacfwd`. The cost is about one call of the
/// function per element of the arguments, all batched together. [`jacrev`] is cheaper if the results have fewer elements than
/// the arguments.
///
/// # Panics
/// Same as [`jvp`](crate::jvp()).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::jacfwd;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([2.0, 3.0], &Default::default()));
/// let derivatives = jacfwd(|x| Array::<_, 1>::new(x.val().powf_scalar(2.0)), &x).array::<2>();
/// assert_eq!(derivatives.val().to_data().to_vec::<f32>().unwrap(), [4.0, 0.0, 0.0, 6.0]);
/// ```
#[track_caller]
pub fn jacfwd<B: Backend, A: Tree<B>, O: Tree<Traced>>(f: impl FnOnce(A::On<Traced>) -> O, args: &A) -> Jacobian<B> {
    let TracedCall { arguments, values, captured, program, result, device } = traced_call(f, args);
    let (_, derivative) = derivative(&program, values, captured, device);
    let arguments = arguments.into_iter().filter(|(.., present)| *present).map(|(path, ..)| path);
    let results = leaves(&result.shell).into_iter().zip(result.present);
    let results = results.filter(|(_, present)| *present).map(|((path, _), _)| path);
    let (arguments, results): (Vec<_>, Vec<_>) = (arguments.collect(), results.collect());
    let mut blocks = Vec::new();
    for (i, argument) in arguments.iter().enumerate() {
        for (j, rows) in columns(&derivative, i) {
            // From `[argument..., result...]` to `[result..., argument...]`.
            let (whole, inner) = (rows.shape().num_dims(), rank(&derivative.inputs[i]));
            let order: Vec<_> = (inner..whole).chain(0..inner).collect();
            let array = AnyArray::present(rows.permute(&order));
            blocks.push(Block { result: results[j].clone(), argument: argument.clone(), array });
        }
    }
    // Sort by result.
    let position = |block: &Block<B>| results.iter().position(|result| *result == block.result);
    blocks.sort_by_key(position);
    Jacobian { blocks }
}

/// Computes the Jacobian of a function by reverse-mode differentiation: `jax.jacrev`. The cost is about one backward pass per
/// element of the results, all batched together. [`jacfwd`] is cheaper if the arguments have fewer elements than the results.
///
/// The function is not differentiated with respect to buffers (`#[tree(buffer)]`).
///
/// # Panics
/// Same as [`jvp`](crate::jvp()).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::jacrev;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([2.0, 3.0], &Default::default()));
/// let derivatives = jacrev(|x| Array::<_, 1>::new(x.val().powf_scalar(2.0)), &x).array::<2>();
/// assert_eq!(derivatives.val().to_data().to_vec::<f32>().unwrap(), [4.0, 0.0, 0.0, 6.0]);
/// ```
#[track_caller]
pub fn jacrev<B, A, O, F>(f: F, args: &A) -> Jacobian<B>
where
    B: Backend,
    A: Tree<B>,
    O: Tree<Autodiff<Traced>>,
    F: FnOnce(<A::On<Traced> as Tree<Traced>>::On<Autodiff<Traced>>) -> O,
{
    let (mut values, device) = arrays(args);
    let recording = Recording::within(Types::of::<B>(Some(&device)), &device);
    let traced = arguments_for(&recording, args.clone());
    let (result, pullback) = vjp::<Traced, A::On<Traced>, O, F>(&traced, f);
    let (mut inputs, mut results) = (Vec::new(), Vec::new());
    let cotangent = result.map(&mut Path::root(), &mut |path, leaf| {
        let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
        if !leaf.is_present() || !leaf.dtype().is_float() {
            return absent;
        }
        results.push(path.to_string());
        inputs.push(Some(Spec { shape: leaf.shape().to_vec().into(), dtype: leaf.dtype() }));
        argument(&recording, path, leaf.shape(), leaf.dtype())
    });
    let (mut grads, mut outputs, mut arguments) = (Vec::new(), Vec::new(), Vec::new());
    pullback(cotangent).visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<Traced>| {
        if let Some(x) = leaf.value() {
            outputs.push(Some(Spec { shape: x.shape(), dtype: x.dtype() }));
            grads.push((path.to_string(), x.clone()));
            arguments.push(path.to_string());
        }
    });
    let (mut graph, captured) = recording.finish_nested(grads);
    // Captured arrays come before the gradients, because their values are known.
    graph.inputs[values.len()..].rotate_right(captured.len());
    values.extend(captured_on::<B>(&captured));
    let (_, map) = linear_part(graph, values, 0, inputs, outputs, device);
    let mut blocks = Vec::new();
    for (i, result) in results.iter().enumerate() {
        for (j, rows) in columns(&map, i) {
            let (result, argument) = (result.clone(), arguments[j].clone());
            blocks.push(Block { result, argument, array: AnyArray::present(rows) });
        }
    }
    Jacobian { blocks }
}

/// Computes the Hessian of a scalar function by forward-over-reverse differentiation: `jax.hessian`.
///
/// The function is as in [`value_and_grad`](grove_transform::value_and_grad). For Hessian-vector products alone, call
/// [`hvp`](crate::hvp).
///
/// # Panics
/// Same as [`jvp`](crate::jvp()).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::hessian;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([2.0, 3.0], &Default::default()));
/// let second = hessian(|x| x.val().prod() * 5.0, &x).array::<2>();
/// assert_eq!(second.val().to_data().to_vec::<f32>().unwrap(), [0.0, 5.0, 5.0, 0.0]);
/// ```
#[track_caller]
pub fn hessian<B, A, F>(f: F, args: &A) -> Jacobian<B>
where
    B: Backend,
    A: Tree<B>,
    F: FnOnce(<A::On<Traced> as Tree<Traced>>::On<Autodiff<Traced>>) -> Tensor<Autodiff<Traced>, 1>,
{
    jacfwd(|args: A::On<Traced>| grad(&args, f), args)
}

/// Applies a linear map to a basis of one input. The axes of the input replace the first axis of the outputs. Returns nothing
/// if the input has no derivative.
fn columns<B: Backend>(map: &LinearMap<B>, input: usize) -> Vec<(usize, AnyTensor<B>)> {
    let Some(spec) = &map.inputs[input] else { return Vec::new() };
    let results = map.call_on_basis(input).into_iter().enumerate();
    let whole = |(j, x): (usize, Option<AnyTensor<B>>)| {
        let x = x?;
        let shape = [&spec.shape[..], &x.shape()[1..]].concat();
        Some((j, x.reshape(shape)))
    };
    results.filter_map(whole).collect()
}

fn rank(spec: &Option<Spec>) -> usize {
    spec.as_ref().map_or(0, |spec| spec.shape.num_dims())
}
