//! Functions whose derivatives replace Burn's.

use burn::tensor::{
    DType, FloatDType, Shape, TensorMetadata,
    ops::{BoolTensor, FloatTensor},
};
use burn_backend::get_device_settings;

use super::pooling::{AvgPool, MaxPool};
use crate::{
    Backend,
    ops::{Function, FunctionVjp, Outcome, Values, Wanted, part_of_axis},
};

/// A function with its own derivative.
#[derive(Clone, Debug)]
pub(super) enum Rule {
    /// Cast to a dtype by the backend's own [cast](Backend::cast_float).
    Cast(DType),
    /// Product along an axis, which keeps size 1. Burn 0.21 computes the exponential of a sum of logarithms.
    Product { dim: usize },
    /// Power of a base and an exponent. In Burn 0.21 the derivatives at base 0 are not finite.
    Power,
    /// Square root. In Burn 0.21 the derivative is that of a power, which has the opposite sign at -0.
    Sqrt,
    /// Maximum or minimum along an axis, which keeps size 1. Equal elements share the gradient, as in JAX; in Burn 0.21
    /// the first gets all of it.
    Extreme { dim: usize, max: bool },
    /// Division by a scalar. Burn 0.21 rounds the scalar to f32 in the gradient.
    Quotient(f64),
    /// Average pooling with windows that end beyond the image.
    AvgPool(AvgPool),
    /// Max pooling. The indices of the maxima are the second output if requested.
    MaxPool { pool: MaxPool, with_indices: bool },
}

impl Rule {
    /// Returns the function's first output.
    pub fn of<B: Backend>(self, inputs: impl IntoIterator<Item = FloatTensor<B>>) -> FloatTensor<B> {
        B::run_function(&self, Values::floats(inputs)).take_float(0)
    }
}

impl Function for Rule {
    type Vjp = Self;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        let x = inputs.take_float(0);
        let y = match self {
            Self::Cast(dtype) => B::cast_float(x, *dtype),
            Self::Product { dim } => B::float_prod_dim(x, *dim),
            Self::Power => B::float_powf(x, inputs.take_float(1)),
            Self::Sqrt => B::float_sqrt(x),
            Self::Extreme { dim, max: true } => B::float_max_dim(x, *dim),
            Self::Extreme { dim, max: false } => B::float_min_dim(x, *dim),
            Self::Quotient(number) => B::float_div_scalar(x, (*number).into()),
            Self::AvgPool(pool) => pool.averages::<B>(x),
            Self::MaxPool { pool, with_indices } => return pool.run::<B>(x, *with_indices),
        };
        Values::floats([y])
    }

    fn forward<B: Backend>(&self, mut inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        let outcome = match self {
            Self::Cast(_) | Self::Quotient(_) | Self::AvgPool(_) => self.run(inputs).into(),
            Self::Product { .. } | Self::Power => Outcome { saved: inputs.clone(), outputs: self.run(inputs) },
            Self::Sqrt => {
                let y = self.run(inputs);
                Outcome { saved: y.clone(), outputs: y }
            }
            Self::Extreme { .. } => {
                let x = inputs.clone();
                let y = self.run(inputs);
                Outcome { saved: x.with_optional(y.get(0).cloned()), outputs: y }
            }
            Self::MaxPool { pool, with_indices } => pool.forward::<B>(inputs.take_float(0), *with_indices),
        };
        (outcome, self.clone())
    }
}

impl FunctionVjp for Rule {
    fn vjp<B: Backend>(&self, mut saved: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let grad = grads.take_float(0);
        let of_x = match self {
            // The gradient gets the dtype of the input when it is added to the input's gradients.
            Self::Cast(_) => grad,
            Self::Product { dim } => product_vjp::<B>(saved.take_float(0), grad, *dim),
            Self::Power => return power_vjp(saved, grad, wanted),
            Self::Sqrt => B::float_div(grad, B::float_mul_scalar(saved.take_float(0), 2.0.into())),
            Self::Extreme { dim, .. } => extreme_vjp::<B>(saved.take_float(0), saved.take_float(1), grad, *dim),
            Self::Quotient(number) => B::float_div_scalar(grad, (*number).into()),
            Self::AvgPool(pool) => pool.vjp::<B>(&wanted.spec(0).shape, grad),
            Self::MaxPool { pool, .. } => pool.vjp::<B>(saved.take_float(0), saved.take_int(1), grad),
        };
        Values::floats([of_x])
    }
}

