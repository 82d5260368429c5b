use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::{AnyArray, Tree};

use crate::{
    GradientTransformation, Scalar,
    leafwise::{flat, leafwise, unflat},
};

/// Returns the L2 norm, `[1]`.
fn norm<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    (x.clone() * x).sum().sqrt()
}

/// Returns the root mean square, `[1]`.
fn rms<B: Backend>(x: Tensor<B, 1>) -> Tensor<B, 1> {
    (x.clone() * x).mean().sqrt()
}

/// Multiplies each update by a factor `[1]` that is computed from the update and the parameter.
fn scale_leaves<B: Backend, P: Tree<B>>(
    updates: P,
    params: &P,
    factor: impl Fn(Tensor<B, 1>, Tensor<B, 1>) -> Tensor<B, 1>,
) -> P {
    let [updates, _] = leafwise([updates, params.clone()], |_, [g, p]: [AnyArray<B>; 2]| {
        if g.is_empty() {
            return [g, p];
        }
        let shape = g.shape().to_vec();
        let g = flat(g);
        let factor = factor(g.clone(), flat(p.clone()));
        [unflat(g * factor, &shape), p]
    });
    updates
}

/// Scales each update by its trust ratio, `trust_coefficient |parameter| / (|update| + eps)`, or by 1 if one of the two
/// norms is 0. The fields are the hyperparameters; [`Default`] has optax's values.
///
/// You, Gitman and Ginsburg, "Large Batch Training of Convolutional Networks" (2017); You et al., "Large Batch
/// Optimization for Deep Learning: Training BERT in 76 minutes" (2020).
#[derive(Clone, Debug)]
pub struct ScaleByTrustRatio<B: Backend> {
    /// Lower bound of both norms. Default 0.
    pub min_norm: Scalar<B>,
    /// Factor of the ratio. Default 1.
    pub trust_coefficient: Scalar<B>,
    /// Added to the norm of the update for numerical stability. Default 0.
    pub eps: Scalar<B>,
}

impl<B: Backend> Default for ScaleByTrustRatio<B> {
    fn default() -> Self {
        Self { min_norm: 0.0.into(), trust_coefficient: 1.0.into(), eps: 0.0.into() }
    }
}

/// Scales updates by the trust ratio of LARS and LAMB; see [`ScaleByTrustRatio`].
pub fn scale_by_trust_ratio<B: Backend>(options: ScaleByTrustRatio<B>) -> ScaleByTrustRatio<B> {
    options
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByTrustRatio<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), params: &P) -> (P, ()) {
        let ratio = |g: Tensor<B, 1>, p: Tensor<B, 1>| {
            let least = self.min_norm.array_like(&g);
            let (update, param) = (norm(g).max_pair(least.clone()), norm(p).max_pair(least));
            let zero = update.clone().equal_elem(0.0).bool_or(param.clone().equal_elem(0.0));
            (self.trust_coefficient.times(param) / self.eps.plus(update)).mask_fill(zero, 1.0)
        };
        (scale_leaves(updates, params, ratio), ())
    }
}

/// See [`scale_by_param_block_rms`].
#[derive(Clone, Debug)]
pub struct ScaleByParamBlockRms<B: Backend> {
    min_scale: Scalar<B>,
}

/// Multiplies each update by the root mean square of its parameter, or by `min_scale` if that is larger (optax's
/// default is 1e-3). Shazeer and Stern, "Adafactor: Adaptive Learning Rates with Sublinear Memory Cost" (2018).
pub fn scale_by_param_block_rms<B: Backend>(min_scale: impl Into<Scalar<B>>) -> ScaleByParamBlockRms<B> {
    ScaleByParamBlockRms { min_scale: min_scale.into() }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByParamBlockRms<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), params: &P) -> (P, ()) {
        (scale_leaves(updates, params, |_, p| rms(p.clone()).max_pair(self.min_scale.array_like(&p))), ())
    }
}

/// See [`clip_by_block_rms`].
#[derive(Clone, Debug)]
pub struct ClipByBlockRms<B: Backend> {
    threshold: Scalar<B>,
}

/// Clips the update of each leaf to a root mean square of at most `threshold`. Shazeer and Stern, "Adafactor" (2018).
pub fn clip_by_block_rms<B: Backend>(threshold: impl Into<Scalar<B>>) -> ClipByBlockRms<B> {
    ClipByBlockRms { threshold: threshold.into() }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ClipByBlockRms<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), params: &P) -> (P, ()) {
        let factor = |g: Tensor<B, 1>, _| {
            let (threshold, rms) = (self.threshold.array_like(&g), rms(g));
            let within = rms.clone().lower_equal(threshold.clone());
            (threshold / rms).mask_fill(within, 1.0)
        };
        (scale_leaves(updates, params, factor), ())
    }
}
