//! Convolutions and max pooling on flex, for f32, by implicit im2col.

use burn::tensor::Shape;
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, Conv2d, Epilogue, Pool2d};

use super::{contiguous, elements, shape, tensor};
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

fn convolved(inputs: [FlexTensor; 2], options: Conv2dOptions, epilogue: Epilogue<'_>) -> Outcome<Flex> {
    let [x, weight] = inputs.map(contiguous);
    let (conv, shape) = sizes(&x, &weight, options);
    Outcome::new([tensor(kernels::conv2d(elements(&x), elements(&weight), &conv, epilogue), shape)])
}

pub(super) fn forward(options: Conv2dOptions, inputs: Values<Flex>) -> Outcome<Flex> {
    convolved(inputs.take_floats(), options, Epilogue::default())
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
