//! Functions with a custom forward-mode rule.

use grove_backend::{
    AnyTensor, Backend,
    ops::{Function, FunctionVjp, Outcome, Values, Wanted},
};
use grove_tree::Tree;
use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use super::{
    along_tape, graph, name_of,
    shell::{Arrays, Shell, arrays},
};
use crate::{
    Traced,
    control::if_recording,
    primitive::{HigherOrder, LazyGraph, SubGraph},
    trace::types_of,
};

/// A function of a tree with a custom forward-mode rule: `jax.custom_jvp`.
///
/// The value itself holds static parameters only; arrays are arguments. Call the function with [`custom_jvp`].
///
/// # Examples
/// `log(1 + exp(x))`, whose derivative stays finite:
/// ```
/// use burn::tensor::{Tensor, activation::sigmoid};
/// use grove_backend::Backend;
/// use grove_compile::{CustomJvp, custom_jvp, jvp};
/// use grove_transform::grad;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// #[derive(Clone, Debug)]
/// struct Log1pExp;
///
/// impl CustomJvp for Log1pExp {
///     type Args<B: Backend> = Array<B, 1>;
///     type Output<B: Backend> = Array<B, 1>;
///
///     fn call<B: Backend>(&self, x: Array<B, 1>) -> Array<B, 1> {
///         x.val().exp().log1p().into()
///     }
///
///     fn jvp<B: Backend>(&self, x: Array<B, 1>, tangent: Array<B, 1>) -> (Array<B, 1>, Array<B, 1>) {
///         let slope = sigmoid(x.val());
///         (custom_jvp(self, x), (tangent.val() * slope).into())
///     }
/// }
///
/// let array = |x: f32| Array::<B, 1>::new(Tensor::from_floats([x], &Default::default()));
/// let (_, slope) = jvp(|x| custom_jvp(&Log1pExp, x), &array(100.0), &array(1.0));
/// assert_eq!(slope.val().into_scalar(), 1.0);
/// let slope = grad(&array(100.0), |x| custom_jvp(&Log1pExp, x).val());
/// assert_eq!(slope.val().into_scalar(), 1.0);
/// ```
pub trait CustomJvp: Clone + fmt::Debug + Send + Sync + 'static {
    /// Arguments: a tree with the same structure on every backend.
    type Args<B: Backend>: Tree<B> + Send + Sync + 'static;
    /// Results: a tree with the same structure on every backend.
    type Output<B: Backend>: Tree<B> + Send + Sync + 'static;

    /// Computes the results.
    fn call<B: Backend>(&self, args: Self::Args<B>) -> Self::Output<B>;

    /// Computes the results and their tangents, which must be linear in the tangents of the arguments. Every present
    /// floating-point leaf of the arguments has a tangent; the tangents of other leaves are absent. An absent tangent of a
    /// result counts as zero.
    ///
    /// Higher derivatives differentiate these operations. Call [`custom_jvp`] inside the rule to compute the results, so that
    /// higher derivatives use the rule as well.
    fn jvp<B: Backend>(&self, args: Self::Args<B>, tangents: Self::Args<B>) -> (Self::Output<B>, Self::Output<B>);
}

/// Calls a function with a custom forward-mode rule.
///
/// [`jvp`](crate::jvp()) and the transformations built on it use the rule directly. Gradients transpose the rule: it must be
/// linear in the tangents and consist of operations that have gradients. In a trace, the graph has one operation with
/// sub-graphs for the function and its rule, unless the trace contains a gradient of the function. [`vmap`](crate::vmap())
/// batches both.
///
/// # Panics
/// If a tangent returned by the rule differs in shape from its result.
#[track_caller]
pub fn custom_jvp<B: Backend, F: CustomJvp>(f: &F, args: F::Args<B>) -> F::Output<B> {
    let (args, values) = Shell::of(args);
    let function = Rule { f: f.clone(), args, output: Arc::default() };
    let outputs = B::run_function(&function, values.into_iter().collect()).into_values();
    match function.output.get() {
        Some(output) => output.filled(outputs),
        None => unreachable!("the function was called"),
    }
}

