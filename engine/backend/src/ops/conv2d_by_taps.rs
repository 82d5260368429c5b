//! Convolution as a sum of matrix products, one per kernel element, for backends whose own convolutions lack options. No
//! product is wasted on zeros.

use burn::tensor::Tensor;

use super::{
    Backend, Conv2dOptions, Outcome, Values, Wanted, float, matmul,
    precision::{cast, widened},
    primitive,
    strided::{Strided, pixels},
};

/// Sizes of a convolution.
#[derive(Clone, Copy)]
struct Sizes {
    options: Conv2dOptions,
    kernel: [usize; 2],
    out: [usize; 2],
}

impl Sizes {
    fn new<B: Backend>(x: &Tensor<B, 4>, weight: &Tensor<B, 4>, options: Conv2dOptions) -> Self {
        let ([.., h, w], [.., rows, columns]) = (x.dims(), weight.dims());
        Self { options, kernel: [rows, columns], out: options.output_size([h, w], [rows, columns]) }
    }

    fn strided<B: Backend>(&self, x: Tensor<B, 4>) -> Strided<B> {
        let reach = [0, 1].map(|i| self.options.reach(self.kernel, i));
        Strided::new(x, self.out, reach, self.options.stride, self.options.padding, 0.0)
    }

    /// Kernel elements and their offsets in pixels from the first one.
    fn pixels(&self) -> impl Iterator<Item = ([usize; 2], [usize; 2])> {
        let [down, right] = self.options.dilation;
        pixels(self.kernel).map(move |(row, column)| ([row, column], [row * down, column * right]))
    }

    /// Reshapes `[b, channels, h', w']` to a matrix per group, `[groups, channels / groups, b h' w']`.
    fn columns<B: Backend>(&self, x: Tensor<B, 4>) -> Tensor<B, 3> {
        let ([b, c, h, w], groups) = (x.dims(), self.options.groups);
        x.swap_dims(0, 1).reshape([groups, c / groups, b * h * w])
    }

    /// The inverse of [`columns`](Self::columns).
    fn image<B: Backend>(&self, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let ([groups, c, columns], [h, w]) = (x.dims(), self.out);
        x.reshape([groups * c, columns / (h * w), h, w]).swap_dims(0, 1)
    }
}

/// Weights of one kernel element, `[groups, out / groups, in / groups]`.
fn at<B: Backend>(weight: &Tensor<B, 4>, [row, column]: [usize; 2], groups: usize) -> Tensor<B, 3> {
    let [outputs, inputs, ..] = weight.dims();
    weight.clone().narrow(2, row, 1).narrow(3, column, 1).reshape([groups, outputs / groups, inputs])
}

pub(super) fn forward<B: Backend>(options: Conv2dOptions, inputs: Values<B>) -> Outcome<B> {
    let dtype = inputs.dtype(0);
    let [x, weight] = inputs.take_floats().map(|x| float::<B, 4>(widened::<B>(x)));
    let sizes = Sizes::new(&x, &weight, options);
    let strided = sizes.strided(x);
    let products = sizes.pixels().map(|(pixel, [row, column])| {
        matmul(at(&weight, pixel, options.groups), sizes.columns(strided.at(row, column)))
    });
    let sum = products.reduce(|sum, product| sum + product).expect("a kernel has at least one pixel");
    Outcome::new([cast::<B>(primitive(sizes.image(sum)), dtype)])
}

pub(super) fn vjp<B: Backend>(
    options: Conv2dOptions,
    residuals: Values<B>,
    mut grads: Values<B>,
    wanted: &Wanted,
) -> Values<B> {
    let ([x, weight], needs) = (residuals.take_floats(), wanted.needs::<2>());
    let [x, weight, grad] = [x, weight, grads.take_float(0)].map(|x| float::<B, 4>(widened::<B>(x)));
    let (sizes, shape) = (Sizes::new(&x, &weight, options), weight.dims());
    let grad = sizes.columns(grad); // [groups, out / groups, b h' w']
    let dx = needs[0].then(|| {
        let mut dx = sizes.strided(x.zeros_like());
        for (pixel, [row, column]) in sizes.pixels() {
            let product = matmul(at(&weight, pixel, options.groups).swap_dims(1, 2), grad.clone());
            dx.add_at(row, column, sizes.image(product));
        }
        primitive(dx.image())
    });
    let dw = needs[1].then(|| {
        let strided = sizes.strided(x.clone());
        let products = sizes.pixels().map(|(_, [row, column])| {
            let product = matmul(grad.clone(), sizes.columns(strided.at(row, column)).swap_dims(1, 2));
            product.reshape([shape[0], shape[1], 1]) // [out, in / groups, 1]
        });
        primitive(Tensor::cat(products.collect(), 2).reshape(shape))
    });
    Values::optional_floats([dx, dw])
}
