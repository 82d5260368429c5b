//! Convolutions of images as matrix products with implicit im2col: the column matrix is never materialised. Parts of it are
//! packed, a few output pixels and channels at a time, in the order in which the microkernels read them.

mod correlate;
mod correlation;
mod direct;
mod finish;
mod geometry;
mod half;
mod in_place;
mod input;
mod pack;
mod planes;
#[cfg(target_arch = "x86_64")]
mod pointwise;
mod product;
#[cfg(test)]
mod tests;
mod transpose;
mod weight;
mod winograd;

use correlation::Correlation;
use finish::Finish;
use geometry::Im2colGeometry;
pub use half::{conv2d_backward_input_bf16, conv2d_backward_weight_bf16, conv2d_half};
pub use input::conv2d_backward_input;
pub use weight::conv2d_backward_weight;

/// Sizes of a two-dimensional convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv2d {
    /// Batch size.
    pub batch: usize,
    /// Number of input channels.
    pub channels_in: usize,
    /// Height of an image.
    pub height: usize,
    /// Width of an image.
    pub width: usize,
    /// Number of output channels.
    pub channels_out: usize,
    /// Height and width of the kernel.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Rows and columns of zeros added on each side of an image.
    pub padding: [usize; 2],
    /// Vertical and horizontal dilation: the distance between kernel elements.
    pub dilation: [usize; 2],
    /// Number of groups of input and output channels. The outputs of a group depend only on the inputs of that group.
    pub groups: usize,
}

/// Epilogue of a convolution, applied to each output: `relu(scale * y + shift + residual)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a, T = f32> {
    /// Scale of each channel.
    pub scale: Option<&'a [f32]>,
    /// Shift of each channel.
    pub shift: Option<&'a [f32]>,
    /// Residual, added elementwise.
    pub residual: Option<&'a [T]>,
    /// If true, a ReLU is applied last.
    pub relu: bool,
}

impl<T> Epilogue<'_, T> {
    fn check(&self, conv: &Conv2d) {
        for values in [self.scale, self.shift].into_iter().flatten() {
            assert_eq!(values.len(), conv.channels_out, "a scale or shift of other channels");
        }
        assert!(
            self.residual.is_none_or(|residual| residual.len() == conv.elements()[2]),
            "a residual of another size"
        );
    }
}

impl Conv2d {
    /// Returns the height and width of the output; 0 if the kernel does not fit into the image.
    pub fn output(&self) -> [usize; 2] {
        [0, 1].map(|i| {
            let size = [self.height, self.width][i] + 2 * self.padding[i];
            let extent = self.dilation[i] * (self.kernel[i].max(1) - 1) + 1;
            if self.kernel[i] == 0 || size < extent { 0 } else { (size - extent) / self.stride[i] + 1 }
        })
    }

    /// Returns the numbers of elements of the input, the weight and the output.
    fn elements(&self) -> [usize; 3] {
        let [rows, columns] = self.output();
        [
            self.batch * self.channels_in * self.height * self.width,
            self.channels_out * self.depth(),
            self.batch * self.channels_out * rows * columns,
        ]
    }

    /// Returns the number of weights per output channel.
    fn depth(&self) -> usize {
        self.channels_in / self.groups * self.kernel[0] * self.kernel[1]
    }

    /// Returns the im2col geometry of the convolution.
    fn geometry(&self) -> Im2colGeometry {
        let Self { kernel, padding, dilation, .. } = *self;
        let pixel = |i: usize, at: usize| (at * dilation[i]) as isize - padding[i] as isize;
        let taps = (0..kernel[0] * kernel[1]).map(|tap| [pixel(0, tap / kernel[1]), pixel(1, tap % kernel[1])]);
        Im2colGeometry::new([self.height, self.width], self.output(), self.stride, taps.collect())
    }

    fn check(&self, x: Option<usize>, weight: Option<usize>, y: Option<usize>) {
        let Self { groups, stride, dilation, .. } = *self;
        assert!(
            groups > 0 && self.channels_in.is_multiple_of(groups) && self.channels_out.is_multiple_of(groups),
            "{groups} groups of {} and {} channels",
            self.channels_in,
            self.channels_out
        );
        assert!(stride.iter().chain(&dilation).all(|&step| step > 0), "a stride or dilation of 0");
        for (found, expected) in [x, weight, y].into_iter().zip(self.elements()) {
            assert!(found.is_none_or(|found| found == expected), "{found:?} elements, not {expected}: {self:?}");
        }
    }
}

/// Convolves `x`, `[batch, channels_in, height, width]`, with `weight`, `[channels_out, channels_in / groups, kernel..]`, and
/// applies the epilogue. Returns `[batch, channels_out, output..]`.
///
/// # Panics
/// If the sizes do not match.
pub fn conv2d(x: &[f32], weight: &[f32], conv: &Conv2d, epilogue: Epilogue<'_>) -> Vec<f32> {
    conv.check(Some(x.len()), Some(weight.len()), None);
    epilogue.check(conv);
    let correlation = Correlation {
        batch: conv.batch,
        groups: conv.groups,
        channels: conv.channels_in / conv.groups,
        rows: conv.channels_out / conv.groups,
        geometry: conv.geometry(),
        matrix: weight,
    };
    correlation.run(x, &Finish::new(epilogue, conv.channels_out))
}
