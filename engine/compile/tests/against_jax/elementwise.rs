//! Element-wise functions of one and two arrays.

use burn::tensor::{DType, FloatDType, Tensor, activation};
use grove_backend::{Backend, Dropout, GeluApproximation, ops};
use grove_layers::Activation;

/// Element-wise functions of one array.
pub fn unary<B: Backend>(name: &str, x: Tensor<B, 1>) -> Option<Tensor<B, 1>> {
    let dtype = FloatDType::from(x.dtype());
    Some(match name {
        "abs" => x.abs(),
        "neg" => x.neg(),
        "sign" => x.sign(),
        "exp" => x.exp(),
        "log" => x.log(),
        "log1p" => x.log1p(),
        "sqrt" => x.sqrt(),
        "square" => x.square(),
        "recip" => x.recip(),
        "erf" => x.erf(),
        "sin" => x.sin(),
        "cos" => x.cos(),
        "tan" => x.tan(),
        "sinh" => x.sinh(),
        "cosh" => x.cosh(),
        "tanh" => x.tanh(),
        "asin" => x.asin(),
        "acos" => x.acos(),
        "atan" => x.atan(),
        "asinh" => x.asinh(),
        "acosh" => x.acosh(),
        "atanh" => x.atanh(),
        "round" => x.round(),
        "floor" => x.floor(),
        "ceil" => x.ceil(),
        "trunc" => x.trunc(),
        "deg2rad" => x.deg2rad(),
        "rad2deg" => x.rad2deg(),
        "add_scalar" => x.add_scalar(0.3),
        "sub_scalar" => x.sub_scalar(0.3),
        "mul_scalar" => x.mul_scalar(0.3),
        "div_scalar" => x.div_scalar(3.0),
        "scalar - x" => 0.3_f64 - x,
        "scalar / x" => 3.0_f64 / x,
        "remainder_scalar" => x.remainder_scalar(1.5),
        "fmod_scalar" => x.fmod_scalar(1.5),
        "powi_scalar 0" => x.powi_scalar(0),
        "powi_scalar 1" => x.powi_scalar(1),
        "powi_scalar 2" => x.powi_scalar(2),
        "powi_scalar 3" => x.powi_scalar(3),
        "powi_scalar -1" => x.powi_scalar(-1),
        "powi_scalar -2" => x.powi_scalar(-2),
        "powf_scalar 0" => x.powf_scalar(0.0),
        "powf_scalar 0.5" => x.powf_scalar(0.5),
        "powf_scalar -0.5" => x.powf_scalar(-0.5),
        "powf_scalar 1" => x.powf_scalar(1.0),
        "powf_scalar 2" => x.powf_scalar(2.0),
        "powf_scalar 2.5" => x.powf_scalar(2.5),
        "powf_scalar 3" => x.powf_scalar(3.0),
        "powf_scalar -1" => x.powf_scalar(-1.0),
        "clamp" => x.clamp(-1.0, 1.3),
        "clamp_min" => x.clamp_min(0.5),
        "clamp_max" => x.clamp_max(0.5),
        "mask_fill" => x.clone().mask_fill(x.greater_elem(0.3), -0.25),
        "cast" => x.cast(DType::F64).cast(dtype),
        "activation::tanh" => activation::tanh(x),
        "relu" => activation::relu(x),
        "leaky_relu" => activation::leaky_relu(x, 0.1),
        "gelu" => activation::gelu(x),
        "gelu_approximate" => activation::gelu_approximate(x),
        "softplus" => activation::softplus(x, 1.0),
        "softplus 2" => activation::softplus(x, 2.0),
        "sigmoid" => activation::sigmoid(x),
        "log_sigmoid" => activation::log_sigmoid(x),
        "hard_sigmoid" => activation::hard_sigmoid(x, 0.2, 0.5),
        "silu" => activation::silu(x),
        "hard_swish" => activation::hard_swish(x),
        "mish" => activation::mish(x),
        "elu" => activation::elu(x, 1.5),
        "celu" => activation::celu(x, 1.5),
        "selu" => activation::selu(x),
        "thresholded_relu" => activation::thresholded_relu(x, 0.5),
        "softsign" => activation::softsign(x),
        "hard_shrink" => activation::hard_shrink(x, 0.5),
        "soft_shrink" => activation::soft_shrink(x, 0.5),
        "shrink" => activation::shrink(x, 0.5, 0.25),
        "ops::gelu none" => ops::gelu(x, GeluApproximation::None),
        "ops::gelu tanh" => ops::gelu(x, GeluApproximation::Tanh),
        "ops::selu" => ops::selu(x),
        "ops::dropout" => match Dropout::new([3, 5], 0.4) {
            Some(dropout) => ops::dropout(x, dropout),
            None => x,
        },
        "Activation::Relu" => Activation::Relu.forward(x),
        "Activation::Silu" => Activation::Silu.forward(x),
        // Chains that are fused.
        "exp * 0.5" => x.exp() * 0.5,
        "tanh * 2 + 1" => x.tanh() * 2.0 + 1.0,
        "sigmoid - 0.5" => activation::sigmoid(x) - 0.5,
        "log of square + 1" => (x.square() + 1.0).log(),
        "relu * 2" => activation::relu(x) * 2.0,
        "clamp * sign" => x.clone().clamp(-2.0, 2.0) * x.sign(),
        "sin * exp of -abs" => x.clone().sin() * x.abs().neg().exp(),
        _ => return None,
    })
}

/// Element-wise functions of two arrays.
pub fn binary<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let [a, b] = x else { return None };
    let (a, b) = (a.clone(), b.clone());
    Some(match name {
        "add" => a.add(b),
        "sub" => a.sub(b),
        "mul" => a.mul(b),
        "div" => a.div(b),
        "remainder" => a.remainder(b),
        "fmod" => a.fmod(b),
        "powf" => a.powf(b),
        "powi" => a.powi(b),
        "atan2" => a.atan2(b),
        "max_pair" => a.max_pair(b),
        "min_pair" => a.min_pair(b),
        "mask_where" => a.clone().mask_where(a.lower(b.clone()), b * 2.0),
        "ops::swiglu" => {
            let n = a.dims()[0];
            ops::swiglu(a.reshape([1, 1, n]), b.reshape([1, 1, n])).reshape([n])
        }
        _ => return None,
    })
}
