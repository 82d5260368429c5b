//! Derivatives that replace Burn's. Compositions are differentiated by Burn; a [`Function`] has its own rule.

use burn::tensor::{
    DType, FloatDType, Scalar, Shape, TensorData, TensorMetadata,
    backend::AutodiffBackend,
    ops::{BoolTensor, ConvOptions, FloatTensor, FloatTensorOps, ModuleOps},
};
use burn_autodiff::{Autodiff as Burn, checkpoint::strategy::CheckpointStrategy};
use burn_backend::get_device_settings;

use super::Autodiff;
use crate::{
    Backend,
    ops::{Function, FunctionVjp, Gelu, GeluApproximation, Outcome, Values, Wanted, flattened_first, part_of_axis},
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

/// Casts a tensor by the backend's own [cast](Backend::cast_float).
pub(super) fn cast<B: Backend>(x: FloatTensor<B>, dtype: DType) -> FloatTensor<B> {
    if x.dtype() == dtype { x } else { B::run_function(&Cast { dtype }, Values::floats([x])).take_float(0) }
}

#[derive(Clone, Debug)]
struct Cast {
    dtype: DType,
}

impl Function for Cast {
    type Vjp = Self;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        Values::floats([B::cast_float(inputs.take_float(0), self.dtype)])
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        (self.run(inputs).into(), self.clone())
    }
}

impl FunctionVjp for Cast {
    /// The gradient gets the dtype of the input when it is added to the input's gradients.
    fn vjp<B: Backend>(&self, _: Values<B>, grads: Values<B>, _: &Wanted) -> Values<B> {
        grads
    }
}

/// Product of all elements, `[1]`.
pub(super) fn prod<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let count = x.shape().num_elements();
    prod_dim::<B>(B::float_reshape(x, [count].into()), 0)
}

/// Product along an axis, which keeps size 1. Burn 0.21 computes the exponential of a sum of logarithms.
pub(super) fn prod_dim<B: Backend>(x: FloatTensor<B>, dim: usize) -> FloatTensor<B> {
    B::run_function(&Product { dim }, Values::floats([x])).take_float(0)
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

/// Power. In Burn 0.21 the derivatives at base 0 are not finite.
pub(super) fn powf<B: Backend>(base: FloatTensor<B>, exponent: FloatTensor<B>) -> FloatTensor<B> {
    B::run_function(&Power, Values::floats([base, exponent])).take_float(0)
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

/// Square root. In Burn 0.21 the derivative is that of a power, which has the opposite sign at -0.
pub(super) fn sqrt<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::run_function(&Sqrt, Values::floats([x])).take_float(0)
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

/// Maximum or minimum along an axis, which keeps size 1. Equal elements share the gradient, as in JAX; in Burn 0.21 the
/// first gets all of it.
pub(super) fn extreme<B: Backend>(x: FloatTensor<B>, dim: usize, max: bool) -> FloatTensor<B> {
    B::run_function(&Extreme { dim, max }, Values::floats([x])).take_float(0)
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

/// Division by a scalar. Burn 0.21 rounds the scalar to f32 in the gradient.
pub(super) fn div_scalar<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    number: Scalar,
) -> FloatTensor<Autodiff<B, C>> {
    if x.dtype() != DType::F64 || !x.is_tracked() {
        return Burn::<B, C>::float_div_scalar(x, number);
    }
    Autodiff::<B, C>::run_function(&Quotient { number: number.elem() }, Values::floats([x])).take_float(0)
}

/// Slice of an axis.
fn slice<B: Backend>(x: &FloatTensor<B>, dim: usize, from: usize, to: usize) -> FloatTensor<B> {
    B::float_slice(x.clone(), &part_of_axis(x.shape().num_dims(), dim, from..to))
}

/// Sums over the axes along which a value of this shape was broadcast.
fn summed<B: Backend>(x: FloatTensor<B>, shape: &Shape) -> FloatTensor<B> {
    let sizes = x.shape();
    (0..sizes.num_dims()).filter(|&i| sizes[i] != shape[i]).fold(x, |x, i| B::float_sum_dim(x, i))
}

/// True where an element equals a scalar.
fn equals<B: Backend>(x: &FloatTensor<B>, number: f64) -> BoolTensor<B> {
    let settings = get_device_settings::<B>(&B::float_device(x));
    B::float_equal_elem(x.clone(), number.into(), settings.bool_dtype)
}

#[derive(Clone, Debug)]
struct Product {
    dim: usize,
}

impl Function for Product {
    type Vjp = Self;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        Values::floats([B::float_prod_dim(inputs.take_float(0), self.dim)])
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        let x = inputs.float(0).clone();
        (Outcome { outputs: self.run(inputs), saved: Values::floats([x]) }, self.clone())
    }
}

impl FunctionVjp for Product {
    /// Multiplies the products of all elements before and after each element.
    fn vjp<B: Backend>(&self, mut saved: Values<B>, mut grads: Values<B>, _: &Wanted) -> Values<B> {
        let (x, grad) = (saved.take_float(0), grads.take_float(0));
        let size = x.shape()[self.dim];
        if size == 0 {
            return Values::floats([x]);
        }
        let before = |x: &FloatTensor<B>| {
            let mut one = x.shape();
            one[self.dim] = 1;
            let one = B::float_ones(one, &B::float_device(x), x.dtype().into());
            B::float_cumprod(B::float_cat(vec![one, slice::<B>(x, self.dim, 0, size - 1)], self.dim), self.dim)
        };
        let flip = |x| B::float_flip(x, &[self.dim]);
        let others = B::float_mul(before(&x), flip(before(&flip(x.clone()))));
        Values::floats([B::float_mul(B::float_expand(grad, x.shape()), others)])
    }
}

#[derive(Clone, Debug)]
struct Power;

impl Function for Power {
    type Vjp = Self;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        Values::floats([B::float_powf(inputs.take_float(0), inputs.take_float(1))])
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        let saved = [inputs.float(0).clone(), inputs.float(1).clone()];
        (Outcome { outputs: self.run(inputs), saved: Values::floats(saved) }, self.clone())
    }
}

