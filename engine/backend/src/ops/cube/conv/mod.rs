//! Convolutions as matrix products by im2col: each row holds the elements of one window.
//!
//! Also for 16-bit dtypes: some of Burn 0.21's convolution kernels (`conv2d_direct`) accumulate in the tensor's dtype,
//! which makes the second digit wrong for a sum of 4,608 f16 values. The products here accumulate in f32.

mod im2col;

use burn::tensor::{Tensor, TensorMetadata};
use burn_cubecl::CubeRuntime;

use self::im2col::{fold, unfold};
use super::{Fusing, matmul::must_stay_f32, register::FusedTensor};
use crate::{
    Backend, Conv2dOptions,
    ops::{
        at_least_f32, flattened_first, float, matmul,
        precision::{cast, is_half},
        primitive,
    },
};

/// Maximum number of im2col elements per pass: 512 MiB in f32.
const MAX_ELEMENTS: usize = 1 << 27;

/// Number of tiles that gives each multiprocessor of a GPU several. A weight gradient is split into partial sums to reach
/// this number.
const TILES: usize = 512;
const TILE: usize = 64;

/// Sizes of a convolution; `channels` are those of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Conv {
    options: Conv2dOptions,
    images: usize,
    channels: usize,
    size: [usize; 2],
    output: [usize; 2],
    kernel: [usize; 2],
}

impl Conv {
    fn new(x: &[usize], weight: &[usize], options: Conv2dOptions) -> Self {
        let (size, kernel) = ([x[2], x[3]], [weight[2], weight[3]]);
        let output = options.output_size(size, kernel);
        Self { options, images: x[0], channels: weight[1], size, output, kernel }
    }

    fn rows(&self) -> usize {
        self.images * self.output[0] * self.output[1]
    }

    fn columns(&self) -> usize {
        self.kernel[0] * self.kernel[1] * self.channels
    }

    /// Returns the number of images whose im2col rows are in memory at once.
    fn images_at_once(&self) -> usize {
        let of_one = self.output[0] * self.output[1] * self.columns() * self.options.groups;
        (MAX_ELEMENTS / of_one.max(1)).clamp(1, self.images.max(1))
    }

    /// Returns true if the im2col rows are the pixels themselves.
    fn is_pointwise(&self) -> bool {
        self.options == Conv2dOptions::default() && self.kernel == [1, 1]
    }
}

/// Reshapes a tensor, which may be a view, to more axes.
fn with_more_axes<B: Backend, const D: usize, const E: usize>(x: Tensor<B, D>, shape: [usize; E]) -> Tensor<B, E> {
    match flattened_first(&x.shape(), &shape.into()) {
        Some(flat) => x.reshape::<1, _>(flat).reshape(shape),
        None => x.reshape(shape),
    }
}

/// Reshapes the weight `[o, c / groups, kh, kw]` to matrices `[groups, o / groups, kh * kw * c / groups]`.
fn matrices<B: Backend>(weight: Tensor<B, 4>, conv: &Conv) -> Tensor<B, 3> {
    let (groups, out) = (conv.options.groups, weight.dims()[0]);
    weight.permute([0, 2, 3, 1]).reshape([groups, out / groups, conv.columns()])
}

/// Reshapes a tensor of the output's shape, `[b, o, h', w']`, to `[groups, rows, o / groups]`.
fn positions<B: Backend>(y: Tensor<B, 4>, conv: &Conv) -> Tensor<B, 3> {
    let (groups, out) = (conv.options.groups, y.dims()[1]);
    let y = y.permute([0, 2, 3, 1]);
    if groups == 1 {
        return y.reshape([1, conv.rows(), out]);
    }
    y.reshape([conv.rows(), groups, out / groups]).swap_dims(0, 1)
}

/// Splits the batch so that the im2col rows of each piece fit into memory.
fn pieces<B: Backend>(x: &Tensor<B, 4>, conv: &Conv) -> Vec<(Conv, Tensor<B, 4>, usize)> {
    let each = conv.images_at_once();
    let starts = (0..conv.images).step_by(each);
    starts
        .map(|start| {
            let images = each.min(conv.images - start);
            let piece = if images == conv.images { x.clone() } else { x.clone().narrow(0, start, images) };
            (Conv { images, ..*conv }, piece, start)
        })
        .collect()
}

fn joined<B: Backend>(mut pieces: Vec<Tensor<B, 4>>) -> Tensor<B, 4> {
    if pieces.len() == 1 { pieces.remove(0) } else { Tensor::cat(pieces, 0) }
}

/// Returns true if Burn's choice of kernels must not be used.
pub(super) fn takes<R: CubeRuntime>(x: &FusedTensor<R>) -> bool {
    must_stay_f32(x) || is_half(x.dtype())
}

