use burn::tensor::Tensor;
use grove_backend::{Backend, Conv2dOptions, ops};
use grove_tree::{Array, Init, Tree};

use crate::conv::inputs_per_group;

/// A 1-D convolution over sequences, as PyTorch's `nn.Conv1d`.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::{Conv1d, Conv1dOptions};
/// use grove_tree::{Init, Key};
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let options = Conv1dOptions { stride: 2, padding: 1, ..Default::default() };
/// let conv = Conv1d::<B>::new(80, 384, 3, options, &Init::new(Key::new(0), &device));
/// assert_eq!(conv.forward(Tensor::ones([1, 80, 100], &device)).dims(), [1, 384, 50]);
/// ```
#[derive(Tree, Clone, Debug)]
pub struct Conv1d<B: Backend> {
    /// Kernel, `[out, in / groups, kernel]`, as in PyTorch's files.
    pub weight: Array<B, 3>,
    /// Bias, `[out]`; `None` for a convolution without a bias.
    pub bias: Option<Array<B, 1>>,
    /// Stride, padding, dilation and groups.
    #[tree(static)]
    pub options: Conv1dOptions,
}

/// Options of a 1-D convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conv1dOptions {
    /// Distance between the starts of neighbouring windows.
    pub stride: usize,
    /// Number of zeros added to each end of a sequence.
    pub padding: usize,
    /// Distance between the positions within a window.
    pub dilation: usize,
    /// Number of groups of channels, each convolved separately.
    pub groups: usize,
}

impl Default for Conv1dOptions {
    fn default() -> Self {
        Self { stride: 1, padding: 0, dilation: 1, groups: 1 }
    }
}

impl<B: Backend> Conv1d<B> {
    /// Creates a convolution with weights and bias uniform in `±1 / sqrt(in / groups * kernel)`, PyTorch's default.
    ///
    /// # Panics
    /// If the groups do not divide the channels.
    pub fn new(inputs: usize, outputs: usize, kernel: usize, options: Conv1dOptions, init: impl Into<Init<B>>) -> Self {
        let (init, inputs) = (init.into(), inputs_per_group(inputs, outputs, options.groups));
        let bound = 1.0 / ((inputs * kernel) as f32).sqrt();
        Self {
            weight: init.named("weight").uniform([outputs, inputs, kernel], -bound, bound),
            bias: Some(init.named("bias").uniform([outputs], -bound, bound)),
            options,
        }
    }

    /// Applies the convolution.
    ///
    /// # Shapes
    /// - input `[b, in, t]`
    /// - output `[b, out, t']`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let Conv1dOptions { stride, padding, dilation, groups } = self.options;
        let options = Conv2dOptions { stride: [1, stride], padding: [0, padding], dilation: [1, dilation], groups };
        // A sequence is an image of height 1.
        let y = ops::conv2d(x.unsqueeze_dim::<4>(2), self.weight.val().unsqueeze_dim(2), options).squeeze_dim::<3>(2);
        match &self.bias {
            Some(bias) => y + bias.val().reshape([1, bias.shape()[0], 1]),
            None => y,
        }
    }
}
