use grove_backend::Backend;
use grove_tree::Tree;

use super::moment::{bias_correction, corrected, decayed_mean};
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, precision, zeros_like},
    transformation::{has_no_leaves, increment, steps, zero_count},
};

/// See [`trace`].
#[derive(Clone, Debug)]
pub struct Trace<B: Backend> {
    decay: Scalar<B>,
    nesterov: bool,
}

/// Computes a trace of past updates, the momentum: `trace = decay * trace + update`. With `nesterov`, the result is
/// `update + decay * trace`, otherwise `trace`.
///
/// Polyak, "Some methods of speeding up the convergence of iteration methods" (1964); Nesterov (1983), in the form of
/// Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013).
pub fn trace<B: Backend>(decay: impl Into<Scalar<B>>, nesterov: bool) -> Trace<B> {
    Trace { decay: decay.into(), nesterov }
}

/// State of [`trace`].
#[derive(Tree, Clone, Debug)]
pub struct TraceState<P> {
    /// Decaying sum of updates, f32, or f64 for f64 parameters.
    pub trace: P,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for Trace<B> {
    type State = TraceState<P>;

    fn init(&self, params: &P) -> Self::State {
        TraceState { trace: zeros_like(params) }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        let [updates, trace] = elementwise([updates, state.trace], |[g, trace]| match self.nesterov {
            true => {
                let trace = self.decay.times(trace) + g.clone();
                [g + self.decay.times(trace.clone()), trace]
            }
            false => {
                let trace = self.decay.times(trace) + g;
                [trace.clone(), trace]
            }
        });
        (updates, TraceState { trace })
    }
}

/// See [`ema`].
#[derive(Clone, Debug)]
pub struct Ema<B: Backend> {
    decay: Scalar<B>,
    debias: bool,
}

/// Replaces updates by their exponential moving average, which is bias-corrected if `debias` is true.
pub fn ema<B: Backend>(decay: impl Into<Scalar<B>>, debias: bool) -> Ema<B> {
    Ema { decay: decay.into(), debias }
}

/// Step count and moving average.
#[derive(Tree, Clone, Debug)]
pub struct EmaState<B: Backend, P> {
    /// Number of steps.
    pub count: Count<B>,
    /// Moving average without bias correction, f32, or f64 for f64 parameters.
    pub ema: P,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for Ema<B> {
    type State = EmaState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        EmaState { count: zero_count(params), ema: zeros_like(params) }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.count) {
            return (updates, state);
        }
        let count = increment(state.count);
        let correction = self.debias.then(|| bias_correction(&self.decay, steps(&count, precision(&updates))));
        let [updates, ema] = elementwise([updates, state.ema], |[g, ema]| {
            let ema = decayed_mean(&self.decay, ema, g);
            [corrected(ema.clone(), &correction), ema]
        });
        (updates, EmaState { count, ema })
    }
}
