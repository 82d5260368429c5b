//! Convolutions and max pooling with every kind of option, odd sizes, and options that differ vertically and
//! horizontally, on every backend, against loops.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::numbers;
use crate::common;
use burn::tensor::Tensor;
use grove_backend::{Autodiff, Backend, Conv2dOptions, Pool2dOptions, ops};

fn values<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f64> {
    x.into_data().iter().collect()
}

/// Returns the image pixel at an offset in a window, unless it is in the padding.
fn pixel(window: usize, stride: usize, at: usize, padding: usize, size: usize) -> Option<usize> {
    (window * stride + at).checked_sub(padding).filter(|&pixel| pixel < size)
}

fn convolutions<B: Backend>(device: B::Device) {
    let options = |stride, padding, dilation, groups| Conv2dOptions { stride, padding, dilation, groups };
    for (size, out, kernel, options) in [
        ([2, 3, 7, 6], 4, [3, 2], options([2, 1], [0, 0], [1, 1], 1)),
        ([1, 2, 6, 9], 3, [3, 3], options([1, 1], [1, 0], [1, 1], 1)),
        ([1, 2, 9, 7], 2, [3, 3], options([1, 1], [0, 0], [2, 1], 1)),
        ([2, 4, 8, 11], 6, [2, 3], options([3, 2], [1, 2], [1, 2], 2)),
        ([1, 3, 5, 5], 3, [1, 3], options([1, 1], [0, 1], [1, 1], 3)),
        ([2, 1, 3, 4], 2, [1, 1], options([1, 3], [0, 2], [1, 1], 1)),
        ([1, 2, 10, 4], 2, [2, 2], options([4, 1], [0, 1], [3, 1], 1)),
        ([2, 3, 7, 7], 4, [3, 3], options([2, 2], [1, 1], [1, 1], 1)),
    ] {
        let [b, inputs, h, w] = size;
        let [down, right] = options.output_size([h, w], kernel);
        let each = inputs / options.groups;
        let x = numbers::<B, 4>(size, 1, &device);
        let weight = numbers::<B, 4>([out, each, kernel[0], kernel[1]], 2, &device);
        let dy = numbers::<B, 4>([b, out, down, right], 3, &device);
        let (gx, gw, gy) = (values(x.clone()), values(weight.clone()), values(dy.clone()));
        let (mut y, mut dx, mut dw) = (vec![0.0; gy.len()], vec![0.0; gx.len()], vec![0.0; gw.len()]);
        for at in 0..gy.len() {
            let (i, o, row, column) =
                (at / (out * down * right), at / (down * right) % out, at / right % down, at % right);
            for (c, ky, kx) in (0..each * kernel[0] * kernel[1])
                .map(|n| (n / (kernel[0] * kernel[1]), n / kernel[1] % kernel[0], n % kernel[1]))
            {
                let Conv2dOptions { stride, padding, dilation, groups } = options;
                let py = pixel(row, stride[0], ky * dilation[0], padding[0], h);
                let px = pixel(column, stride[1], kx * dilation[1], padding[1], w);
                let (Some(py), Some(px)) = (py, px) else { continue };
                let channel = o / (out / groups) * each + c;
                let from = ((i * inputs + channel) * h + py) * w + px;
                let by = ((o * each + c) * kernel[0] + ky) * kernel[1] + kx;
                y[at] += gx[from] * gw[by];
                dx[from] += gy[at] * gw[by];
                dw[by] += gy[at] * gx[from];
            }
        }
        let what = format!("{size:?} {kernel:?} {options:?}");
        let close = |part: &str, found: Vec<f64>, expected: &[f64]| {
            let (apart, largest) = common::distance(&found, expected);
            assert!(apart <= 1e-5 * largest.max(1.0), "{what}, {part}: apart by {apart} of {largest}");
        };
        close("alone", values(ops::conv2d(x.clone(), weight.clone(), options)), &y);
        let [x, weight] = [x, weight].map(|x| Tensor::<Autodiff<B>, 4>::from_inner(x).require_grad());
        let found = ops::conv2d(x.clone(), weight.clone(), options);
        let grads = (found.clone() * Tensor::<Autodiff<B>, 4>::from_inner(dy)).sum().backward();
        close("values", values(found.inner()), &y);
        close("dx", values(x.grad(&grads).expect("a gradient")), &dx);
        close("dw", values(weight.grad(&grads).expect("a gradient")), &dw);
    }
}

