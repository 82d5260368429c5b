//! Activation functions. [`Activation`] has them by their names in published configurations.

pub use burn::tensor::activation::{
    hard_sigmoid, leaky_relu, log_sigmoid, log_softmax, mish, relu, sigmoid, silu, softmin, tanh,
};
use burn::tensor::{Tensor, activation};
use grove_backend::{Backend, GeluApproximation, KeyRanges, ops};
use std::{
    f64::consts::{FRAC_1_SQRT_2, SQRT_2},
    str::FromStr,
};

/// Applies the exact Gaussian error linear unit (GELU). Any shape.
#[track_caller]
pub fn gelu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    ops::gelu(x, GeluApproximation::None)
}

/// Applies the tanh approximation of GELU, as in GPT-2. Any shape.
#[track_caller]
pub fn gelu_tanh<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    ops::gelu(x, GeluApproximation::Tanh)
}

/// Applies the scaled exponential linear unit (Klambauer et al., "Self-Normalizing Neural Networks", 2017). Any shape.
#[track_caller]
pub fn selu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    ops::selu(x)
}

/// Computes the softmax over the last axis. A row of minus infinities gives zeros. Any shape.
#[track_caller]
pub fn softmax<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let shape = x.dims();
    let columns = shape[D - 1];
    let rows = shape.iter().product::<usize>() / columns.max(1);
    ops::masked_softmax(x.reshape([1, 1, rows, columns]), 1.0, &KeyRanges::default()).reshape(shape)
}

/// Computes `ln(1 + exp(x))` without overflow for large x and accurately for very negative x. Any shape.
#[track_caller]
pub fn softplus<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let e = x.clone().abs().neg().exp();
    // candle computes log1p as log(1 + e), which is 0 for small e.
    let small = e.clone().lower_elem(1e-4);
    let log1p = e.clone().log1p().mask_where(small, e.clone() * (e * -0.5 + 1.0));
    activation::relu(x) + log1p
}

/// An activation function without parameters, named as in transformers' configurations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `gelu`, `gelu_python`: exact GELU.
    Gelu,
    /// `gelu_10`: exact GELU, clamped to ±10.
    Gelu10,
    /// `gelu_new`, `gelu_pytorch_tanh`, `gelu_fast` and others: the tanh approximation of GELU.
    GeluTanh,
    /// `hardswish`: `x min(max(x + 3, 0), 6) / 6`.
    HardSwish,
    /// `laplace`: cumulative distribution function of a normal distribution with mean `sqrt(1/2)` (Ma et al., "Mega",
    /// 2023).
    Laplace,
    /// `leaky_relu`: slope 0.01 for negative values.
    LeakyRelu,
    /// `linear`: the identity.
    Linear,
    /// `mish`: `x tanh(softplus(x))` (Misra, 2019).
    Mish,
    /// `quick_gelu`: `x sigmoid(1.702 x)`.
    QuickGelu,
    /// `relu`.
    Relu,
    /// `relu2`: the square of ReLU (So et al., "Primer", 2021).
    Relu2,
    /// `relu6`: ReLU clamped to 6.
    Relu6,
    /// `selu`.
    Selu,
    /// `sigmoid`.
    Sigmoid,
    /// `silu`, `swish`.
    Silu,
    /// `sqrtsoftplus`: square root of softplus.
    SqrtSoftplus,
    /// `tanh`.
    Tanh,
}

/// Names in transformers' `config.json` and their functions.
const NAMES: [(&str, Activation); 23] = [
    ("gelu", Activation::Gelu),
    ("gelu_python", Activation::Gelu),
    ("gelu_10", Activation::Gelu10),
    ("gelu_new", Activation::GeluTanh),
    ("gelu_pytorch_tanh", Activation::GeluTanh),
    ("gelu_python_tanh", Activation::GeluTanh),
    ("gelu_fast", Activation::GeluTanh),
    ("gelu_accurate", Activation::GeluTanh),
    ("hardswish", Activation::HardSwish),
    ("laplace", Activation::Laplace),
    ("leaky_relu", Activation::LeakyRelu),
    ("linear", Activation::Linear),
    ("mish", Activation::Mish),
    ("quick_gelu", Activation::QuickGelu),
    ("relu", Activation::Relu),
    ("relu2", Activation::Relu2),
    ("relu6", Activation::Relu6),
    ("selu", Activation::Selu),
    ("sigmoid", Activation::Sigmoid),
    ("silu", Activation::Silu),
    ("swish", Activation::Silu),
    ("sqrtsoftplus", Activation::SqrtSoftplus),
    ("tanh", Activation::Tanh),
];

impl Activation {
    /// Applies the function to each element.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Gelu => gelu(x),
            Self::Gelu10 => gelu(x).clamp(-10.0, 10.0),
            Self::GeluTanh => gelu_tanh(x),
            Self::HardSwish => (x.clone() + 3.0).clamp(0.0, 6.0) / 6.0 * x,
            Self::Laplace => ((x - FRAC_1_SQRT_2) / (0.282095 * SQRT_2)).erf() * 0.5 + 0.5,
            Self::LeakyRelu => activation::relu(x.clone()) - activation::relu(x.neg()) * 0.01,
            Self::Linear => x,
            Self::Mish => x.clone() * activation::tanh(softplus(x)),
            Self::QuickGelu => x.clone() * activation::sigmoid(x * 1.702),
            Self::Relu => activation::relu(x),
            Self::Relu2 => {
                let x = activation::relu(x);
                x.clone() * x
            }
            Self::Relu6 => x.clamp(0.0, 6.0),
            Self::Selu => selu(x),
            Self::Sigmoid => activation::sigmoid(x),
            Self::Silu => activation::silu(x),
            Self::SqrtSoftplus => softplus(x).sqrt(),
            Self::Tanh => activation::tanh(x),
        }
    }
}

impl FromStr for Activation {
    type Err = String;

    /// Parses a name from transformers' `config.json`.
    fn from_str(name: &str) -> Result<Self, String> {
        let found = NAMES.iter().find(|(known, _)| *known == name).map(|(_, activation)| *activation);
        found.ok_or_else(|| {
            let known: Vec<&str> = NAMES.iter().map(|(known, _)| *known).collect();
            format!("unknown activation function '{name}'; known are {}", known.join(", "))
        })
    }
}
