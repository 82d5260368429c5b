//! Methods that replace Burn's by compositions of others.

use burn::tensor::{
    DType, Scalar, Shape, TensorMetadata,
    backend::AutodiffBackend,
    ops::{ConvOptions, FloatTensor, FloatTensorOps},
};
use burn_autodiff::{Autodiff as Burn, checkpoint::strategy::CheckpointStrategy};
use burn_backend::get_device_settings;

use super::{
    Autodiff,
    rules::{Rule, slice},
};
use crate::{
    Backend,
    ops::{Gelu, GeluApproximation, Values, flattened_first},
};

/// Repeats a tensor along an axis. Burn 0.21 sums the gradient as if each element were repeated in place.
pub(super) fn repeat_dim<B: Backend>(x: FloatTensor<B>, dim: usize, times: usize) -> FloatTensor<B> {
    let sizes = x.shape().to_vec();
    let (mut single, mut copies, mut repeated) = (sizes.clone(), sizes.clone(), sizes.clone());
    single.insert(dim, 1);
    copies.insert(dim, times);
    repeated[dim] = sizes[dim] * times;
    let copies = B::float_expand(B::float_reshape(x, single.into()), copies.into());
    B::float_reshape(copies, repeated.into())
}

/// Reshapes a tensor, and its gradient back.
pub(super) fn reshape<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    shape: Shape,
) -> FloatTensor<Autodiff<B, C>> {
    let from = x.shape();
    let flat = flattened_first(&from, &shape).or_else(|| flattened_first(&shape, &from));
    let x = match flat {
        Some(flat) => Burn::<B, C>::float_reshape(x, flat),
        None => x,
    };
    Burn::<B, C>::float_reshape(x, shape)
}

/// Casts a tensor, unless it has the dtype.
pub(super) fn cast<B: Backend>(x: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if x.dtype() == dtype { x } else { Rule::Cast(dtype).of::<B>([x]) }
}

/// Product of all elements, `[1]`.
pub(super) fn prod<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let count = x.shape().num_elements();
    Rule::Product { dim: 0 }.of::<B>([B::float_reshape(x, [count].into())])
}

/// Cumulative product along an axis, in `log n` steps that each double the number of factors. Burn 0.21 divides by the
/// elements.
pub(super) fn cumprod<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    dim: usize,
) -> FloatTensor<Autodiff<B, C>> {
    if !x.is_tracked() {
        return Burn::<B, C>::float_cumprod(x, dim);
    }
    let size = x.shape()[dim];
    let part = |x: &FloatTensor<Autodiff<B, C>>, from: usize, to: usize| slice::<Autodiff<B, C>>(x, dim, from, to);
    let (mut products, mut factors) = (x, 1);
    while factors < size {
        let first = part(&products, 0, factors);
        let rest = Autodiff::<B, C>::float_mul(part(&products, 0, size - factors), part(&products, factors, size));
        products = Autodiff::<B, C>::float_cat(vec![first, rest], dim);
        factors *= 2;
    }
    products
}

/// Power with a scalar exponent. Burn 0.21 computes `x^-2` as `1 / (x x)`, whose derivative is undefined at 0 and at
/// infinities.
pub(super) fn powi_scalar<B: Backend, C: CheckpointStrategy>(
    base: FloatTensor<Autodiff<B, C>>,
    exponent: Scalar,
) -> FloatTensor<Autodiff<B, C>> {
    match exponent.elem::<i64>() {
        -2 => Burn::<B, C>::float_powf_scalar_impl(base, exponent),
        _ => Burn::<B, C>::float_powi_scalar(base, exponent),
    }
}

/// Exact GELU. On backends without their own rule, Burn 0.21 differentiates the tanh approximation.
pub(super) fn gelu<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let gelu = Gelu { approximate: GeluApproximation::None };
    B::run(&gelu.into(), Values::floats([x]), &[true]).outputs.take_float(0)
}

/// 1-D convolution. Burn 0.21 misplaces the gradient of a grouped convolution's weight if the stride does not divide the
/// input.
pub(super) fn conv1d<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
    options: &ConvOptions<1>,
) -> FloatTensor<B> {
    let with_row = |x: FloatTensor<B>| {
        let [a, b, length] = x.shape().dims();
        B::float_reshape(x, [a, b, 1, length].into())
    };
    let pair = |row: usize, [column]: [usize; 1]| [row, column];
    let (stride, padding, dilation) = (pair(1, options.stride), pair(0, options.padding), pair(1, options.dilation));
    let options = ConvOptions::new(stride, padding, dilation, options.groups);
    let y = B::conv2d(with_row(x), with_row(weight), bias, options);
    let [b, channels, _, length] = y.shape().dims();
    B::float_reshape(y, [b, channels, length].into())
}

/// Largest elements along an axis, which Burn 0.21 does not differentiate.
pub(super) fn topk<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    dim: usize,
    k: usize,
) -> FloatTensor<Autodiff<B, C>> {
    if !x.is_tracked() {
        return <Autodiff<B, C> as AutodiffBackend>::from_inner(B::float_topk(x.primitive, dim, k));
    }
    let integers = get_device_settings::<B>(&B::float_device(&x.primitive)).int_dtype;
    let positions = B::argtopk(x.primitive.clone(), dim, k, integers);
    Burn::<B, C>::float_gather(dim, x, positions)
}

/// Division by a scalar, by a rule of its own where Burn's is too coarse.
pub(super) fn div_scalar<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    number: Scalar,
) -> FloatTensor<Autodiff<B, C>> {
    if x.dtype() != DType::F64 || !x.is_tracked() {
        return Burn::<B, C>::float_div_scalar(x, number);
    }
    Rule::Quotient(number.elem()).of::<Autodiff<B, C>>([x])
}