/// All combinations of small sizes, strides and paddings vertically, combined with others horizontally.
fn max_pools<B: Backend>(device: B::Device) {
    let sides = (1..6).flat_map(|size| (1..5).map(move |kernel| (size, kernel)));
    let sides = sides.flat_map(|(size, kernel)| (1..6).map(move |stride| (size, kernel, stride)));
    let sides = sides.flat_map(|(size, kernel, stride)| {
        let paddings = (0..=kernel / 2).filter(move |padding| size + 2 * padding >= kernel);
        paddings.map(move |padding| (size, kernel, stride, padding))
    });
    let sides: Vec<_> = sides.collect();
    for (i, &right) in sides.iter().enumerate() {
        let down = sides[i * 37 % sides.len()];
        let (size, kernel) = ([down.0, right.0], [down.1, right.1]);
        let (stride, padding) = ([down.2, right.2], [down.3, right.3]);
        let options = Pool2dOptions { kernel, stride, padding };
        let out = options.output_size(size);
        // Some values are equal, and all are negative: the padding must not contribute.
        let x = numbers::<B, 4>([2, 1, size[0], size[1]], i as u64, &device).mul_scalar(3.0).floor().sub_scalar(9.0);
        let dy = numbers::<B, 4>([2, 1, out[0], out[1]], 3, &device);
        let (gx, gy) = (values(x.clone()), values(dy.clone()));
        let (mut y, mut dx) = (vec![], vec![0.0; gx.len()]);
        for (at, dy) in gy.iter().enumerate() {
            let (plane, row, column) = (at / (out[0] * out[1]), at / out[1] % out[0], at % out[1]);
            let mut best: Option<usize> = None;
            for (ky, kx) in (0..kernel[0] * kernel[1]).map(|n| (n / kernel[1], n % kernel[1])) {
                let py = pixel(row, stride[0], ky, padding[0], size[0]);
                let px = pixel(column, stride[1], kx, padding[1], size[1]);
                let (Some(py), Some(px)) = (py, px) else { continue };
                let from = (plane * size[0] + py) * size[1] + px;
                if best.is_none_or(|best| gx[from] > gx[best]) {
                    best = Some(from);
                }
            }
            let best = best.expect("a window sees a pixel");
            y.push(gx[best]);
            dx[best] += dy;
        }
        let what = format!("{size:?} {options:?}");
        assert_eq!(values(ops::max_pool2d(x.clone(), options)), y, "{what}");
        let x = Tensor::<Autodiff<B>, 4>::from_inner(x).require_grad();
        let found = ops::max_pool2d(x.clone(), options);
        let grads = (found * Tensor::<Autodiff<B>, 4>::from_inner(dy)).sum().backward();
        let (apart, _) = common::distance(&values(x.grad(&grads).expect("a gradient")), &dx);
        assert!(apart <= 1e-5, "{what}: the gradient is apart by {apart}");
    }
}

/// Expected: PyTorch.
fn max_pools_of_nan<B: Backend>(device: B::Device) {
    let nan = f32::NAN;
    let x = Tensor::<B, 4>::from_data([[[[1.0, nan, 5.0, 6.0, 3.0, 4.0, 2.0, 8.0]]]], &device);
    let options = Pool2dOptions { kernel: [1, 4], stride: [1, 4], padding: [0, 0] };
    let y = values(ops::max_pool2d(x.clone(), options));
    assert!(y[0].is_nan() && y[1] == 8.0, "{y:?}");
    let x = Tensor::<Autodiff<B>, 4>::from_inner(x).require_grad();
    let grads = ops::max_pool2d(x.clone(), options).sum().backward();
    let dx = values(x.grad(&grads).expect("a gradient"));
    assert_eq!(dx, [0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]);
}

fn no_images<B: Backend>(device: B::Device) {
    let options = Conv2dOptions { stride: [1, 1], padding: [1, 1], dilation: [1, 1], groups: 1 };
    let x = numbers::<Autodiff<B>, 4>([0, 3, 5, 5], 1, &device).require_grad();
    let weight = numbers::<Autodiff<B>, 4>([2, 3, 3, 3], 2, &device).require_grad();
    let y = ops::conv2d(x.clone(), weight.clone(), options);
    assert_eq!(y.dims(), [0, 2, 5, 5]);
    let grads = y.sum().backward();
    assert_eq!(x.grad(&grads).expect("a gradient").dims(), [0, 3, 5, 5]);
    assert_eq!(values(weight.grad(&grads).expect("a gradient")), vec![0.0; 54]);
}

on_each_backend!(convolutions, max_pools, max_pools_of_nan);

/// On CUDA, Burn 0.21 launches kernels of no blocks for arrays without elements, which the driver refuses.
mod no_images {
    not_on_cuda!(no_images);
}
