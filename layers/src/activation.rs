//! Activation functions, named as in published configurations.

use burn::tensor::{Tensor, TensorPrimitive, activation};
use grove_backend::{Backend, KeyRanges};
use std::str::FromStr;

/// Gaussian error linear unit (GELU), exact. Any shape.
pub fn gelu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(B::gelu_erf(x.into_primitive().tensor())))
}

/// GELU in its tanh approximation, as in GPT-2. Any shape.
pub fn gelu_tanh<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(B::gelu_tanh(x.into_primitive().tensor())))
}

/// Scaled exponential linear unit (Klambauer et al., "Self-Normalizing Neural Networks", 2017). Any shape.
pub fn selu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(B::selu(x.into_primitive().tensor())))
}

/// Softmax over the last axis; zeros if all of its values are minus infinity. Any shape.
pub fn softmax<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let shape = x.dims();
    let columns = shape[D - 1];
    let rows = shape.iter().product::<usize>() / columns.max(1);
    let scores = x.reshape([1, 1, rows, columns]).into_primitive().tensor();
    let weights = B::attention_weights(scores, 1.0, KeyRanges::default());
    Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(weights)).reshape(shape)
}

/// An activation function chosen by a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Activation {
    /// `gelu`: exact.
    Gelu,
    /// `gelu_new`, `gelu_pytorch_tanh`, `gelu_fast`: the tanh approximation.
    GeluTanh,
    /// `relu`.
    Relu,
    /// `selu`.
    Selu,
    /// `silu`, `swish`.
    Silu,
    /// `tanh`.
    Tanh,
}

impl Activation {
    /// Applies the function to each element.
    pub fn forward<B: Backend, const D: usize>(self, x: Tensor<B, D>) -> Tensor<B, D> {
        match self {
            Self::Gelu => gelu(x),
            Self::GeluTanh => gelu_tanh(x),
            Self::Relu => activation::relu(x),
            Self::Selu => selu(x),
            Self::Silu => activation::silu(x),
            Self::Tanh => activation::tanh(x),
        }
    }
}

impl FromStr for Activation {
    type Err = String;

    /// Parses a name of transformers' `config.json`.
    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "gelu" => Ok(Self::Gelu),
            "gelu_new" | "gelu_pytorch_tanh" | "gelu_fast" => Ok(Self::GeluTanh),
            "relu" => Ok(Self::Relu),
            "selu" => Ok(Self::Selu),
            "silu" | "swish" => Ok(Self::Silu),
            "tanh" => Ok(Self::Tanh),
            other => Err(format!(
                "unknown activation function '{other}'; known are gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, relu, \
                 selu, silu, swish, tanh"
            )),
        }
    }
}