impl FunctionVjp for Power {
    fn vjp<B: Backend>(&self, mut saved: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let (base, exponent, grad) = (saved.take_float(0), saved.take_float(1), grads.take_float(0));
        let [of_base, of_exponent] = wanted.needs();
        let of_base = of_base.then(|| {
            // At base 0 and exponent 0 the derivative is 0 (that of the constant 1), not 0 times infinity.
            let magnitudes = B::float_add(B::float_abs(base.clone()), B::float_abs(exponent.clone()));
            let constant = equals::<B>(&magnitudes, 0.0);
            let lower = B::float_expand(B::float_sub_scalar(exponent.clone(), 1.0.into()), magnitudes.shape());
            let lower = B::float_mask_fill(lower, constant, 0.0.into());
            let slope = B::float_mul(exponent.clone(), B::float_powf(base.clone(), lower));
            summed::<B>(B::float_mul(grad.clone(), slope), &base.shape())
        });
        let of_exponent = of_exponent.then(|| {
            // A power of 0 does not depend on its exponent.
            let zero = equals::<B>(&base, 0.0);
            let log = B::float_log(B::float_mask_fill(base.clone(), zero, 1.0.into()));
            let slope = B::float_mul(B::float_powf(base.clone(), exponent.clone()), log);
            summed::<B>(B::float_mul(grad.clone(), slope), &exponent.shape())
        });
        Values::optional_floats([of_base, of_exponent])
    }
}

#[derive(Clone, Debug)]
struct Sqrt;

impl Function for Sqrt {
    type Vjp = Self;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        Values::floats([B::float_sqrt(inputs.take_float(0))])
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        let outputs = self.run(inputs);
        let saved = Values::floats([outputs.float(0).clone()]);
        (Outcome { outputs, saved }, self.clone())
    }
}

impl FunctionVjp for Sqrt {
    fn vjp<B: Backend>(&self, mut saved: Values<B>, mut grads: Values<B>, _: &Wanted) -> Values<B> {
        let twice = B::float_mul_scalar(saved.take_float(0), 2.0.into());
        Values::floats([B::float_div(grads.take_float(0), twice)])
    }
}

#[derive(Clone, Debug)]
struct Extreme {
    dim: usize,
    max: bool,
}

impl Function for Extreme {
    type Vjp = Self;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        let x = inputs.take_float(0);
        Values::floats([if self.max { B::float_max_dim(x, self.dim) } else { B::float_min_dim(x, self.dim) }])
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        let x = inputs.float(0).clone();
        let outputs = self.run(inputs);
        let saved = Values::floats([x, outputs.float(0).clone()]);
        (Outcome { outputs, saved }, self.clone())
    }
}

impl FunctionVjp for Extreme {
    fn vjp<B: Backend>(&self, mut saved: Values<B>, mut grads: Values<B>, _: &Wanted) -> Values<B> {
        let (x, y, grad) = (saved.take_float(0), saved.take_float(1), grads.take_float(0));
        let (shape, dtype) = (x.shape(), FloatDType::from(x.dtype()));
        let settings = get_device_settings::<B>(&B::float_device(&x));
        let places = B::float_equal(x, B::float_expand(y, shape.clone()), settings.bool_dtype);
        let count = B::float_sum_dim(B::bool_into_float(places.clone(), dtype), self.dim);
        // A NaN equals nothing, so its count is 0.
        let shares = B::float_expand(B::float_div(grad, count), shape);
        Values::floats([B::float_mask_fill(shares, B::bool_not(places), 0.0.into())])
    }
}

