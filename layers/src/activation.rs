//! Activation functions. [`Activation`] has them by their names in published configurations.

pub use burn::tensor::activation::{hard_sigmoid, leaky_relu, log_softmax, relu, sigmoid, silu, softmin, tanh};
use burn::tensor::{Tensor, activation};
use grove_backend::{Backend, GeluApproximation, KeyRanges, ops};
use std::{
    f64::consts::{FRAC_1_SQRT_2, SQRT_2},
    str::FromStr,
};

/// Applies the exact Gaussian error linear unit (GELU). Any shape.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::activation::gelu;
/// # type B = burn_flex::Flex;
/// let y = gelu(Tensor::<B, 1>::from_floats([1.0], &Default::default()));
/// assert!((y.into_scalar() - 0.841_344_7).abs() < 1e-5); // the normal distribution function of 1
/// ```
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
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::activation::softmax;
/// # type B = burn_flex::Flex;
/// let y = softmax(Tensor::<B, 2>::from_floats([[0.0, 0.0], [0.0, f32::NEG_INFINITY]], &Default::default()));
/// assert_eq!(y.to_data().to_vec::<f32>().unwrap(), [0.5, 0.5, 1.0, 0.0]);
/// ```
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
    // The derivatives of ReLU and of the absolute value at 0 are 0; those of the two parts add up to 1.
    let is_positive = x.clone().greater_elem(0.0);
    let positive = x.clone().mask_fill(is_positive.clone().bool_not(), 0.0);
    let e = (x.mask_fill(is_positive, 0.0) - positive.clone()).exp();
    // candle computes log1p as log(1 + e), which is 0 for small e.
    let small = e.clone().lower_elem(1e-4);
    let log1p = e.clone().log1p().mask_where(small, e.clone() * (e * -0.5 + 1.0));
    positive + log1p
}

/// Computes `ln(sigmoid(x))` without overflow. Any shape.
#[track_caller]
pub fn log_sigmoid<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    softplus(x.neg()).neg()
}

/// Applies `x tanh(softplus(x))` (Misra, "Mish", 2019). Any shape.
#[track_caller]
pub fn mish<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    x.clone() * activation::tanh(softplus(x))
}

/// Computes `sqrt(softplus(x))`. Far below 0 this is `exp(x / 2)`, which is not 0 where softplus is, so that the derivative is
/// finite. Any shape.
#[track_caller]
fn sqrt_softplus<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    /// Below, the two differ by less than one part in ten million.
    const LIMIT: f32 = -16.0;
    let is_far = x.clone().lower_elem(LIMIT);
    let near = softplus(x.clone().mask_fill(is_far.clone(), LIMIT)).sqrt();
    let far = (x.mask_fill(is_far.clone().bool_not(), LIMIT) * 0.5).exp();
    near.mask_where(is_far, far)
}

/// An activation function without parameters, named as in transformers' configurations.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::Activation;
/// # type B = burn_flex::Flex;
/// let activation: Activation = "relu6".parse().unwrap();
/// let y = activation.forward(Tensor::<B, 1>::from_floats([-1.0, 2.0, 8.0], &Default::default()));
/// assert_eq!(y.to_data().to_vec::<f32>().unwrap(), [0.0, 2.0, 6.0]);
/// ```
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
            Self::Mish => mish(x),
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
            Self::SqrtSoftplus => sqrt_softplus(x),
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

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;
    use grove_backend::Autodiff;

    type Function = fn(Tensor<Autodiff<Flex>, 1>) -> Tensor<Autodiff<Flex>, 1>;

    /// Expected: `jax.nn`, f64.
    #[test]
    fn functions_at_the_ends_of_their_ranges() {
        let x = [f32::NEG_INFINITY, -100.0, -1.0, 0.0, 1.0, 100.0, f32::INFINITY];
        let (zero, one) = (std::f32::consts::LN_2, 1.313_261_7);
        let sigmoid = [0.0, 0.0, 0.268_941_43, 0.5, 0.731_058_6, 1.0, 1.0];
        let softplus_of_x = [0.0, 0.0, 0.313_261_7, zero, one, 100.0, f32::INFINITY];
        let mirrored = |values: [f32; 7], sign: f32| std::array::from_fn(|i| sign * values[6 - i]);
        let cases: [(&str, Function, [f32; 7], [f32; 7]); 2] = [
            ("softplus", softplus, softplus_of_x, sigmoid),
            ("log_sigmoid", log_sigmoid, mirrored(softplus_of_x, -1.0), mirrored(sigmoid, 1.0)),
        ];
        for (name, f, values, slopes) in cases {
            check(name, f, &x, &values, &slopes);
        }
        check(
            "mish",
            mish,
            &[-100.0, -1.0, 0.0, 1.0, 100.0],
            &[0.0, -0.303_401_46, 0.0, 0.865_098_4, 100.0],
            &[0.0, 0.059_216_756, 0.6, 1.049_036_2, 1.0],
        );
    }

    fn check(name: &str, f: Function, x: &[f32], values: &[f32], slopes: &[f32]) {
        let x = Tensor::<Autodiff<Flex>, 1>::from_data(x, &Default::default()).require_grad();
        let y = f(x.clone());
        let close = |found: Vec<f32>, expected: &[f32], what: &str| {
            for (found, expected) in found.iter().zip(expected) {
                let near = found == expected || (found - expected).abs() < 1e-6 * expected.abs().max(1.0);
                assert!(near, "{what} of {name}: {found}, not {expected}");
            }
        };
        close(y.clone().into_data().to_vec().expect("f32"), values, "the value");
        let grads = y.sum().backward();
        close(x.grad(&grads).expect("a gradient").into_data().to_vec().expect("f32"), slopes, "the slope");
    }
}
