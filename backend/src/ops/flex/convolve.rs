//! Convolutions and max pooling on flex, for f32, by implicit im2col.

use burn::tensor::{Shape, ops::FloatTensor};
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, Conv2d, Epilogue, Pool2d};

use super::{contiguous, elements, is_f32, tensor};
use crate::ops::{
    ConvolveOptions, ConvolveThen, PoolOptions, convolve, max_pool,
    precision::{cast, is_half, widened},
};

/// Returns the sizes of a convolution, and the shape of the output.
fn sizes(x: &FlexTensor, weight: &FlexTensor, options: ConvolveOptions) -> (Conv2d, Shape) {
    let dims = |x: &FlexTensor| [0, 1, 2, 3].map(|i| x.layout().shape()[i]);
    let ([batch, channels_in, height, width], [channels_out, each, rows, columns]) = (dims(x), dims(weight));
    let ConvolveOptions { stride, padding, dilation, groups } = options;
    assert_eq!(each * groups, channels_in, "a kernel of {each} channels and {groups} groups");
    let kernel = [rows, columns];
    let [down, right] = options.output_size([height, width], kernel);
    let conv = Conv2d { batch, channels_in, height, width, channels_out, kernel, stride, padding, dilation, groups };
    (conv, Shape::from([batch, channels_out, down, right]))
}

fn convolved(x: FlexTensor, weight: FlexTensor, options: ConvolveOptions, epilogue: Epilogue<'_>) -> FlexTensor {
    let (x, weight) = (contiguous(x), contiguous(weight));
    let (conv, shape) = sizes(&x, &weight, options);
    tensor(kernels::conv2d(elements(&x), elements(&weight), &conv, epilogue), shape)
}

pub(super) fn forward(x: FlexTensor, weight: FlexTensor, options: ConvolveOptions) -> FlexTensor {
    let dtype = x.dtype();
    if is_half(dtype) {
        return cast::<Flex>(forward(widened::<Flex>(x), widened::<Flex>(weight), options), dtype);
    }
    if !is_f32(&x) || !is_f32(&weight) {
        return convolve::forward::<Flex>(x, weight, options);
    }
    convolved(x, weight, options, Epilogue::default())
}

pub(super) fn then(
    x: FlexTensor,
    weight: FlexTensor,
    then: ConvolveThen<Flex>,
    options: ConvolveOptions,
) -> FlexTensor {
    let dtype = x.dtype();
    if is_half(dtype) {
        let then = ConvolveThen {
            scale: widened::<Flex>(then.scale),
            shift: widened::<Flex>(then.shift),
            residual: then.residual.map(widened::<Flex>),
            relu: then.relu,
        };
        return cast::<Flex>(self::then(widened::<Flex>(x), widened::<Flex>(weight), then, options), dtype);
    }
    let others = [Some(&then.scale), Some(&then.shift), then.residual.as_ref()];
    if !is_f32(&x) || !is_f32(&weight) || !others.into_iter().flatten().all(is_f32) {
        return convolve::then::<Flex>(x, weight, then, options);
    }
    let (scale, shift, residual) = (contiguous(then.scale), contiguous(then.shift), then.residual.map(contiguous));
    let epilogue = Epilogue {
        scale: Some(elements(&scale)),
        shift: Some(elements(&shift)),
        residual: residual.as_ref().map(elements),
        relu: then.relu,
    };
    convolved(x, weight, options, epilogue)
}

pub(super) fn backward(
    x: FlexTensor,
    weight: FlexTensor,
    grad: FlexTensor,
    options: ConvolveOptions,
    needs: [bool; 2],
) -> [Option<FloatTensor<Flex>>; 2] {
    if is_half(grad.dtype()) {
        let dtypes = [x.dtype(), weight.dtype()];
        let [dx, dw] = backward(widened::<Flex>(x), widened::<Flex>(weight), widened::<Flex>(grad), options, needs);
        return [dx.map(|dx| cast::<Flex>(dx, dtypes[0])), dw.map(|dw| cast::<Flex>(dw, dtypes[1]))];
    }
    if ![&x, &weight, &grad].into_iter().all(is_f32) {
        return convolve::backward::<Flex>(x, weight, grad, options, needs);
    }
    let (conv, _) = sizes(&x, &weight, options);
    let grad = contiguous(grad);
    let (x_shape, weight_shape) = (x.layout().shape().clone(), weight.layout().shape().clone());
    let dx = needs[0].then(|| {
        let dx = kernels::conv2d_backward_input(elements(&contiguous(weight)), elements(&grad), &conv);
        tensor(dx, x_shape)
    });
    let dw = needs[1].then(|| {
        let mut dw = vec![0.0; weight_shape.num_elements()];
        kernels::conv2d_backward_weight(elements(&contiguous(x)), elements(&grad), &conv, &mut dw);
        tensor(dw, weight_shape)
    });
    [dx, dw]
}

/// Returns the sizes of a pooling, and the shape of the output.
fn pool(x: &FlexTensor, options: PoolOptions) -> (Pool2d, Shape) {
    let PoolOptions { kernel, stride, padding } = options;
    let [batch, channels, height, width] = [0, 1, 2, 3].map(|i| x.layout().shape()[i]);
    let [down, right] = options.output_size([height, width]);
    (Pool2d { size: [height, width], kernel, stride, padding }, Shape::from([batch, channels, down, right]))
}

pub(super) fn max(x: FlexTensor, options: PoolOptions) -> FlexTensor {
    if !is_f32(&x) {
        return max_pool::forward::<Flex>(x, options);
    }
    let x = contiguous(x);
    let (pool, shape) = pool(&x, options);
    tensor(pool.max(elements(&x)), shape)
}

pub(super) fn max_backward(x: FlexTensor, y: FlexTensor, grad: FlexTensor, options: PoolOptions) -> FlexTensor {
    if ![&x, &y, &grad].into_iter().all(is_f32) {
        return max_pool::backward::<Flex>(x, y, grad, options);
    }
    let (x, y, grad) = (contiguous(x), contiguous(y), contiguous(grad));
    let dx = pool(&x, options).0.max_backward(elements(&x), elements(&y), elements(&grad));
    tensor(dx, x.layout().shape().clone())
}
