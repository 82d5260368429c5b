//! Max pooling of images, composed of Burn operations that every backend has.

use burn::tensor::{Bool, Shape, Tensor};

use super::{
    Backend, Outcome, Residuals, Rules, Shapes, Values, Wanted, primitive,
    strided::{self, Strided},
};

/// Maximum of each window. Of equal maxima in a window, the first gets the gradient.
///
/// # Shapes
/// - input `[b, c, h, w]`
/// - output `[b, c, h', w']`; see [`output_size`](Self::output_size)
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Pool2dOptions {
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride in pixels.
    pub stride: [usize; 2],
    /// Padding on each side in pixels, at most half of the kernel. Padding pixels are never the maximum.
    pub padding: [usize; 2],
}

impl Pool2dOptions {
    /// Returns height and width of the output.
    ///
    /// # Panics
    /// If a window is larger than the padded image, or the padding larger than half of a window.
    pub fn output_size(&self, size: [usize; 2]) -> [usize; 2] {
        [0, 1].map(|i| {
            let (padded, kernel) = (size[i] + 2 * self.padding[i], self.kernel[i]);
            assert!(padded >= kernel, "a window of {kernel} pixels does not fit into an image of {padded}");
            assert!(2 * self.padding[i] <= kernel, "padding of more than half of a window of {kernel} pixels");
            (padded - kernel) / self.stride[i] + 1
        })
    }

    fn strided<B: Backend>(&self, x: Tensor<B, 4>, outside: f32) -> Strided<B> {
        let [.., h, w] = x.dims();
        Strided::new(x, self.output_size([h, w]), self.kernel, self.stride, self.padding, outside)
    }
}

/// Elementwise maximum. NaN propagates.
fn larger<B: Backend>(a: Tensor<B, 4>, b: Tensor<B, 4>) -> Tensor<B, 4> {
    let is_first = a.clone().greater_equal(b.clone()).bool_or(a.clone().is_nan());
    b.mask_where(is_first, a)
}

impl Rules for Pool2dOptions {
    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let [b, c, height, width] = inputs.dims("max_pool2d", 0);
        let [height, width] = self.output_size([height, width]);
        vec![Shape::from([b, c, height, width])]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([0]).outputs([0])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let x = self.strided(inputs.take_tensor::<4>(0), f32::NEG_INFINITY);
        let largest = strided::pixels(self.kernel).map(|(row, column)| x.at(row, column)).reduce(larger);
        Outcome::new([primitive(largest.expect("a window has at least one pixel"))])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let (x, output) = (residuals.take_tensor::<4>(0), residuals.take_tensor::<4>(1));
        let grad = grads.take_tensor::<4>(0);
        let mut dx = self.strided(x.zeros_like(), 0.0);
        let x = self.strided(x, f32::NEG_INFINITY);
        let mut open: Option<Tensor<B, 4, Bool>> = None;
        for (row, column) in strided::pixels(self.kernel) {
            // The first of equal maxima gets the gradient, and the first NaN, which is not equal to itself.
            let pixel = x.at(row, column);
            let differs = pixel.clone().not_equal(output.clone()).bool_and(pixel.is_nan().bool_not());
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
        Values::floats([primitive(dx.image())])
    }
}
