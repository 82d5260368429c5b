//! Linearization: linear maps that are evaluated many times.

use burn::tensor::TensorData;
use grove_backend::{AnyTensor, Backend, ops::Spec};
use grove_tree::{Key, Tree};
use std::{fmt, marker::PhantomData};

use super::{
    Arguments, TracedCall, directions,
    rules::{self, Dual},
    traced_call,
};
use crate::{
    Graph, Traced,
    eval::Program,
    trace::Returned,
    traced::{Recording, outputs_at},
    vmap::{self, Batched},
};

/// Returns the value of a function of a tree and its derivative at that point as a linear function: `jax.linearize`.
///
/// The derivative is the one of [`jvp`](crate::jvp()), for one point and many directions: everything that does not depend on
/// the direction is computed once, by this function.
///
/// # Panics
/// Same as [`jvp`](crate::jvp()).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::linearize;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let array = |x: f32| Array::<B, 1>::new(Tensor::from_floats([x], &Default::default()));
/// let (y, derivative) = linearize(|x| Array::<_, 1>::new(x.val().powf_scalar(3.0)), &array(2.0));
/// assert_eq!(y.val().into_scalar(), 8.0);
/// assert_eq!(derivative.call(&array(1.0)).val().into_scalar(), 12.0);
/// assert_eq!(derivative.call(&array(-2.0)).val().into_scalar(), -24.0);
/// ```
#[track_caller]
pub fn linearize<B: Backend, A: Tree<B>, O: Tree<Traced>>(
    f: impl FnOnce(A::On<Traced>) -> O,
    args: &A,
) -> (O::On<B>, Linearized<B, A, O>) {
    let TracedCall { arguments, values, captured, program, result, device } = traced_call(f, args);
    let (values, derivative) = derivative(&program, values, captured, device);
    let (value, keys) = result.filled(values.into_iter().map(Some).collect(), result.keys());
    (value, Linearized { arguments, derivative, result, keys, args: PhantomData })
}

/// Derivative of a function at a point, as a linear function of directions; see [`linearize`].
pub struct Linearized<B: Backend, A, O> {
    arguments: Arguments<B>,
    derivative: LinearMap<B>,
    result: Returned<O>,
    keys: Vec<Key>,
    args: PhantomData<fn(A) -> O>,
}

impl<B: Backend, A: Tree<B>, O: Tree<Traced>> Linearized<B, A, O> {
    /// Returns the derivative in a direction. An absent leaf of the direction counts as zero. Leaves of the result that are not
    /// floating-point are absent.
    ///
    /// # Panics
    /// If the direction does not have the leaves of the function's arguments.
    #[track_caller]
    pub fn call(&self, direction: &A) -> O::On<B> {
        let directions = directions(&self.arguments, direction);
        self.result.filled_with_keys(self.derivative.call(directions), &self.keys)
    }
}

impl<B: Backend, A, O> fmt::Debug for Linearized<B, A, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linearized").field("arguments", &self.arguments.len()).finish_non_exhaustive()
    }
}

/// A linear function of tensors, with the residuals of the point at which it was derived.
pub(super) struct LinearMap<B: Backend> {
    program: Program,
    residuals: Vec<AnyTensor<B>>,
    /// Type of each input and output; `None` for those without derivatives.
    pub inputs: Vec<Option<Spec>>,
    pub outputs: Vec<Option<Spec>>,
    device: B::Device,
}

impl<B: Backend> LinearMap<B> {
    /// Applies the map; a `None` input counts as zero.
    pub fn call(&self, inputs: Vec<Option<AnyTensor<B>>>) -> Vec<Option<AnyTensor<B>>> {
        let inputs = inputs.into_iter().zip(&self.inputs);
        let inputs = inputs.filter_map(|(x, spec)| Some(x.unwrap_or(zeros(spec.as_ref()?, &self.device))));
        let arguments = self.residuals.iter().cloned().chain(inputs).collect();
        self.placed(self.program.run(arguments, &self.device))
    }

