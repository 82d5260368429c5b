//! The operations that grove owns.

mod autodiff;
mod custom;
#[cfg(feature = "flex")]
mod flex;
mod gelu;
mod rows;

use burn::tensor::ops::{FloatTensor, IntTensor};

/// Burn's backend trait plus the operations that grove owns.
///
/// Each operation has a default written with Burn's own, so that a backend joins with an empty `impl`. A backend
/// overrides one with a fused kernel; [`Autodiff`](burn_autodiff::Autodiff) overrides each with an exact backward
/// pass.
pub trait Backend: burn::tensor::backend::Backend {
    /// Gaussian error linear unit, exact: `x * Phi(x)` with the normal distribution function `Phi`
    /// (Hendrycks and Gimpel, 2016). Any shape; the shape stays.
    fn gelu_erf(x: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::erf::<Self>(x)
    }

    /// Gradient of [`gelu_erf`](Self::gelu_erf) at `x`, times `grad`.
    fn gelu_erf_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::erf_backward::<Self>(x, grad)
    }

    /// GELU by its tanh approximation, `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`; `gelu_new` in
    /// transformers. Any shape; the shape stays.
    fn gelu_tanh(x: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::tanh::<Self>(x)
    }

    /// Gradient of [`gelu_tanh`](Self::gelu_tanh) at `x`, times `grad`.
    fn gelu_tanh_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::tanh_backward::<Self>(x, grad)
    }

    /// Softmax over the last axis of `scale * scores`, `[b, n_head, t, s]`. If `causal`, the queries are the last `t` of
    /// the `s` positions, and each sees itself and those before it.
    fn attention_weights(scores: FloatTensor<Self>, scale: f64, causal: bool) -> FloatTensor<Self> {
        rows::attention_weights::<Self>(scores, scale, causal)
    }

    /// Gradient of [`attention_weights`](Self::attention_weights) with respect to the scores, given its result and that
    /// result's gradient.
    fn attention_weights_backward(
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        rows::attention_weights_backward::<Self>(weights, grad, scale)
    }

    /// Each row of `[rows, size]` less its mean, over the root of its variance plus `eps`; and the inverse of that root,
    /// `[rows, 1]`, through which no gradient flows. A layer norm without scale and shift.
    fn normalize(x: FloatTensor<Self>, eps: f64) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rows::normalize::<Self>(x, eps)
    }

    /// Gradient of [`normalize`](Self::normalize), given its results.
    fn normalize_backward(
        y: FloatTensor<Self>,
        inverse_std: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rows::normalize_backward::<Self>(y, inverse_std, grad)
    }

    /// Negative log-likelihood of labels, `[rows]`, each one of the classes, under the softmax of logits,
    /// `[rows, classes]`: `[rows]`; and the logarithms of the sums of exponentials, `[rows]`, through which no gradient
    /// flows.
    fn nll(logits: FloatTensor<Self>, labels: IntTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rows::nll::<Self>(logits, labels)
    }

    /// Gradient of [`nll`](Self::nll) with respect to the logits, given its second result.
    fn nll_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        normaliser: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rows::nll_backward::<Self>(logits, labels, normaliser, grad)
    }
}

#[cfg(feature = "candle")]
impl Backend for crate::Candle {}

#[cfg(feature = "cuda")]
impl Backend for burn_cuda::Cuda {}

#[cfg(feature = "wgpu")]
impl Backend for burn_wgpu::Wgpu {}

#[cfg(feature = "rocm")]
impl Backend for burn_rocm::Rocm {}