#[derive(Clone, Debug)]
struct Quotient {
    number: f64,
}

impl Function for Quotient {
    type Vjp = Self;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        Values::floats([B::float_div_scalar(inputs.take_float(0), self.number.into())])
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, Self) {
        (self.run(inputs).into(), self.clone())
    }
}

impl FunctionVjp for Quotient {
    fn vjp<B: Backend>(&self, _: Values<B>, grads: Values<B>, _: &Wanted) -> Values<B> {
        self.run(grads)
    }
}

/// 2-D average pooling.
#[derive(Clone, Copy, Debug)]
pub(super) struct AvgPool {
    pub kernel_size: [usize; 2],
    pub stride: [usize; 2],
    pub padding: [usize; 2],
    pub count_include_pad: bool,
}

impl AvgPool {
    /// In Burn 0.21, the forward pass divides a window that ends beyond the image by its number of pixels, but the backward
    /// pass by the kernel size.
    pub fn pool<B: Backend, C: CheckpointStrategy>(
        self,
        x: FloatTensor<Autodiff<B, C>>,
        ceil_mode: bool,
    ) -> FloatTensor<Autodiff<B, C>> {
        let Self { kernel_size, stride, padding, count_include_pad } = self;
        if !ceil_mode || !x.is_tracked() {
            return Burn::<B, C>::avg_pool2d(x, kernel_size, stride, padding, count_include_pad, ceil_mode);
        }
        Autodiff::<B, C>::run_function(&self, Values::floats([x])).take_float(0)
    }

    /// Divisors of the windows along an axis, in pixels.
    fn counts(&self, axis: usize, size: usize, windows: usize) -> Vec<usize> {
        let (kernel, padding) = (self.kernel_size[axis], self.padding[axis]);
        let count = |i: usize| {
            // Offsets from the start of the padding.
            let begin = i * self.stride[axis];
            let end = (begin + kernel).min(size + 2 * padding);
            match self.count_include_pad {
                true => end - begin,
                false => end.min(size + padding).saturating_sub(begin.max(padding)),
            }
        };
        (0..windows).map(count).collect()
    }
}

impl Function for AvgPool {
    type Vjp = AvgPoolVjp;

    fn run<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        let Self { kernel_size, stride, padding, count_include_pad } = *self;
        Values::floats([B::avg_pool2d(inputs.take_float(0), kernel_size, stride, padding, count_include_pad, true)])
    }

    fn forward<B: Backend>(&self, inputs: Values<B>, _: &Wanted) -> (Outcome<B>, AvgPoolVjp) {
        let vjp = AvgPoolVjp { pool: *self, shape: inputs.shape(0) };
        (self.run(inputs).into(), vjp)
    }
}

/// Derivative of [`AvgPool`] with windows that end beyond the image.
#[derive(Clone, Debug)]
pub(super) struct AvgPoolVjp {
    pool: AvgPool,
    shape: Shape,
}

impl FunctionVjp for AvgPoolVjp {
    /// Rescales the gradient to full windows, then pools backwards as if all windows were full.
    fn vjp<B: Backend>(&self, _: Values<B>, mut grads: Values<B>, _: &Wanted) -> Values<B> {
        let Self { pool, shape } = self;
        let AvgPool { kernel_size, stride, padding, .. } = *pool;
        let grad = grads.take_float(0);
        let (device, dtype) = (B::float_device(&grad), FloatDType::from(grad.dtype()));
        let windows = [grad.shape()[2], grad.shape()[3]];
        let [rows, columns] = [0, 1].map(|i| pool.counts(i, shape[2 + i], windows[i]));
        let whole = (kernel_size[0] * kernel_size[1]) as f32;
        let factors = rows.iter().flat_map(|row| columns.iter().map(move |column| whole / (row * column) as f32));
        let factors = TensorData::new(factors.collect::<Vec<_>>(), [1, 1, windows[0], windows[1]]);
        let factors = B::float_cast(B::float_from_data(factors, &device), dtype);
        let grad = B::float_mul(grad, factors);
        let size = |i: usize| shape[2 + i].max((windows[i] - 1) * stride[i] + kernel_size[i] - 2 * padding[i]);
        let larger = B::float_zeros([shape[0], shape[1], size(0), size(1)].into(), &device, dtype);
        let grad = B::avg_pool2d_backward(larger, grad, kernel_size, stride, padding, true, false);
        let grad = slice::<B>(&grad, 2, 0, shape[2]);
        Values::floats([slice::<B>(&grad, 3, 0, shape[3])])
    }
}
