use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::Tree;
use serde::Deserialize;

use super::{
    ScaleByAdam, ScaleByAdamState,
    moment::{FirstMoment, Ratio, bias_correction, decayed_square, half_exponent},
};
use crate::{
    GradientTransformation, Scalar,
    leafwise::elementwise,
    options::{fraction, setters},
    scalar::{divided, scaled},
    transformation::{has_no_leaves, next_step},
};

/// Rescales updates according to the Rectified Adam algorithm: Adam, times a factor that is small while the variance of
/// few gradients is uncertain. While the factor is undefined, the update is the bias-corrected first moment alone. The
/// fields are the hyperparameters; [`Default`] has optax's values.
///
/// Let `ro` be the effective length of the moving average of squares; its limit is `2 / (1 - b2) - 1`. If `ro` is at
/// least the threshold, the factor is `sqrt((ro - 4)(ro - 2) ro_limit / ((ro_limit - 4)(ro_limit - 2) ro))`.
///
/// Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond" (2020).
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields, bound = "")]
pub struct ScaleByRadam<B: Backend> {
    /// Decay rate of the first moment. Default 0.9.
    #[serde(deserialize_with = "fraction")]
    pub b1: Scalar<B>,
    /// Decay rate of the second moment. Default 0.999.
    #[serde(deserialize_with = "fraction")]
    pub b2: Scalar<B>,
    /// Added to the denominator outside the square root, for numerical stability. Default 1e-8.
    pub eps: Scalar<B>,
    /// Added to the denominator inside the square root. Default 0.
    pub eps_root: Scalar<B>,
    /// Minimum effective length at which the second moment is used. Default 5.
    pub threshold: Scalar<B>,
    /// If true, uses Nesterov momentum. Default false.
    pub nesterov: bool,
}

impl<B: Backend> Default for ScaleByRadam<B> {
    fn default() -> Self {
        let ScaleByAdam { b1, b2, eps, eps_root, nesterov } = ScaleByAdam::default();
        Self { b1, b2, eps, eps_root, threshold: 5.0.into(), nesterov }
    }
}

setters! {
    ScaleByRadam:
    into b1: Scalar<B>,
    into b2: Scalar<B>,
    into eps: Scalar<B>,
    into eps_root: Scalar<B>,
    into threshold: Scalar<B>,
    plain nesterov: bool,
}

/// Rescales updates according to the Rectified Adam algorithm; see [`ScaleByRadam`].
pub fn scale_by_radam<B: Backend>(options: ScaleByRadam<B>) -> ScaleByRadam<B> {
    options
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByRadam<B> {
    type State = ScaleByAdamState<B, P>;

    fn init(&self, params: &P) -> Self::State {
        ScaleByAdamState::zero(params)
    }

    fn update(&self, updates: P, state: Self::State, _params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.count) {
            return (updates, state);
        }
        let (count, t) = next_step(state.count, &updates);
        let moment = FirstMoment::new(&self.b1, t.clone(), self.nesterov);
        let (first, second) = (moment.correction.clone(), bias_correction(&self.b2, t.clone()));
        let (limit, length) = lengths(&self.b2, t);
        let known = length.clone().greater_equal(self.threshold.array_like(&length));
        let above = |x: &Tensor<B, 1>, least: f64| x.clone().sub_scalar(least);
        let numerator = above(&length, 4.0) * above(&length, 2.0) * limit.clone();
        let factor = (numerator / (above(&limit, 4.0) * above(&limit, 2.0) * length)).sqrt();
        let ratio =
            Ratio { first: Some(first.clone()), second: Some(second), eps: &self.eps, eps_root: &self.eps_root };
        let [updates, mu, nu] = elementwise([updates, state.mu, state.nu], |[g, mu, nu]| {
            let nu = decayed_square(&self.b2, nu, g.clone());
            let (mean, mu) = moment.add(mu, g);
            let rectified = scaled(ratio.of(mean.clone(), nu.clone()), factor.clone());
            let plain = divided(mean, first.clone());
            let known = known.clone().expand(plain.shape());
            [plain.mask_where(known, rectified), mu, nu]
        });
        (updates, ScaleByAdamState { count, mu, nu })
    }
}

/// Returns the limit of the effective length of the moving average of squares, `2 / (1 - b2) - 1`, and the length at
/// step `t`, `limit - 2 t b2^t / (1 - b2^t)`.
///
/// The length, about `t`, is a difference of values near `limit` (1999), of which f32 would keep less than two digits
/// after the point, whereas the method compares it with 5. With `b2^t = exp(-2y)` the length is `(limit - t/y) + t -
/// (t/y)(y coth(y) - 1)`. The first term is small and known in advance; the last is a series in `y`.
fn lengths<B: Backend>(b2: &Scalar<B>, steps: Tensor<B, 1>) -> (Tensor<B, 1>, Tensor<B, 1>) {
    let y = half_exponent(b2, steps.clone());
    let (limit, offset, inverse) = match b2 {
        Scalar::Number(b2) => {
            let (limit, inverse) = (2.0 / (1.0 - b2) - 1.0, -2.0 / b2.ln());
            let array = |number: f64| Scalar::Number(number).array_like(&steps);
            (array(limit), array(limit - inverse), array(inverse))
        }
        Scalar::Array(_) => {
            let b2 = b2.array_like(&steps);
            let rest = b2.clone().neg().add_scalar(1.0);
            let limit = rest.clone().recip().mul_scalar(2.0).sub_scalar(1.0);
            // -ln(1 - d) = d + d^2/2 + …, so 2/d - 1 + 2/ln(1 - d) = -d/6 - d^2/12 - 19 d^3/360 - …
            let offset = rest.clone() * (rest.clone() * (rest * (-19.0 / 360.0) - 1.0 / 12.0) - 1.0 / 6.0);
            (limit, offset, b2.log().recip().mul_scalar(-2.0))
        }
    };
    let square = y.clone() * y.clone();
    let series = [2.0 / 93555.0, -1.0 / 4725.0, 2.0 / 945.0, -1.0 / 45.0, 1.0 / 3.0]
        .into_iter()
        .fold(square.zeros_like(), |sum, coefficient| (sum + coefficient) * square.clone());
    let early = offset + steps.clone() - inverse * series;
    let late = limit.clone() - steps * y.clone().mul_scalar(2.0).exp().sub_scalar(1.0).recip().mul_scalar(2.0);
    (limit, late.mask_where(y.lower_elem(0.5), early))
}
