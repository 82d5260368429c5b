use burn::tensor::Tensor;
use grove_backend::{Backend, Conv2dOptions, ops};
use grove_tree::{Array, Init, Tree};

/// A 2-D convolution over images.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Conv2dOptions;
/// use grove_layers::Conv2d;
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let halving = Conv2dOptions { stride: [2, 2], padding: [1, 1], ..Default::default() };
/// let conv = Conv2d::<B>::new(3, 8, [3, 3], halving, Key::new(0));
/// assert_eq!(conv.forward(Tensor::ones([1, 3, 32, 20], &device)).dims(), [1, 8, 16, 10]);
/// ```
#[derive(Tree, Clone, Debug)]
pub struct Conv2d<B: Backend> {
    /// Kernel, `[out, in / groups, kernel height, kernel width]`, as in PyTorch's files.
    pub weight: Array<B, 4>,
    /// Bias, `[out]`; `None` for a convolution without a bias.
    pub bias: Option<Array<B, 1>>,
    /// Stride, padding, dilation and groups.
    #[tree(static)]
    pub options: Conv2dOptions,
}

impl<B: Backend> Conv2d<B> {
    /// Creates a convolution with weights and bias uniform in `±1 / sqrt(in / groups * kernel height * kernel width)`, as in
    /// PyTorch and Equinox. `init` is a key, or the [`Init`] of a part of a model.
    ///
    /// # Panics
    /// If the groups do not divide the channels.
    pub fn new(
        inputs: usize,
        outputs: usize,
        kernel: [usize; 2],
        options: Conv2dOptions,
        init: impl Into<Init<B>>,
    ) -> Self {
        let (init, shape) = (init.into(), weight_shape(inputs, outputs, kernel, &options));
        let bound = 1.0 / (shape[1..].iter().product::<usize>() as f32).sqrt();
        Self {
            weight: init.named("weight").uniform(shape, -bound, bound),
            bias: Some(init.named("bias").uniform([outputs], -bound, bound)),
            options,
        }
    }

    /// Creates a convolution without a bias. Weights are normally distributed with the standard deviation that preserves
    /// the variance of gradients through a ReLU (He et al., 2015, <https://arxiv.org/abs/1502.01852>; PyTorch's
    /// `kaiming_normal_` with `fan_out`).
    ///
    /// # Panics
    /// If the groups do not divide the channels.
    pub fn kaiming(
        inputs: usize,
        outputs: usize,
        kernel: [usize; 2],
        options: Conv2dOptions,
        init: impl Into<Init<B>>,
    ) -> Self {
        let shape = weight_shape(inputs, outputs, kernel, &options);
        let [height, width] = kernel;
        // PyTorch's fan_out counts the outputs of all groups.
        let std = (2.0 / (outputs * height * width) as f64).sqrt();
        let weight = init.into().named("weight").normal(shape, std);
        Self { weight, bias: None, options }
    }

    /// Applies the convolution.
    ///
    /// # Shapes
    /// - input `[b, in, h, w]`
    /// - output `[b, out, h', w']`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        let y = ops::conv2d(x, self.weight.val(), self.options);
        match &self.bias {
            Some(bias) => y + bias.val().reshape([1, bias.shape()[0], 1, 1]),
            None => y,
        }
    }
}

/// Returns the shape of the weight, `[out, in / groups, kernel height, kernel width]`.
fn weight_shape(inputs: usize, outputs: usize, [height, width]: [usize; 2], options: &Conv2dOptions) -> [usize; 4] {
    [outputs, inputs_per_group(inputs, outputs, options.groups), height, width]
}

/// Returns the number of input channels of a group.
pub(crate) fn inputs_per_group(inputs: usize, outputs: usize, groups: usize) -> usize {
    assert!(
        inputs.is_multiple_of(groups) && outputs.is_multiple_of(groups),
        "the channels are not divisible into {groups} groups"
    );
    inputs / groups
}
