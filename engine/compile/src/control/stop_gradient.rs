//! Stopping derivatives.

use grove_backend::{
    AnyTensor, Backend,
    ops::{Function, FunctionVjp, Outcome, Values, Wanted},
};
use grove_tree::{AnyArray, Tree, map};

use super::function::record_like_inputs;
use crate::{Primitive, target::missing};

/// Returns its argument and stops derivatives in every mode: `jax.lax.stop_gradient`.
///
/// In a trace the graph has an operation for it. Burn's `detach` acts only on the tape and records no operation in a trace.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::{jvp, stop_gradient};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([3.0], &Default::default()));
/// let f = |x: Array<_, 1>| Array::new(stop_gradient(x.clone()).val() * x.val());
/// let (y, tangent) = jvp(f, &x.clone(), &x);
/// assert_eq!((y.val().into_scalar(), tangent.val().into_scalar()), (9.0, 9.0));
/// ```
pub fn stop_gradient<B: Backend, T: Tree<B>>(tree: T) -> T {
    map(tree, |leaf| match leaf.is_present() {
        true => AnyArray::present(stopped(leaf.into_value().unwrap_or_else(|| missing()))),
        false => leaf,
    })
}

/// Stops derivatives through an array.
pub(crate) fn stopped<B: Backend>(x: AnyTensor<B>) -> AnyTensor<B> {
    match x {
        AnyTensor::Float(_) => {
            let mut outputs = B::run_function(&StopGradient, std::iter::once(Some(x)).collect());
            outputs.take(0).unwrap_or_else(|| missing())
        }
        x => x,
    }
}

#[derive(Clone, Debug)]
struct StopGradient;

impl Function for StopGradient {
    type Vjp = Self;
    const DIFFERENTIABLE: bool = false;

    fn run<B: Backend>(&self, inputs: Values<B>) -> Values<B> {
        record_like_inputs(Primitive::StopGradient, inputs).unwrap_or_else(|inputs| inputs)
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        (self.run(inputs).into(), self.clone())
    }
}

impl FunctionVjp for StopGradient {
    fn vjp<B: Backend>(&self, _: Values<B>, _: Values<B>, _: &Wanted) -> Values<B> {
        unreachable!("it is not differentiable")
    }
}
