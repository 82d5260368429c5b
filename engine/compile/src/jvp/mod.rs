//! Forward-mode differentiation and the transformations built on it.

mod jacobian;
mod linear;
mod modules;
mod reductions;
mod rules;

use burn::tensor::Tensor;
use grove_backend::{AnyTensor, Autodiff, Backend};
use grove_transform::grad;
use grove_tree::{AnyArray, Path, Tree, leaves};

use crate::{
    Traceable, Traced,
    eval::Program,
    trace::{Recorded, Returned, arguments_for, captured_on, record},
    traced::Recording,
    tree_arrays::arrays,
    types::Types,
    words::leaf_name,
};
pub use jacobian::{Jacobian, hessian, jacfwd, jacrev};
pub use linear::{Linearized, linearize};
pub(crate) use rules::{Dual, JvpRules, Tangent, run};

/// Returns the value of a function of a tree and its directional derivative, the Jacobian-vector product: `jax.jvp`.
///
/// `tangents` is the direction: a tree like the arguments. An absent leaf counts as zero; leaves for integers and booleans must
/// be absent. Both results are trees like the function's result. In the derivative, leaves that are not floating-point are
/// absent.
///
/// Captured arrays of a trace around the call are constants. The function is traced. If it contains gradients, this is
/// forward-over-reverse differentiation; see [`hvp`]. The call itself can be traced and differentiated.
///
/// # Panics
/// Same as [`trace`](crate::trace()), and if the tangents do not match the arguments.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::jvp;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let array = |x: f32| Array::<B, 1>::new(Tensor::from_floats([x], &Default::default()));
/// let (y, slope) = jvp(|x| Array::<_, 1>::new(x.val().powf_scalar(3.0)), &array(2.0), &array(1.0));
/// assert_eq!((y.val().into_scalar(), slope.val().into_scalar()), (8.0, 12.0));
/// ```
#[track_caller]
pub fn jvp<B: Backend, A: Tree<B>, O: Tree<Traced>>(
    f: impl FnOnce(A::On<Traced>) -> O,
    args: &A,
    tangents: &A,
) -> (O::On<B>, O::On<B>) {
    let TracedCall { arguments, values, captured, program, result, device } = traced_call(f, args);
    let directions = directions(&arguments, tangents);
    let duals = values.into_iter().zip(directions).map(|(primal, tangent)| Dual { primal, tangent });
    let duals = duals.chain(captured.into_iter().map(Dual::constant)).collect();
    let results = rules::run(&program, duals, &device).into_iter();
    let (primals, tangents): (Vec<_>, Vec<_>) =
        results.map(|dual| (Some(dual.primal.clone()), dual.into_tangent())).unzip();
    let (value, keys) = result.filled(primals, result.keys());
    (value, result.filled_with_keys(tangents, &keys))
}

/// Computes the Hessian-vector product of a scalar function by forward-over-reverse differentiation: the derivative of the
/// gradient in a direction.
///
/// The function is as in [`value_and_grad`](grove_transform::value_and_grad). The cost is that of a few gradients, independent
/// of the number of parameters.
///
/// # Panics
/// Same as [`jvp`].
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::hvp;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let array = |x: [f32; 2]| Array::<B, 1>::new(Tensor::from_floats(x, &Default::default()));
/// let product = hvp(|x| x.val().powf_scalar(3.0).sum(), &array([1.0, 2.0]), &array([1.0, 10.0]));
/// assert_eq!(product.val().to_data().to_vec::<f32>().unwrap(), [6.0, 120.0]);
/// ```
#[track_caller]
pub fn hvp<B, A, F>(f: F, args: &A, direction: &A) -> A
where
    B: Backend,
    A: Traceable<B>,
    F: FnOnce(<A::OnTraced as Tree<Traced>>::On<Autodiff<Traced>>) -> Tensor<Autodiff<Traced>, 1>,
{
    jvp(|args: A::OnTraced| grad(&args, f), args, direction).1
}

/// A traced function with its arguments.
struct TracedCall<B: Backend, O> {
    arguments: Arguments<B>,
    /// Present arrays of the arguments.
    values: Vec<AnyTensor<B>>,
    /// Arrays of the enclosing trace that the function captured: the last arguments of the program.
    captured: Vec<AnyTensor<B>>,
    program: Program,
    result: Returned<O>,
    device: B::Device,
}

/// Path of each leaf of the arguments, the absent leaf, and true if it was present.
type Arguments<B> = Vec<(String, AnyArray<B>, bool)>;

/// Traces a function for the given arguments.
#[track_caller]
fn traced_call<B: Backend, A: Tree<B>, O: Tree<Traced>>(
    f: impl FnOnce(A::On<Traced>) -> O,
    args: &A,
) -> TracedCall<B, O> {
    let (values, device) = arrays(args);
    let mut arguments = Vec::new();
    args.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
        arguments.push((path.to_string(), leaf.clone().into_absent(), leaf.is_present()));
    });
    let lift = |recording: &_| arguments_for(recording, args.clone());
    let recording = Recording::within(Types::of::<B>(Some(&device)), &device);
    let Recorded { graph, result, captured } = record(recording, lift, f);
    let program = Program::new(graph.decomposed().without_common_subexpressions());
    let captured = captured_on::<B>(&captured);
    TracedCall { arguments, values, captured, program, result, device }
}

/// Returns the tangents of the present arguments, in order.
#[track_caller]
fn directions<B: Backend, A: Tree<B>>(arguments: &Arguments<B>, tangents: &A) -> Vec<Option<AnyTensor<B>>> {
    let given = leaves(tangents);
    let (expected, found) = (arguments.len(), given.len());
    assert!(
        expected == found,
        "the arguments have {expected} leaves, but the tangents have {found}: give a tree like the arguments"
    );
    let present = arguments.iter().zip(given).filter(|((.., present), _)| *present);
    present
        .map(|((path, leaf, _), (_, tangent))| {
            assert!(
                !tangent.is_present() || leaf.dtype().is_float() && tangent.shape() == leaf.shape(),
                "the tangent of the {}, {leaf}, is {tangent}: give one of its shape, or an absent leaf where \
                 the argument is not floating-point",
                leaf_name("argument", path)
            );
            // Cast the tangent to the dtype of the argument.
            let tangent = if leaf.dtype().is_float() { tangent.cast_float(leaf.dtype().into()) } else { tangent };
            tangent.into_value()
        })
        .collect()
}
