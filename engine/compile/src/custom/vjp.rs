//! Functions with a custom reverse-mode rule.

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
    graph, name_of,
    shell::{Arrays, Shell, arrays},
};
use crate::{
    Graph, Traced,
    control::if_recording,
    primitive::{HigherOrder, LazyGraph, SubGraph},
    trace::types_of,
    types::Types,
};

/// A function of a tree with a custom reverse-mode rule: `jax.custom_vjp`, `torch.autograd.Function`.
///
/// The value itself holds static parameters only; arrays are arguments. Call the function with [`custom_vjp`].
///
/// # Examples
/// A norm whose gradient at zero is zero:
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Backend;
/// use grove_compile::{CustomVjp, custom_vjp};
/// use grove_transform::grad;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// #[derive(Clone, Debug)]
/// struct SafeNorm;
///
/// impl CustomVjp for SafeNorm {
///     type Args<B: Backend> = Array<B, 1>;
///     type Output<B: Backend> = Array<B, 1>;
///     type Residuals<B: Backend> = (Array<B, 1>, Array<B, 1>);
///
///     fn forward<B: Backend>(&self, x: Array<B, 1>) -> (Array<B, 1>, (Array<B, 1>, Array<B, 1>)) {
///         let norm: Array<B, 1> = (x.val() * x.val()).sum().sqrt().into();
///         (norm.clone(), (x, norm))
///     }
///
///     fn backward<B: Backend>(&self, (x, norm): (Array<B, 1>, Array<B, 1>), grad: Array<B, 1>) -> Array<B, 1> {
///         let slope = x.val() / norm.val().clamp_min(1e-12);
///         (slope * grad.val()).into()
///     }
/// }
///
/// let zero = Array::<B, 1>::new(Tensor::zeros([2], &Default::default()));
/// let slope = grad(&zero, |x| custom_vjp(&SafeNorm, x).val());
/// assert_eq!(slope.val().to_data().to_vec::<f32>().unwrap(), [0.0, 0.0]);
/// ```
pub trait CustomVjp: Clone + fmt::Debug + Send + Sync + 'static {
    /// Arguments: a tree with the same structure on every backend.
    type Args<B: Backend>: Tree<B> + Send + Sync + 'static;
    /// Results: a tree with the same structure on every backend.
    type Output<B: Backend>: Tree<B> + Send + Sync + 'static;
    /// Residuals: the values that the derivative needs.
    type Residuals<B: Backend>: Tree<B> + Send + Sync + 'static;

    /// Computes the results and the residuals.
    fn forward<B: Backend>(&self, args: Self::Args<B>) -> (Self::Output<B>, Self::Residuals<B>);

    /// Computes the gradients of the arguments from the residuals and the gradients of the results. Every present
    /// floating-point leaf of the results has a gradient; the gradients of other leaves are absent. An absent gradient of an
    /// argument counts as zero.
    fn backward<B: Backend>(&self, residuals: Self::Residuals<B>, grads: Self::Output<B>) -> Self::Args<B>;
}

/// Calls a function with a custom reverse-mode rule.
///
/// `value_and_grad` uses the rule; a second derivative differentiates the operations of `forward` and `backward`. In a trace,
/// the graph has one operation with sub-graphs for both, unless the trace contains a gradient of the function.
/// [`vmap`](crate::vmap()) batches the rule. Forward-mode differentiation of the function is an error, as in JAX, but its
/// gradient can be differentiated in forward mode, as in [`hvp`](crate::hvp()).
///
/// # Panics
/// If a gradient returned by `backward` differs in shape from its argument, or under [`jvp`](crate::jvp()).
#[track_caller]
pub fn custom_vjp<B: Backend, F: CustomVjp>(f: &F, args: F::Args<B>) -> F::Output<B> {
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
struct Rule<F: CustomVjp> {
    f: F,
    args: Shell<F::Args<Traced>>,
    output: Arc<OnceLock<Shell<F::Output<Traced>>>>,
}

/// The derivative of a [`Rule`].
#[derive(Clone)]
struct Backward<F: CustomVjp> {
    f: F,
    args: Shell<F::Args<Traced>>,
    output: Shell<F::Output<Traced>>,
    residuals: Shell<F::Residuals<Traced>>,
}

impl<F: CustomVjp> fmt::Debug for Rule<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.f.fmt(f)
    }
}

