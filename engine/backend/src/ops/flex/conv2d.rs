//! Convolutions and max pooling on flex, by implicit im2col. Convolutions of 16 bits are computed in f32, or as products of
//! pairs of bf16.

use burn::tensor::{DType, Shape};
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, Conv2d, Epilogue, HalfFormat, Pool2d};

use super::{contiguous, elements, half, shape, tensor};
use crate::ops::{Conv2dFused, Conv2dOptions, Outcome, Pool2dOptions, Values, Wanted};

/// Returns the sizes, and the shape of the output.
fn sizes(x: &FlexTensor, weight: &FlexTensor, options: Conv2dOptions) -> (Conv2d, Shape) {
    let [batch, channels_in, height, width] = x.layout().shape().dims();
    let [channels_out, each, rows, columns] = weight.layout().shape().dims();
    let Conv2dOptions { stride, padding, dilation, groups } = options;
    assert_eq!(each * groups, channels_in, "a kernel of {each} channels and {groups} groups");
    let kernel = [rows, columns];
    let [down, right] = options.output_size([height, width], kernel);
    let conv = Conv2d { batch, channels_in, height, width, channels_out, kernel, stride, padding, dilation, groups };
    (conv, Shape::from([batch, channels_out, down, right]))
}

/// Returns the 16-bit format that an operation's tensors have in common.
fn format<'a>(tensors: impl IntoIterator<Item = &'a FlexTensor>) -> Option<HalfFormat> {
    let mut dtypes = tensors.into_iter().map(FlexTensor::dtype);
    let first = dtypes.next()?;
    if dtypes.all(|dtype| dtype == first) { half::format(first) } else { None }
}

fn convolved(inputs: [FlexTensor; 2], options: Conv2dOptions, epilogue: Epilogue<'_>) -> Outcome<Flex> {
    let [x, weight] = inputs.map(contiguous);
    let (conv, shape) = sizes(&x, &weight, options);
    Outcome::new([tensor(kernels::conv2d(elements(&x), elements(&weight), &conv, epilogue), shape)])
}

pub(super) fn forward(options: Conv2dOptions, inputs: Values<Flex>) -> Outcome<Flex> {
    convolved(inputs.take_floats(), options, Epilogue::default())
}

/// Convolves 16-bit images; `None` if the inputs have other dtypes.
pub(super) fn forward_in_16_bits(options: Conv2dOptions, inputs: &Values<Flex>) -> Option<Outcome<Flex>> {
    convolved_in_16_bits(inputs, options, Epilogue::default())
}

/// Like [`fused`], for 16-bit images; `None` if the images and the weight have other dtypes.
pub(super) fn fused_in_16_bits(fused: Conv2dFused, inputs: &Values<Flex>) -> Option<Outcome<Flex>> {
    let [scale, shift] = [2, 3].map(|i| contiguous(half::cast(inputs.float(i).clone(), DType::F32)));
    let residual = inputs.get(4).map(|_| contiguous(inputs.float(4).clone()));
    format(residual.iter().chain([inputs.float(0)]))?;
    let epilogue = Epilogue {
        scale: Some(elements(&scale)),
        shift: Some(elements(&shift)),
        residual: residual.as_ref().map(half::elements),
        relu: fused.relu,
    };
    convolved_in_16_bits(inputs, fused.conv, epilogue)
}

fn convolved_in_16_bits(
    inputs: &Values<Flex>,
    options: Conv2dOptions,
    epilogue: Epilogue<'_, u16>,
) -> Option<Outcome<Flex>> {
    let format = format([inputs.float(0), inputs.float(1)])?;
    let [x, weight] = [0, 1].map(|i| contiguous(inputs.float(i).clone()));
    let (conv, shape) = sizes(&x, &weight, options);
    let y = kernels::conv2d_half(format, half::elements(&x), half::elements(&weight), &conv, epilogue);
    Some(Outcome::new([half::tensor(y, shape, x.dtype())]))
}

pub(super) fn fused(fused: Conv2dFused, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let [scale, shift] = [2, 3].map(|i| contiguous(inputs.take_float(i)));
    let residual = inputs.take_optional_float(4).map(contiguous);
    let epilogue = Epilogue {
        scale: Some(elements(&scale)),
        shift: Some(elements(&shift)),
        residual: residual.as_ref().map(elements),
        relu: fused.relu,
    };
    convolved(inputs.take_floats(), fused.conv, epilogue)
}

pub(super) fn vjp(
    options: Conv2dOptions,
    residuals: Values<Flex>,
    mut grads: Values<Flex>,
    wanted: &Wanted,
) -> Values<Flex> {
    let ([x, weight], needs) = (residuals.take_floats(), wanted.needs::<2>());
    let (conv, _) = sizes(&x, &weight, options);
    let grad = contiguous(grads.take_float(0));
    let (x_shape, weight_shape) = (shape(&x), shape(&weight));
    let dx = needs[0].then(|| {
        let dx = kernels::conv2d_backward_input(elements(&contiguous(weight)), elements(&grad), &conv);
        tensor(dx, x_shape)
    });
    let dw = needs[1].then(|| {
        let mut dw = vec![0.0; weight_shape.num_elements()];
        kernels::conv2d_backward_weight(elements(&contiguous(x)), elements(&grad), &conv, &mut dw);
        tensor(dw, weight_shape)
    });
    Values::optional_floats([dx, dw])
}

/// Computes the gradients from values of bf16; `None` if there is no kernel for them on this CPU.
pub(super) fn vjp_bf16(
    options: Conv2dOptions,
    residuals: &Values<Flex>,
    grads: &Values<Flex>,
    wanted: &Wanted,
) -> Option<Values<Flex>> {
    let given = [residuals.float(0), residuals.float(1), grads.float(0)];
    if format(given) != Some(HalfFormat::Bf16) {
        return None;
    }
    let needs = wanted.needs::<2>();
    let [x, weight, grad] = given.map(|x| contiguous(x.clone()));
    let (conv, _) = sizes(&x, &weight, options);
    let (mut dx, mut dw) = (None, None);
    if needs[0] {
        let bits = kernels::conv2d_backward_input_bf16(half::elements(&weight), half::elements(&grad), &conv)?;
        dx = Some(half::tensor(bits, shape(&x), DType::BF16));
    }
    if needs[1] {
        let values = kernels::conv2d_backward_weight_bf16(half::elements(&x), half::elements(&grad), &conv)?;
        dw = Some(tensor(values, shape(&weight)));
    }
    Some(Values::optional_floats([dx, dw]))
}

/// Returns the sizes, and the shape of the output.
fn pool(x: &FlexTensor, options: Pool2dOptions) -> (Pool2d, Shape) {
    let Pool2dOptions { kernel, stride, padding } = options;
    let [batch, channels, height, width] = x.layout().shape().dims();
    let [down, right] = options.output_size([height, width]);
    (Pool2d { size: [height, width], kernel, stride, padding }, Shape::from([batch, channels, down, right]))
}

pub(super) fn max_pool(options: Pool2dOptions, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let x = contiguous(inputs.take_float(0));
    let (pool, shape) = pool(&x, options);
    Outcome::new([tensor(pool.max(elements(&x)), shape)])
}

pub(super) fn max_pool_vjp(options: Pool2dOptions, residuals: Values<Flex>, mut grads: Values<Flex>) -> Values<Flex> {
    let ([x, y], grad) = (residuals.take_floats().map(contiguous), contiguous(grads.take_float(0)));
    let dx = pool(&x, options).0.max_backward(elements(&x), elements(&y), elements(&grad));
    Values::floats([tensor(dx, shape(&x))])
}
