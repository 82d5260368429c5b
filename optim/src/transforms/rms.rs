use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::Tree;

use super::moment::{bias_correction, corrected, decayed_mean, decayed_square};
use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, filled_like, precision, zeros_like},
    transformation::{has_no_leaves, increment, steps, zero_count},
};

/// Rescales updates by the square root of the exponential moving average of their squares, as RMSProp does. The fields
/// are the hyperparameters; [`Default`] has optax's values.
///
/// Tieleman and Hinton, "Lecture 6.5 - RMSProp, Coursera: Neural Networks for Machine Learning" (2012).
#[derive(Clone, Debug)]
pub struct ScaleByRms<B: Backend> {
    /// Decay rate of the average of squares. Default 0.9.
    pub decay: Scalar<B>,
    /// Added to the average of squares or to its square root, for numerical stability. Default 1e-8.
    pub eps: Scalar<B>,
    /// Initial average of squares. Default 0.
    pub initial_scale: f64,
    /// If true, the default, `eps` is added inside the square root; otherwise outside, as in PyTorch.
    pub eps_in_sqrt: bool,
    /// If true, corrects the bias of the average. Default false.
    pub bias_correction: bool,
}

impl<B: Backend> Default for ScaleByRms<B> {
    fn default() -> Self {
        Self { decay: 0.9.into(), eps: 1e-8.into(), initial_scale: 0.0, eps_in_sqrt: true, bias_correction: false }
    }
}

/// Rescales updates by the square root of the moving average of their squares; see [`ScaleByRms`].
pub fn scale_by_rms<B: Backend>(options: ScaleByRms<B>) -> ScaleByRms<B> {
    options
}

/// The average of squares, and the step count if the average is bias-corrected.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByRmsState<B: Backend, P> {
    /// Number of steps; `None` without bias correction.
    pub count: Option<Count<B>>,
    /// Moving average of squared gradients, f32, or f64 for f64 parameters.
    pub nu: P,
}

impl<B: Backend> ScaleByRms<B> {
    /// Returns the count for the next step, and the bias correction of the averages.
    fn correction<P: Tree<B>>(&self, count: Option<Count<B>>, updates: &P) -> (Option<Count<B>>, Option<Tensor<B, 1>>) {
        let count = count.map(increment);
        let readable = count.as_ref().filter(|count| !has_no_leaves(updates, count));
        let correction = readable.map(|count| bias_correction(&self.decay, steps(count, precision(updates))));
        (count, correction)
    }

    /// Returns 1 over the square root of a variance, with `eps`.
    fn over_root(&self, variance: Tensor<B, 1>) -> Tensor<B, 1> {
        match self.eps_in_sqrt {
            true => self.eps.plus(variance).sqrt(),
            false => self.eps.plus(variance.sqrt()),
        }
        .recip()
    }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByRms<B> {
    type State = ScaleByRmsState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        ScaleByRmsState {
            count: self.bias_correction.then(|| zero_count(params)),
            nu: filled_like(params, self.initial_scale),
        }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        let (count, correction) = self.correction(state.count, &updates);
        let [updates, nu] = elementwise([updates, state.nu], |[g, nu]| {
            let nu = decayed_square(&self.decay, nu, g.clone());
            [self.over_root(corrected(nu.clone(), &correction)) * g, nu]
        });
        (updates, ScaleByRmsState { count, nu })
    }
}

/// See [`scale_by_stddev`].
#[derive(Clone, Debug)]
pub struct ScaleByStddev<B: Backend>(ScaleByRms<B>);

/// Rescales updates by their standard deviation: [`scale_by_rms`] with the square of the moving average subtracted from
/// the average of squares. Graves, "Generating Sequences With Recurrent Neural Networks" (2013).
pub fn scale_by_stddev<B: Backend>(options: ScaleByRms<B>) -> ScaleByStddev<B> {
    ScaleByStddev(options)
}

/// Both averages, and the step count if they are bias-corrected.
#[derive(Tree, Clone, Debug)]
pub struct ScaleByStddevState<B: Backend, P> {
    /// Number of steps; `None` without bias correction.
    pub count: Option<Count<B>>,
    /// Moving average of gradients, f32, or f64 for f64 parameters.
    pub mu: P,
    /// Moving average of squared gradients, f32, or f64 for f64 parameters.
    pub nu: P,
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByStddev<B> {
    type State = ScaleByStddevState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        let ScaleByRmsState { count, nu } = self.0.init(params);
        ScaleByStddevState { count, mu: zeros_like(params), nu }
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        let (count, correction) = self.0.correction(state.count, &updates);
        let [updates, mu, nu] = elementwise([updates, state.mu, state.nu], |[g, mu, nu]| {
            let mu = decayed_mean(&self.0.decay, mu, g.clone());
            let nu = decayed_square(&self.0.decay, nu, g.clone());
            let mean = corrected(mu.clone(), &correction);
            let variance = corrected(nu.clone(), &correction) - mean.clone() * mean;
            [self.0.over_root(variance) * g, mu, nu]
        });
        (updates, ScaleByStddevState { count, mu, nu })
    }
}
