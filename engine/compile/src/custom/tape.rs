//! Reverse mode of functions with a custom forward-mode rule.
//!
//! The rule is linear in the tangents. Differentiating its operations with respect to the tangents, at any value, therefore
//! gives the transposed rule: zero tangents are connected to the arguments and receive their gradients, and the tangents of the
//! results receive the gradients of the results.

use grove_backend::{
    AnyTensor, Backend,
    ops::{Function, FunctionVjp, Outcome, Values, Wanted},
};

/// Zeros whose gradient is passed to the input array.
#[derive(Clone, Debug)]
struct ZeroTangent;

/// An array whose gradient is passed to its tangent.
#[derive(Clone, Debug)]
struct WithTangent;

/// The derivative of both: passes the gradient of the output to the input at this position.
#[derive(Clone, Debug)]
struct ToInput(usize);

impl FunctionVjp for ToInput {
    fn vjp<B: Backend>(&self, _saved: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        std::iter::repeat_with(|| None).take(self.0).chain([grads.take(0)]).collect()
    }
}

impl Function for ZeroTangent {
    type Vjp = ToInput;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        std::iter::once(inputs.take(0).map(|x| x.zeros_like())).collect()
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _wanted: &Wanted) -> (Outcome<B>, ToInput) {
        (self.run(inputs).into(), ToInput(0))
    }
}

impl Function for WithTangent {
    type Vjp = ToInput;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        std::iter::once(inputs.take(0)).collect()
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _wanted: &Wanted) -> (Outcome<B>, ToInput) {
        (self.run(inputs).into(), ToInput(1))
    }
}

/// Runs a rule on an autodiff backend such that gradients flow only through its tangents. The rule receives the primals and the
/// tangents of floating-point primals, and returns a pair of primal and tangent for each result.
pub(crate) fn along_tape<B: Backend>(
    inputs: Vec<AnyTensor<B>>,
    tracked: &[bool],
    rule: impl FnOnce(Vec<AnyTensor<B>>, Vec<Option<AnyTensor<B>>>) -> Vec<(AnyTensor<B>, Option<AnyTensor<B>>)>,
) -> Vec<AnyTensor<B>> {
    let one = |mut outputs: Values<B>| outputs.take(0);
    let tangent = |(x, tracked): (&AnyTensor<B>, &bool)| match x {
        AnyTensor::Float(_) if *tracked => one(B::run_function(&ZeroTangent, Values::default().with(x.clone()))),
        AnyTensor::Float(_) => Some(x.zeros_like()),
        _ => None,
    };
    let tangents = inputs.iter().zip(tracked).map(tangent).collect();
    let detached = |x: AnyTensor<B>| match x {
        AnyTensor::Float(x) => AnyTensor::Float(B::float_detach(x)),
        x => x,
    };
    let results = rule(inputs.into_iter().map(detached).collect(), tangents);
    let result = |(y, tangent): (AnyTensor<B>, Option<AnyTensor<B>>)| match tangent {
        Some(tangent) => {
            let values = Values::default().with(y.clone()).with(tangent);
            one(B::run_function(&WithTangent, values)).unwrap_or(y)
        }
        None => y,
    };
    results.into_iter().map(result).collect()
}
