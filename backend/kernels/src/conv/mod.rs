//! Convolutions of images as products of matrices of which one is never whole in memory: its columns, what the kernel
//! covers at each place, are laid out some places and channels at a time, in the order in which the tiles read them.

mod correlate;
mod direct;
mod finish;
mod in_place;
mod input;
mod pack;
#[cfg(target_arch = "x86_64")]
mod planes;
mod product;
mod sampling;
#[cfg(test)]
mod tests;
mod turn;
mod weight;
mod winograd;

use correlate::Correlation;
use finish::Finish;
pub use input::conv2d_backward_input;
use sampling::Sampling;
pub use weight::conv2d_backward_weight;

/// The sizes of a two-dimensional convolution.
#[derive(Clone, Copy, Debug)]
pub struct Conv2d {
    /// Images.
    pub batch: usize,
    /// Channels of an image.
    pub channels_in: usize,
    /// Rows of an image.
    pub height: usize,
    /// Columns of an image.
    pub width: usize,
    /// Channels of an output.
    pub channels_out: usize,
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Places from one window to the next.
    pub stride: [usize; 2],
    /// Zeros on each side of an image.
    pub padding: [usize; 2],
    /// Places from one element of a window to the next.
    pub dilation: [usize; 2],
    /// Parts into which the channels of inputs and outputs are cut, each of which sees only its counterpart.
    pub groups: usize,
}

/// What is done with each output of a convolution: `relu(scale * y + shift + residual)`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Epilogue<'a> {
    /// A factor for each channel.
    pub scale: Option<&'a [f32]>,
    /// A summand for each channel.
    pub shift: Option<&'a [f32]>,
    /// A summand for each output.
    pub residual: Option<&'a [f32]>,
    /// Negative results become 0.
    pub relu: bool,
}

impl Conv2d {
    /// Rows and columns of an output; 0 where the kernel does not fit into the image.
    pub fn output(&self) -> [usize; 2] {
        [0, 1].map(|i| {
            let size = [self.height, self.width][i] + 2 * self.padding[i];
            let extent = self.dilation[i] * (self.kernel[i].max(1) - 1) + 1;
            if self.kernel[i] == 0 || size < extent { 0 } else { (size - extent) / self.stride[i] + 1 }
        })
    }

    /// Elements of inputs, weights and outputs.
    fn elements(&self) -> [usize; 3] {
        let [rows, columns] = self.output();
        [
            self.batch * self.channels_in * self.height * self.width,
            self.channels_out * self.depth(),
            self.batch * self.channels_out * rows * columns,
        ]
    }

    /// Weights of an output's channel.
    fn depth(&self) -> usize {
        self.channels_in / self.groups * self.kernel[0] * self.kernel[1]
    }

    /// Where each element of the kernel finds its factor.
    fn sampling(&self) -> Sampling {
        let Self { kernel, padding, dilation, .. } = *self;
        let place = |i: usize, at: usize| (at * dilation[i]) as isize - padding[i] as isize;
        let taps = (0..kernel[0] * kernel[1]).map(|tap| [place(0, tap / kernel[1]), place(1, tap % kernel[1])]);
        Sampling::new([self.height, self.width], self.output(), self.stride, taps.collect())
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

/// A convolution of `x`, `[batch, channels_in, height, width]`, with `weight`, `[channels_out, channels_in / groups,
/// kernel..]`, and what is done with its results: `[batch, channels_out, output..]`.
///
/// # Panics
/// If the sizes do not fit each other.
pub fn conv2d(x: &[f32], weight: &[f32], conv: &Conv2d, epilogue: Epilogue<'_>) -> Vec<f32> {
    conv.check(Some(x.len()), Some(weight.len()), None);
    for values in [epilogue.scale, epilogue.shift].into_iter().flatten() {
        assert_eq!(values.len(), conv.channels_out, "a scale or shift of other channels");
    }
    assert!(
        epilogue.residual.is_none_or(|residual| residual.len() == conv.elements()[2]),
        "a residual of another size"
    );
    let correlation = Correlation {
        batch: conv.batch,
        groups: conv.groups,
        channels: conv.channels_in / conv.groups,
        rows: conv.channels_out / conv.groups,
        sampling: conv.sampling(),
        matrix: weight,
    };
    correlation.run(x, &Finish::new(epilogue, conv.channels_out))
}
