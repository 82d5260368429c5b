//! Sliding windows over images.

use burn::tensor::Tensor;
use std::ops::Range;

use super::Backend;

/// A padded image with rows and columns split by the stride, so that the values at one offset of all windows form a
/// contiguous slice.
pub(super) struct Strided<B: Backend> {
    /// `[b, c, rows, stride, columns, stride]`.
    x: Tensor<B, 6>,
    /// Number of windows, vertically and horizontally.
    out: [usize; 2],
    padding: [usize; 2],
    size: [usize; 2],
}

impl<B: Backend> Strided<B> {
    /// Pads an image `[b, c, h, w]` with the value `outside`. `reach` is the height and width of a window, and `out` the
    /// number of windows, vertically and horizontally.
    pub(super) fn new(
        x: Tensor<B, 4>,
        out: [usize; 2],
        reach: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        outside: f32,
    ) -> Self {
        let [b, c, h, w] = x.dims();
        let ([down, right], [top, left]) = (stride, padding);
        // Large enough for every window, in multiples of the stride.
        let rows = [0, 1].map(|i| out[i] - 1 + reach[i].div_ceil(stride[i]));
        let rows = [0, 1].map(|i| rows[i].max(([h, w][i] + padding[i]).div_ceil(stride[i])));
        let whole = Tensor::<B, 4>::full([b, c, rows[0] * down, rows[1] * right], outside, &x.device());
        let x = whole.cast(x.dtype()).slice_assign([0..b, 0..c, top..top + h, left..left + w], x);
        Self { x: x.reshape([b, c, rows[0], down, rows[1], right]), out, padding, size: [h, w] }
    }

    fn ranges(&self, row: usize, column: usize) -> [Range<usize>; 6] {
        let [b, c, _, down, _, right] = self.x.dims();
        let (from, place) = ([row / down, column / right], [row % down, column % right]);
        let range = |i: usize| from[i]..from[i] + self.out[i];
        [0..b, 0..c, range(0), place[0]..place[0] + 1, range(1), place[1]..place[1] + 1]
    }

    /// Values of all windows at one offset, `[b, c, h_out, w_out]`.
    pub(super) fn at(&self, row: usize, column: usize) -> Tensor<B, 4> {
        let [b, c, ..] = self.x.dims();
        self.x.clone().slice(self.ranges(row, column)).reshape([b, c, self.out[0], self.out[1]])
    }

    /// Adds to the values of all windows at one offset.
    pub(super) fn add_at(&mut self, row: usize, column: usize, y: Tensor<B, 4>) {
        let [b, c, ..] = self.x.dims();
        let sum = self.at(row, column) + y;
        let sum = sum.reshape([b, c, self.out[0], 1, self.out[1], 1]);
        self.x = self.x.clone().slice_assign(self.ranges(row, column), sum);
    }

    /// Returns the image without padding, `[b, c, h, w]`.
    pub(super) fn image(self) -> Tensor<B, 4> {
        let [b, c, rows, down, columns, right] = self.x.dims();
        let ([h, w], [top, left]) = (self.size, self.padding);
        self.x.reshape([b, c, rows * down, columns * right]).narrow(2, top, h).narrow(3, left, w)
    }
}

/// Offsets of a window's pixels, in row-major order.
pub(super) fn pixels(kernel: [usize; 2]) -> impl Iterator<Item = (usize, usize)> {
    (0..kernel[0]).flat_map(move |row| (0..kernel[1]).map(move |column| (row, column)))
}
