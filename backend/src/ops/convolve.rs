//! Convolutions of pictures, written with Burn's operations: the defaults of [`Backend`].

use burn::tensor::{
    Tensor, TensorMetadata, activation,
    ops::{ConvOptions, ConvTransposeOptions, FloatTensor, ModuleOps},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Backend, at_least_f32, custom::recorded, float, precision::cast, primitive};

/// How a convolution steps over a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvolveOptions {
    /// Pixels from one position to the next, down and right.
    pub stride: [usize; 2],
    /// Zeros around the picture: above and below, left and right.
    pub padding: [usize; 2],
    /// Pixels between neighbours of the kernel, down and right: 1 where there are no gaps.
    pub dilation: [usize; 2],
    /// Into how many parts the channels fall, each of which is convolved by itself.
    pub groups: usize,
}

impl Default for ConvolveOptions {
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl ConvolveOptions {
    /// Height and width of the output.
    ///
    /// # Panics
    /// If the kernel is larger than the padded picture.
    pub fn output_size(&self, size: [usize; 2], kernel: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|i| {
            let (padded, reach) = (size[i] + 2 * self.padding[i], self.dilation[i] * (kernel[i] - 1) + 1);
            assert!(padded >= reach, "a kernel of {reach} pixels does not fit into a picture of {padded}");
            (padded - reach) / self.stride[i] + 1
        })
    }

    /// Whether stride, padding and dilation are the same down and right.
    #[cfg(feature = "candle")]
    pub(super) fn is_same_both_ways(&self) -> bool {
        [self.stride, self.padding, self.dilation].iter().all(|[down, right]| down == right)
    }

    fn burn(&self) -> ConvOptions<2> {
        ConvOptions::new(self.stride, self.padding, self.dilation, self.groups)
    }
}

/// What follows a convolution, in this order; after one of 16 bits in f32, whose result is rounded at the end.
#[derive(Clone, Debug)]
pub struct ConvolveThen<B: Backend> {
    /// What each channel is multiplied by, `[out]`.
    pub scale: FloatTensor<B>,
    /// What is added to each channel then, `[out]`.
    pub shift: FloatTensor<B>,
    /// What is added then, of the output's shape.
    pub residual: Option<FloatTensor<B>>,
    /// Whether negative numbers become 0 then.
    pub relu: bool,
}

pub(super) fn forward<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    options: ConvolveOptions,
) -> FloatTensor<B> {
    <B as ModuleOps<B>>::conv2d(x, weight, None, options.burn())
}

pub(super) fn backward<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    grad: FloatTensor<B>,
    options: ConvolveOptions,
    needs: [bool; 2],
) -> [Option<FloatTensor<B>>; 2] {
    let dx = needs[0].then(|| input_gradient::<B>(x.clone(), weight.clone(), grad.clone(), options));
    let dw = needs[1].then(|| B::conv2d_weight_backward(x, weight, grad, options.burn()));
    [dx, dw]
}

/// As [`backward`], each group by itself.
#[cfg(feature = "candle")]
pub(super) fn backward_by_groups<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    grad: FloatTensor<B>,
    options: ConvolveOptions,
    needs: [bool; 2],
) -> [Option<FloatTensor<B>>; 2] {
    let groups = options.groups;
    if groups == 1 {
        return backward::<B>(x, weight, grad, options, needs);
    }
    let part = |x: &Tensor<B, 4>, axis: usize, group: usize| {
        let size = x.dims()[axis] / groups;
        primitive(x.clone().narrow(axis, group * size, size))
    };
    let (x, weight, grad) = (float::<B, 4>(x), float::<B, 4>(weight), float::<B, 4>(grad));
    let one = ConvolveOptions { groups: 1, ..options };
    let (mut dx, mut dw) = (Vec::new(), Vec::new());
    for group in 0..groups {
        let [x, weight, grad] = [part(&x, 1, group), part(&weight, 0, group), part(&grad, 1, group)];
        let [of_x, of_weight] = backward::<B>(x, weight, grad, one, needs);
        dx.extend(of_x.map(float::<B, 4>));
        dw.extend(of_weight.map(float::<B, 4>));
    }
    [(dx, 1), (dw, 0)].map(|(parts, axis)| (!parts.is_empty()).then(|| primitive(Tensor::cat(parts, axis))))
}