/// Multiplies the products of all elements before and after each element.
fn product_vjp<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
    let size = x.shape()[dim];
    if size == 0 {
        return x;
    }
    let before = |x: &FloatTensor<B>| {
        let mut one = x.shape();
        one[dim] = 1;
        let one = B::float_ones(one, &B::float_device(x), x.dtype().into());
        B::float_cumprod(B::float_cat(vec![one, slice::<B>(x, dim, 0, size - 1)], dim), dim)
    };
    let flip = |x| B::float_flip(x, &[dim]);
    let others = B::float_mul(before(&x), flip(before(&flip(x.clone()))));
    B::float_mul(B::float_expand(grad, x.shape()), others)
}

fn power_vjp<B: Backend>(mut saved: Values<B>, grad: FloatTensor<B>, wanted: &Wanted) -> Values<B> {
    let (base, exponent) = (saved.take_float(0), saved.take_float(1));
    let [of_base, of_exponent] = wanted.needs();
    let of_base = of_base.then(|| {
        // At base 0 and exponent 0 the derivative is 0 (that of the constant 1), not 0 times infinity.
        let magnitudes = B::float_add(B::float_abs(base.clone()), B::float_abs(exponent.clone()));
        let constant = is_zero::<B>(&magnitudes);
        let lower = B::float_expand(B::float_sub_scalar(exponent.clone(), 1.0.into()), magnitudes.shape());
        let lower = B::float_mask_fill(lower, constant, 0.0.into());
        let slope = B::float_mul(exponent.clone(), B::float_powf(base.clone(), lower));
        summed::<B>(B::float_mul(grad.clone(), slope), &base.shape())
    });
    let of_exponent = of_exponent.then(|| {
        // A power of 0 does not depend on its exponent.
        let zero = is_zero::<B>(&base);
        let log = B::float_log(B::float_mask_fill(base.clone(), zero, 1.0.into()));
        let slope = B::float_mul(B::float_powf(base.clone(), exponent.clone()), log);
        summed::<B>(B::float_mul(grad.clone(), slope), &exponent.shape())
    });
    Values::optional_floats([of_base, of_exponent])
}

/// Shares the gradient among the elements that equal the extreme.
fn extreme_vjp<B: Backend>(x: FloatTensor<B>, y: FloatTensor<B>, grad: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
    let (shape, dtype) = (x.shape(), FloatDType::from(x.dtype()));
    let settings = get_device_settings::<B>(&B::float_device(&x));
    let places = B::float_equal(x, B::float_expand(y, shape.clone()), settings.bool_dtype);
    let count = B::float_sum_dim(B::bool_into_float(places.clone(), dtype), dim);
    // A NaN equals nothing, so its count is 0.
    let shares = B::float_expand(B::float_div(grad, count), shape);
    B::float_mask_fill(shares, B::bool_not(places), 0.0.into())
}

/// Slice of an axis.
pub(super) fn slice<B: Backend>(x: &FloatTensor<B>, dim: usize, from: usize, to: usize) -> FloatTensor<B> {
    B::float_slice(x.clone(), &part_of_axis(x.shape().num_dims(), dim, from..to))
}

/// Sums over the axes along which a value of this shape was broadcast.
fn summed<B: Backend>(x: FloatTensor<B>, shape: &Shape) -> FloatTensor<B> {
    let sizes = x.shape();
    (0..sizes.num_dims()).filter(|&i| sizes[i] != shape[i]).fold(x, |x, i| B::float_sum_dim(x, i))
}

/// True where an element is 0.
fn is_zero<B: Backend>(x: &FloatTensor<B>) -> BoolTensor<B> {
    let settings = get_device_settings::<B>(&B::float_device(x));
    B::float_equal_elem(x.clone(), 0.0.into(), settings.bool_dtype)
}
