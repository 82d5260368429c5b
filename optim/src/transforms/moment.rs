//! Exponential moving averages, the state of most transformations.

use burn::tensor::Tensor;
use grove_backend::Backend;

use crate::{
    Scalar,
    scalar::{divided, scaled},
};

/// `decay * mean + (1 - decay) * x`
pub(crate) fn decayed_mean<B: Backend>(decay: &Scalar<B>, mean: Tensor<B, 1>, x: Tensor<B, 1>) -> Tensor<B, 1> {
    decay.times(mean) + decay.complement().times(x)
}

/// `decay * mean + (1 - decay) * x^2`
pub(crate) fn decayed_square<B: Backend>(decay: &Scalar<B>, mean: Tensor<B, 1>, x: Tensor<B, 1>) -> Tensor<B, 1> {
    decayed_mean(decay, mean, x.clone() * x)
}

/// `1 - decay^count`: the divisor that corrects the bias of a moving average that starts at zero.
///
/// This is a small difference of values near 1 (0.001 at the first step of Adam's second moment), of which f32 would
/// keep four digits. `1 - exp(-2y) = 2 tanh(y) / (1 + tanh(y))` keeps full precision.
pub(crate) fn bias_correction<B: Backend>(decay: &Scalar<B>, count: Tensor<B, 1>) -> Tensor<B, 1> {
    let tanh = half_exponent(decay, count).tanh();
    tanh.clone().mul_scalar(2.0) / tanh.add_scalar(1.0)
}

/// Returns `y` such that `decay^count = exp(-2y)`.
pub(crate) fn half_exponent<B: Backend>(decay: &Scalar<B>, count: Tensor<B, 1>) -> Tensor<B, 1> {
    match decay {
        // exp(-2 * 1e4) is 0 in f32; some backends' tanh does not handle infinity.
        Scalar::Number(decay) => count.mul_scalar((-0.5 * decay.ln()).min(1e4)),
        Scalar::Array(_) => {
            let decay = decay.array_like(&count);
            count * decay.log().mul_scalar(-0.5).clamp_max(1e4)
        }
    }
}

/// Update of the Adam family as a function of the two moments.
pub(crate) struct Ratio<'a, B: Backend> {
    /// Bias correction of the first moment; `None` for no correction.
    pub first: Option<Tensor<B, 1>>,
    /// Bias correction of the second moment; `None` for no correction.
    pub second: Option<Tensor<B, 1>>,
    pub eps: &'a Scalar<B>,
    pub eps_root: &'a Scalar<B>,
}

impl<B: Backend> Ratio<'_, B> {
    /// `(mean / first) / (sqrt(square / second + eps_root) + eps)`
    ///
    /// The corrections are scalars, so combining them first saves passes over memory.
    pub(crate) fn of(&self, mean: Tensor<B, 1>, square: Tensor<B, 1>) -> Tensor<B, 1> {
        let root = if self.eps_root.is_zero() {
            let factor = self.second.clone().map(|second| second.sqrt().recip());
            scaled_by(square.sqrt(), product(factor, self.first.clone()))
        } else {
            let corrected = scaled_by(square, self.second.clone().map(Tensor::recip));
            scaled_by(self.eps_root.plus(corrected).sqrt(), self.first.clone())
        };
        let eps = match &self.first {
            Some(first) => Scalar::Array(self.eps.array_like(first) * first.clone()),
            None => self.eps.clone(),
        };
        eps.plus(root).recip() * mean
    }
}

fn scaled_by<B: Backend>(x: Tensor<B, 1>, factor: Option<Tensor<B, 1>>) -> Tensor<B, 1> {
    match factor {
        Some(factor) => scaled(x, factor),
        None => x,
    }
}

fn product<B: Backend>(x: Option<Tensor<B, 1>>, y: Option<Tensor<B, 1>>) -> Option<Tensor<B, 1>> {
    match (x, y) {
        (Some(x), Some(y)) => Some(x * y),
        (x, y) => x.or(y),
    }
}

/// Divides an average by its bias correction, if there is one.
pub(crate) fn corrected<B: Backend>(mean: Tensor<B, 1>, correction: &Option<Tensor<B, 1>>) -> Tensor<B, 1> {
    match correction {
        Some(correction) => divided(mean, correction.clone()),
        None => mean,
    }
}

/// First moment of the Adam family: a moving average of gradients, with its bias correction.
pub(crate) struct FirstMoment<'a, B: Backend> {
    decay: &'a Scalar<B>,
    /// `1 - decay^t`
    pub correction: Tensor<B, 1>,
    /// `1 - decay^(t + 1)` for Nesterov momentum, otherwise `None`.
    next_correction: Option<Tensor<B, 1>>,
}

impl<'a, B: Backend> FirstMoment<'a, B> {
    /// Creates the first moment of step `t`.
    pub(crate) fn new(decay: &'a Scalar<B>, t: Tensor<B, 1>, nesterov: bool) -> Self {
        let next_correction = nesterov.then(|| bias_correction(decay, t.clone().add_scalar(1.0)));
        Self { decay, correction: bias_correction(decay, t), next_correction }
    }

    /// Adds a gradient to the average `mu`. Returns the mean gradient of the update, times `correction`, and the new
    /// average. Without Nesterov momentum they are equal. With it, the mean is `decay * mu * correction /
    /// next_correction + (1 - decay) * g`. Dozat (2016).
    pub(crate) fn add(&self, mu: Tensor<B, 1>, g: Tensor<B, 1>) -> (Tensor<B, 1>, Tensor<B, 1>) {
        let Some(next) = &self.next_correction else {
            let mu = decayed_mean(self.decay, mu, g);
            return (mu.clone(), mu);
        };
        let mu = decayed_mean(self.decay, mu, g.clone());
        let factor = self.decay.times(self.correction.clone() / next.clone());
        (self.decay.complement().times(g) + scaled(mu.clone(), factor), mu)
    }
}
