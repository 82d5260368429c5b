//! The operations that grove owns.

mod gelu;

use burn::tensor::ops::FloatTensor;

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
}

#[cfg(feature = "flex")]
impl Backend for burn_flex::Flex {}

#[cfg(feature = "candle")]
impl Backend for crate::Candle {}

#[cfg(feature = "cuda")]
impl Backend for burn_cuda::Cuda {}

#[cfg(feature = "wgpu")]
impl Backend for burn_wgpu::Wgpu {}

#[cfg(feature = "rocm")]
impl Backend for burn_rocm::Rocm {}