/// A function with its arguments and results, without their arrays.
#[derive(Clone)]
struct Rule<F: CustomJvp> {
    f: F,
    args: Shell<F::Args<Traced>>,
    output: Arc<OnceLock<Shell<F::Output<Traced>>>>,
}

impl<F: CustomJvp> fmt::Debug for Rule<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.f.fmt(f)
    }
}

impl<F: CustomJvp> Rule<F> {
    /// Computes the results.
    fn call<B: Backend>(&self, inputs: Arrays<B>) -> Arrays<B> {
        let (output, outputs) = Shell::of(self.f.call::<B>(self.args.filled(inputs)));
        let _ = self.output.set(output);
        outputs
    }

    /// Computes the results and the tangents of the floating-point results.
    fn push<B: Backend>(&self, inputs: Arrays<B>, tangents: Arrays<B>) -> (Arrays<B>, Arrays<B>) {
        let device = inputs.iter().flatten().next().map(AnyTensor::device).unwrap_or_default();
        let (output, tangents) = self.f.jvp::<B>(self.args.filled(inputs), self.args.filled(tangents));
        let (output, outputs) = Shell::<F::Output<Traced>>::of(output);
        let role = format!("tangent that `jvp` of `{}` returns", name_of::<F>());
        let tangents = output.complete(&role, arrays(&tangents), &device);
        let _ = self.output.set(output);
        (outputs, tangents)
    }

    /// Records the function as an operation of a trace.
    fn traced(&self, inputs: Arrays<Traced>) -> Arrays<Traced> {
        let types = types_of(inputs.iter().flatten());
        let function = graph::<F>(types, "result", |recording| self.call(self.args.arguments(recording)));
        let rule = self.clone();
        let jvp = LazyGraph::new(move || {
            graph::<F>(types, "result", |recording| {
                let primals = rule.args.arguments(recording);
                let tangents = rule.args.float_arguments(recording);
                let (outputs, tangents) = rule.push(primals, tangents);
                outputs.into_iter().chain(tangents).collect()
            })
        });
        let op = HigherOrder::CustomJvp { name: name_of::<F>(), function: SubGraph::new(function), jvp };
        let results = op.run::<Traced>(inputs.into_iter().flatten().map(Some).collect()).into_values();
        let Some(output) = self.output.get() else { unreachable!("the function was called") };
        output.at_leaves(results.into_iter().flatten())
    }
}

/// Uninhabited: the operations of the rule are differentiated instead.
#[derive(Clone, Debug)]
enum Never {}

impl FunctionVjp for Never {
    fn vjp<B: Backend>(&self, _saved: Values<B>, _grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        match *self {}
    }
}

impl<F: CustomJvp> Function for Rule<F> {
    type Vjp = Never;

    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B> {
        let record = |inputs: Values<Traced>| self.traced(inputs.into_values()).into_iter().collect();
        if_recording(inputs, record).unwrap_or_else(|inputs| self.call(inputs.into_values()).into_iter().collect())
    }

    fn forward<B: Backend>(&self, _inputs: Values<B>, _wanted: &Wanted) -> (Outcome<B>, Never) {
        unreachable!("its derivative is that of its rule's operations")
    }

    fn run_differentiable<B: Backend>(&self, inputs: &Values<B>, tracked: &[bool]) -> Option<Values<B>> {
        let inputs = inputs.clone().into_values();
        let present: Vec<_> = inputs.iter().map(Option::is_some).collect();
        let tracked: Vec<_> = tracked.iter().zip(&present).filter(|(_, present)| **present).map(|(x, _)| *x).collect();
        let at_leaves = |values: Vec<Option<AnyTensor<B>>>| -> Arrays<B> {
            let mut values = values.into_iter();
            present.iter().map(|present| if *present { values.next().flatten() } else { None }).collect()
        };
        let given = inputs.into_iter().flatten().collect();
        let results = along_tape(given, &tracked, |primals, tangents| {
            let primals = at_leaves(primals.into_iter().map(Some).collect());
            let (outputs, tangents) = self.push(primals, at_leaves(tangents));
            outputs.into_iter().zip(tangents).filter_map(|(y, tangent)| Some((y?, tangent))).collect()
        });
        let Some(output) = self.output.get() else { unreachable!("the function was called") };
        Some(output.at_leaves(results).into_iter().collect())
    }
}