impl<F: CustomVjp> fmt::Debug for Backward<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.f.fmt(f)
    }
}

impl<F: CustomVjp> Rule<F> {
    /// Computes the results, the residuals and the derivative.
    fn call<B: Backend>(&self, inputs: Arrays<B>) -> (Arrays<B>, Arrays<B>, Backward<F>) {
        let (output, residuals) = self.f.forward::<B>(self.args.filled(inputs));
        let (output, outputs) = Shell::of(output);
        let (residuals, saved) = Shell::of(residuals);
        let _ = self.output.set(output.clone());
        (outputs, saved, Backward { f: self.f.clone(), args: self.args.clone(), output, residuals })
    }

    /// Records the function as an operation of a trace.
    fn traced(&self, inputs: Arrays<Traced>) -> Arrays<Traced> {
        let types = types_of(inputs.iter().flatten());
        let mut called = None;
        let forward = graph::<F>(types, "result", |recording| {
            let (outputs, saved, backward) = self.call(self.args.arguments(recording));
            called = Some((outputs.iter().flatten().count(), backward));
            outputs.into_iter().chain(saved).collect()
        });
        let Some((count, backward)) = called else { unreachable!("the function was called") };
        let mut function = forward.clone();
        function.outputs.truncate(count);
        let op = HigherOrder::CustomVjp {
            name: name_of::<F>(),
            function: SubGraph::new(function.without_dead_code()),
            forward: SubGraph::new(forward),
            backward: LazyGraph::new({
                let backward = backward.clone();
                move || backward.graph(types)
            }),
        };
        let given = inputs.into_iter().flatten().map(Some).collect();
        backward.output.at_leaves(op.run::<Traced>(given).into_values().into_iter().flatten())
    }
}

impl<F: CustomVjp> Backward<F> {
    /// Computes the gradients of the arguments.
    fn pull<B: Backend>(&self, saved: Arrays<B>, grads: Arrays<B>) -> Arrays<B> {
        let device = saved.iter().chain(&grads).flatten().next().map(AnyTensor::device).unwrap_or_default();
        let grads = self.output.complete("gradient of the result", grads, &device);
        let grads = self.f.backward::<B>(self.residuals.filled(saved), self.output.filled(grads));
        let role = format!("gradient that `backward` of `{}` returns", name_of::<F>());
        self.args.complete(&role, arrays(&grads), &device)
    }

    /// Traces the derivative into a graph of residuals and gradients.
    fn graph(&self, types: Types) -> Graph {
        graph::<F>(types, "gradient", |recording| {
            let saved = self.residuals.arguments(recording);
            let grads = self.output.float_arguments(recording);
            self.pull::<Traced>(saved, grads)
        })
    }
}

impl<F: CustomVjp> Function for Rule<F> {
    type Vjp = Backward<F>;

    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B> {
        let record = |inputs: Values<Traced>| self.traced(inputs.into_values()).into_iter().collect();
        if_recording(inputs, record).unwrap_or_else(|inputs| self.call(inputs.into_values()).0.into_iter().collect())
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _wanted: &Wanted) -> (Outcome<B>, Backward<F>) {
        let (outputs, saved, backward) = self.call(inputs.into_values());
        (Outcome { outputs: outputs.into_iter().collect(), saved: saved.into_iter().collect() }, backward)
    }
}

impl<F: CustomVjp> FunctionVjp for Backward<F> {
    fn vjp<B: Backend>(&self, saved: Values<B>, grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        self.pull(saved.into_values(), grads.into_values()).into_iter().collect()
    }
}