fn input_gradient<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    grad: FloatTensor<B>,
    options: ConvolveOptions,
) -> FloatTensor<B> {
    let (size, kernel, out) = (x.shape(), weight.shape(), grad.shape());
    // Pixels at the end that no position of the kernel reaches.
    let beyond = [0, 1].map(|i| {
        let reach = options.dilation[i] * (kernel[2 + i] - 1) + 1;
        size[2 + i] + 2 * options.padding[i] - ((out[2 + i] - 1) * options.stride[i] + reach)
    });
    // Where pixels lie between the kernel's positions, Burn 0.21's own passes give zeros on GPUs.
    if (0..2).any(|i| options.dilation[i] * (kernel[2 + i] - 1) + 1 < options.stride[i]) {
        let lengths = [0, 1].map(|i| (out[2 + i] - 1) * options.stride[i] + 1 + beyond[i]);
        let grad = spread(float::<B, 4>(grad), options.stride, lengths);
        let options = ConvolveOptions { stride: [1, 1], ..options };
        return B::conv2d_x_backward(x, weight, primitive(grad), options.burn());
    }
    if beyond[0] == beyond[1] {
        return B::conv2d_x_backward(x, weight, grad, options.burn());
    }
    // Candle wants as many below as to the right: some are cut off again.
    let most = beyond[0].max(beyond[1]);
    let ConvolveOptions { stride, padding, dilation, groups } = options;
    let options = ConvTransposeOptions::new(stride, padding, [most, most], dilation, groups);
    let dx = float::<B, 4>(B::conv_transpose2d(grad, weight, None, options));
    primitive(dx.narrow(2, 0, size[2]).narrow(3, 0, size[3]))
}

/// A picture with its pixels `stride` apart, and zeros between them and at the end.
fn spread<B: Backend>(x: Tensor<B, 4>, [down, right]: [usize; 2], [rows, columns]: [usize; 2]) -> Tensor<B, 4> {
    let [b, c, h, w] = x.dims();
    let zeros = Tensor::<B, 6>::zeros([b, c, h, down, w, right], &x.device()).cast(x.dtype());
    let spread = zeros.slice_assign([0..b, 0..c, 0..h, 0..1, 0..w, 0..1], x.reshape([b, c, h, 1, w, 1]));
    spread.reshape([b, c, h * down, w * right]).narrow(2, 0, rows).narrow(3, 0, columns)
}

pub(super) fn then<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    then: ConvolveThen<B>,
    options: ConvolveOptions,
) -> FloatTensor<B> {
    let dtype = x.dtype();
    let y = at_least_f32(float::<B, 4>(B::convolve(x, weight, options)));
    let (channels, computing) = (y.dims()[1], y.dtype());
    let row = |x: FloatTensor<B>| float::<B, 1>(cast::<B>(x, computing)).reshape([1, channels, 1, 1]);
    let y = y * row(then.scale) + row(then.shift);
    let y = match then.residual {
        Some(residual) => y + float(cast::<B>(residual, computing)),
        None => y,
    };
    cast::<B>(primitive(if then.relu { activation::relu(y) } else { y }), dtype)
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    options: ConvolveOptions,
) -> FloatTensor<Autodiff<B, C>> {
    type Kept<B> = ([FloatTensor<B>; 2], ConvolveOptions);
    let backward = |([x, weight], options): Kept<B>, grad, needs| B::convolve_backward(x, weight, grad, options, needs);
    recorded::<B, C, _, 2>([x, weight], backward, |[x, weight], keep| {
        let kept = keep.then(|| ([x.clone(), weight.clone()], options));
        (B::convolve(x, weight, options), kept)
    })
}
