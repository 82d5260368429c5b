//! Max pooling, written with Burn's operations that every backend has: the defaults of [`Backend`].

use burn::tensor::{Bool, Tensor, ops::FloatTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Backend, custom::recorded, float, primitive};

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

/// A picture whose rows and columns are divided by the strides, so that what all windows have at one place is a part of it
/// without gaps.
struct Strided<B: Backend> {
    /// `[b, c, rows, stride, columns, stride]`.
    x: Tensor<B, 6>,
    options: PoolOptions,
    out: [usize; 2],
    size: [usize; 2],
}

impl<B: Backend> Strided<B> {
    fn new(x: Tensor<B, 4>, options: PoolOptions, outside: f32) -> Self {
        let [b, c, h, w] = x.dims();
        let out = options.output_size([h, w]);
        let ([down, right], [top, left]) = (options.stride, options.padding);
        // As far as a window may reach, in whole strides.
        let rows = [0, 1].map(|i| out[i] - 1 + options.kernel[i].div_ceil(options.stride[i]));
        let rows = [0, 1].map(|i| rows[i].max(([h, w][i] + options.padding[i]).div_ceil(options.stride[i])));
        let whole = Tensor::<B, 4>::full([b, c, rows[0] * down, rows[1] * right], outside, &x.device());
        let x = whole.cast(x.dtype()).slice_assign([0..b, 0..c, top..top + h, left..left + w], x);
        Self { x: x.reshape([b, c, rows[0], down, rows[1], right]), options, out, size: [h, w] }
    }

    fn ranges(&self, row: usize, column: usize) -> [std::ops::Range<usize>; 6] {
        let [b, c, ..] = self.x.dims();
        let [down, right] = self.options.stride;
        let (from, place) = ([row / down, column / right], [row % down, column % right]);
        let range = |i: usize| from[i]..from[i] + self.out[i];
        [0..b, 0..c, range(0), place[0]..place[0] + 1, range(1), place[1]..place[1] + 1]
    }

    /// What all windows have at one place, `[b, c, h_out, w_out]`.
    fn at(&self, row: usize, column: usize) -> Tensor<B, 4> {
        let [b, c, ..] = self.x.dims();
        self.x.clone().slice(self.ranges(row, column)).reshape([b, c, self.out[0], self.out[1]])
    }

    fn add_at(&mut self, row: usize, column: usize, y: Tensor<B, 4>) {
        let [b, c, ..] = self.x.dims();
        let sum = self.at(row, column) + y;
        let sum = sum.reshape([b, c, self.out[0], 1, self.out[1], 1]);
        self.x = self.x.clone().slice_assign(self.ranges(row, column), sum);
    }

    fn picture(self) -> Tensor<B, 4> {
        let [b, c, rows, down, columns, right] = self.x.dims();
        let ([h, w], [top, left]) = (self.size, self.options.padding);
        self.x.reshape([b, c, rows * down, columns * right]).narrow(2, top, h).narrow(3, left, w)
    }
}

fn places(kernel: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..kernel[0]).flat_map(move |row| (0..kernel[1]).map(move |column| (row, column)))
}

pub(super) fn forward<B: Backend>(x: FloatTensor<B>, options: PoolOptions) -> FloatTensor<B> {
    let x = Strided::new(float::<B, 4>(x), options, f32::NEG_INFINITY);
    let largest = places(options.kernel).map(|(row, column)| x.at(row, column)).reduce(Tensor::max_pair);
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
    let x = Strided::new(float::<B, 4>(x), options, f32::NEG_INFINITY);
    let mut dx = Strided::new(zeros, options, 0.0);
    let mut open: Option<Tensor<B, 4, Bool>> = None;
    for (row, column) in places(options.kernel) {
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
    primitive(dx.picture())
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
