//! The differentiating backend: each operation that grove owns with its exact backward pass.

use burn::tensor::{
    backend::AutodiffBackend,
    ops::{FloatTensor, IntTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{
    Backend,
    custom::recorded,
    gelu::{Erf, Tanh, differentiable},
};

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    fn gelu_erf(x: FloatTensor<Self>) -> FloatTensor<Self> {
        differentiable::<B, C, Erf>(x)
    }

    fn gelu_tanh(x: FloatTensor<Self>) -> FloatTensor<Self> {
        differentiable::<B, C, Tanh>(x)
    }

    fn attention_weights(scores: FloatTensor<Self>, scale: f64, causal: bool) -> FloatTensor<Self> {
        let backward = |(weights, scale), grad| B::attention_weights_backward(weights, grad, scale);
        recorded::<B, C, _>(scores, backward, |scores| {
            let weights = B::attention_weights(scores, scale, causal);
            (weights.clone(), (weights, scale))
        })
    }

    fn normalize(x: FloatTensor<Self>, eps: f64) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let mut second = None;
        let backward = |(y, inverse_std), grad| B::normalize_backward(y, inverse_std, grad);
        let y = recorded::<B, C, _>(x, backward, |x| {
            let (y, inverse_std) = B::normalize(x, eps);
            second = Some(inverse_std.clone());
            (y.clone(), (y, inverse_std))
        });
        (y, untracked::<B, C>(second))
    }

    fn nll(logits: FloatTensor<Self>, labels: IntTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let mut second = None;
        let backward = |(logits, labels, normaliser), grad| B::nll_backward(logits, labels, normaliser, grad);
        let loss = recorded::<B, C, (FloatTensor<B>, IntTensor<B>, FloatTensor<B>)>(logits, backward, |logits| {
            let (loss, normaliser) = B::nll(logits.clone(), labels.clone());
            second = Some(normaliser.clone());
            (loss, (logits, labels, normaliser))
        });
        (loss, untracked::<B, C>(second))
    }
}

/// The second result of an operation, through which no gradient flows.
fn untracked<B: Backend, C: CheckpointStrategy>(second: Option<FloatTensor<B>>) -> FloatTensor<Autodiff<B, C>> {
    <Autodiff<B, C> as AutodiffBackend>::from_inner(second.expect("the operation was computed"))
}