/// See [`Conv2dOptions`].
pub(super) fn forward<B: Fusing<R>, R: CubeRuntime>(
    x: FusedTensor<R>,
    weight: FusedTensor<R>,
    options: Conv2dOptions,
) -> FusedTensor<R> {
    let conv = Conv::new(&x.shape(), &weight.shape(), options);
    let (out, [height, width]) = (weight.shape()[0], conv.output);
    let weight = matrices::<B>(float(weight), &conv).swap_dims(1, 2);
    let outputs = pieces::<B>(&float(x), &conv).into_iter().map(|(conv, x, _)| {
        let rows = float::<B, 3>(unfold(primitive(x), conv, 1));
        let y = matmul(rows, weight.clone());
        let y = if options.groups == 1 { y } else { y.swap_dims(0, 1) };
        with_more_axes(y, [conv.images, height, width, out]).permute([0, 3, 1, 2])
    });
    primitive(joined(outputs.collect()))
}

/// Returns true for convolutions that Burn may compute as a product that [must use our kernels](super::matmul::takes).
pub(super) fn is_product<R: CubeRuntime>(x: &FusedTensor<R>, weight: &FusedTensor<R>, options: Conv2dOptions) -> bool {
    let conv = Conv::new(&x.shape(), &weight.shape(), options);
    conv.is_pointwise() && super::matmul::takes(x, [conv.rows(), conv.channels, weight.shape()[0]])
}

/// Computes a convolution with a 1x1 kernel as a matrix product, in any dtype.
pub(super) fn pointwise<B: Fusing<R>, R: CubeRuntime>(x: FusedTensor<R>, weight: FusedTensor<R>) -> FusedTensor<R> {
    let (x, weight) = (float::<B, 4>(x), float::<B, 4>(weight));
    let ([images, channels, height, width], out) = (x.dims(), weight.dims()[0]);
    let rows = x.permute([0, 2, 3, 1]).reshape([images * height * width, channels]);
    let y = matmul(rows, weight.reshape([out, channels]).transpose());
    primitive(y.reshape([images, height, width, out]).permute([0, 3, 1, 2]))
}

/// Returns the gradient of the input.
fn input_gradient<B: Fusing<R>, R: CubeRuntime>(
    weight: Tensor<B, 4>,
    grad: &Tensor<B, 4>,
    conv: &Conv,
) -> Tensor<B, 4> {
    let weight = matrices::<B>(weight, conv);
    let inputs = pieces::<B>(grad, conv).into_iter().map(|(conv, grad, _)| {
        let rows = matmul(positions(grad, &conv), weight.clone());
        float(fold(primitive(rows), conv))
    });
    joined(inputs.collect())
}

/// Returns the gradient of the weight. If there are few tiles, the sum over all output pixels is computed in parts.
fn weight_gradient<B: Fusing<R>, R: CubeRuntime>(x: &Tensor<B, 4>, grad: &Tensor<B, 4>, conv: &Conv) -> Tensor<B, 4> {
    let (groups, out) = (conv.options.groups, grad.dims()[1]);
    let tiles = groups * (out / groups).div_ceil(TILE) * conv.columns().div_ceil(TILE);
    let sums = pieces::<B>(x, conv).into_iter().map(|(conv, x, start)| {
        let images = conv.images;
        let parts = (1..=images).find(|parts| images % parts == 0 && parts * tiles >= TILES).unwrap_or(images);
        let rows = float::<B, 3>(unfold(primitive(x), conv, parts));
        let grad =
            if start == 0 && grad.dims()[0] == images { grad.clone() } else { grad.clone().narrow(0, start, images) };
        let grad = positions(grad, &conv);
        let grad = match groups {
            1 => grad.reshape([parts, conv.rows() / parts, out]),
            _ => {
                let grad = with_more_axes(grad, [groups, parts, conv.rows() / parts, out / groups]).swap_dims(0, 1);
                grad.reshape([parts * groups, conv.rows() / parts, out / groups])
            }
        };
        let products = matmul(grad.swap_dims(1, 2), rows);
        at_least_f32(products).reshape([parts, out, conv.columns()]).sum_dim(0)
    });
    let sum = sums.reduce(|a, b| a + b).unwrap_or_else(|| Tensor::zeros([1, out, conv.columns()], &x.device()));
    let [height, width] = conv.kernel;
    let sum = sum.cast(x.dtype());
    sum.reshape([out, height, width, conv.channels]).permute([0, 3, 1, 2])
}

/// Returns the gradients of the input and the weight.
pub(super) fn backward<B: Fusing<R>, R: CubeRuntime>(
    x: FusedTensor<R>,
    weight: FusedTensor<R>,
    grad: FusedTensor<R>,
    options: Conv2dOptions,
    needs: [bool; 2],
) -> [Option<FusedTensor<R>>; 2] {
    let conv = Conv::new(&x.shape(), &weight.shape(), options);
    let grad = float::<B, 4>(cast::<B>(grad, x.dtype()));
    let dx = needs[0].then(|| primitive(input_gradient::<B, R>(float(weight), &grad, &conv)));
    let dw = needs[1].then(|| primitive(weight_gradient::<B, R>(&float(x), &grad, &conv)));
    [dx, dw]
}
