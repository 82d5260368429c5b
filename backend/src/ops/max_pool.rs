//! Max pooling, written with Burn's operations that every backend has: the defaults of [`Backend`].

use burn::tensor::{Bool, Tensor, ops::FloatTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{
    Backend,
    custom::recorded,
    float, primitive,
    strided::{self, Strided},
};

/// Windows whose largest numbers are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Pixels from one window to the next, down and right.
    pub stride: [usize; 2],
    /// Pixels around the picture, which are no number's largest: at most half of a window.
    pub padding: [usize; 2],
}

impl PoolOptions {
    /// Height and width of the output.
    ///
    /// # Panics
    /// If a window is larger than the padded picture, or the padding than half of a window.
    pub fn output_size(&self, size: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|i| {
            let (padded, kernel) = (size[i] + 2 * self.padding[i], self.kernel[i]);
            assert!(padded >= kernel, "a window of {kernel} pixels does not fit into a picture of {padded}");
            assert!(2 * self.padding[i] <= kernel, "padding of more than half of a window of {kernel} pixels");
            (padded - kernel) / self.stride[i] + 1
        })
    }
}

impl PoolOptions {
    fn strided<B: Backend>(&self, x: Tensor<B, 4>, outside: f32) -> Strided<B> {
        let [.., h, w] = x.dims();
        Strided::new(x, self.output_size([h, w]), self.kernel, self.stride, self.padding, outside)
    }
}

pub(super) fn forward<B: Backend>(x: FloatTensor<B>, options: PoolOptions) -> FloatTensor<B> {
    let x = options.strided(float::<B, 4>(x), f32::NEG_INFINITY);
    let largest = strided::pixels(options.kernel).map(|(row, column)| x.at(row, column)).reduce(Tensor::max_pair);
    primitive(largest.expect("a window has at least one pixel"))
}

pub(super) fn backward<B: Backend>(
    x: FloatTensor<B>,
    output: FloatTensor<B>,
    grad: FloatTensor<B>,
    options: PoolOptions,
) -> FloatTensor<B> {
    let (output, grad) = (float::<B, 4>(output), float::<B, 4>(grad));
    let zeros = float::<B, 4>(x.clone()).zeros_like();
    let x = options.strided(float::<B, 4>(x), f32::NEG_INFINITY);
    let mut dx = options.strided(zeros, 0.0);
    let mut open: Option<Tensor<B, 4, Bool>> = None;
    for (row, column) in strided::pixels(options.kernel) {
        let differs = x.at(row, column).not_equal(output.clone());
        // Of equal numbers the first counts.
        let passed = match &open {
            Some(open) => differs.clone().bool_or(open.clone().bool_not()),
            None => differs.clone(),
        };
        dx.add_at(row, column, grad.clone().mask_fill(passed, 0));
        open = Some(match open {
            Some(open) => open.bool_and(differs),
            None => differs,
        });
    }
    primitive(dx.image())
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    options: PoolOptions,
) -> FloatTensor<Autodiff<B, C>> {
    type Kept<B> = ([FloatTensor<B>; 2], PoolOptions);
    let backward = |([x, output], options): Kept<B>, grad, _| [Some(B::max_pool_backward(x, output, grad, options))];
    recorded::<B, C, _, 1>([x], backward, |[x], keep| {
        let output = B::max_pool(x.clone(), options);
        (output.clone(), keep.then_some(([x, output], options)))
    })
}