    /// Applies the map to every element of a basis of one input, along a new first axis. All other inputs are zero.
    pub fn call_on_basis(&self, position: usize) -> Vec<Option<AnyTensor<B>>> {
        let mut examples = 0;
        let inputs = self.inputs.iter().enumerate().filter_map(|(i, spec)| {
            let spec = spec.as_ref()?;
            Some(match i == position {
                true => {
                    let basis = basis(spec, &self.device);
                    examples = basis.shape()[0];
                    Batched { tensor: basis, batched: true }
                }
                false => Batched { tensor: zeros(spec, &self.device), batched: false },
            })
        });
        let inputs: Vec<_> = inputs.collect();
        let residuals = self.residuals.iter().cloned().map(|tensor| Batched { tensor, batched: false });
        let arguments = residuals.chain(inputs).collect();
        self.placed(vmap::run(&self.program, arguments, examples, &self.device))
    }

    /// Places the results of the program at the positions of the outputs.
    fn placed(&self, results: Vec<AnyTensor<B>>) -> Vec<Option<AnyTensor<B>>> {
        let mut results = results.into_iter();
        self.outputs.iter().map(|spec| spec.as_ref().and_then(|_| results.next())).collect()
    }
}

fn zeros<B: Backend>(spec: &Spec, device: &B::Device) -> AnyTensor<B> {
    AnyTensor::Float(B::float_zeros(spec.shape.clone(), device, spec.dtype.into()))
}

/// Returns the standard basis of a shape, `[elements, ...]`: each array has a single 1.
fn basis<B: Backend>(spec: &Spec, device: &B::Device) -> AnyTensor<B> {
    let count = spec.shape.num_elements();
    let mut values = vec![0.0_f32; count * count];
    (0..count).for_each(|i| values[i * count + i] = 1.0);
    let shape = [&[count], &spec.shape[..]].concat();
    AnyTensor::from_data(TensorData::new(values, shape).convert_dtype(spec.dtype), device)
}

/// Returns the results of a program and its derivative: a linear function of the tangents of its arguments. The last arguments,
/// `constants`, have no tangents.
pub(super) fn derivative<B: Backend>(
    program: &Program,
    mut values: Vec<AnyTensor<B>>,
    constants: Vec<AnyTensor<B>>,
    device: B::Device,
) -> (Vec<AnyTensor<B>>, LinearMap<B>) {
    let recording = Recording::start(program.graph().types);
    let spec_of = |x: &AnyTensor<B>| Spec { shape: x.shape(), dtype: x.dtype() };
    let count = values.len();
    values.extend(constants);
    let specs: Vec<_> = values.iter().map(spec_of).collect();
    let floats = specs[..count].iter().map(|spec| spec.dtype.is_float().then(|| spec.clone())).collect::<Vec<_>>();
    let primals: Vec<_> = specs.into_iter().map(|spec| recording.input("primal", spec)).collect();
    let tangents = floats.iter().map(|spec| Some(recording.input("tangent", spec.clone()?)));
    let tangents = tangents.chain(std::iter::repeat(None));
    let duals = primals.into_iter().zip(tangents).map(|(primal, tangent)| Dual { primal, tangent }).collect();
    let results = rules::run_apart::<Traced>(program, duals, &Default::default());
    let primals: Vec<_> = results.iter().map(|dual| dual.primal.clone()).collect();
    let count = primals.len();
    let tangents: Vec<_> = results.into_iter().map(Dual::into_tangent).collect();
    let of_results = tangents.iter().map(|x| x.as_ref().map(|x| Spec { shape: x.shape(), dtype: x.dtype() })).collect();
    let tangents = outputs_at("tangent", tangents.into_iter().flatten());
    let graph = recording.finish(outputs_at("primal", primals).chain(tangents));
    linear_part(graph, values, count, floats, of_results, device)
}

/// Runs the part of a graph that depends only on the first arguments, whose values are given, and returns its `count` results.
/// The remaining part of the graph must be linear in the other arguments.
pub(super) fn linear_part<B: Backend>(
    graph: Graph,
    values: Vec<AnyTensor<B>>,
    count: usize,
    inputs: Vec<Option<Spec>>,
    outputs: Vec<Option<Spec>>,
    device: B::Device,
) -> (Vec<AnyTensor<B>>, LinearMap<B>) {
    let (known, linear) = graph.decomposed().without_common_subexpressions().split(values.len(), count);
    let mut results = Program::new(known).run(values, &device);
    let residuals = results.split_off(count);
    (results, LinearMap { program: Program::new(linear), residuals, inputs, outputs, device })
}
