use burn::tensor::Tensor;
use grove_backend::{Backend, Conv2dOptions, Epilogue, ops};
use grove_tree::{Init, Tree};

use crate::{BatchNorm, Conv2d};

/// A convolution without a bias, followed by batch normalisation. Inference is a single fused operation on backends with a
/// kernel for it.
#[derive(Tree, Clone, Debug)]
pub struct ConvBn<B: Backend> {
    /// The convolution.
    pub conv: Conv2d<B>,
    /// The normalisation.
    pub norm: BatchNorm<B>,
}

impl<B: Backend> ConvBn<B> {
    /// Creates the convolution with [`Conv2d::kaiming`] and the normalisation with [`BatchNorm::new`].
    pub fn new(
        inputs: usize,
        outputs: usize,
        kernel: [usize; 2],
        options: Conv2dOptions,
        init: impl Into<Init<B>>,
    ) -> Self {
        let init = init.into();
        let conv = Conv2d::kaiming(inputs, outputs, kernel, options, &init.named("conv"));
        Self { conv, norm: BatchNorm::new(outputs, &init.named("norm")) }
    }

    /// Normalises with the running statistics: `relu(norm(conv(x)) + residual)`. The residual is added if it is `Some`, and
    /// the ReLU applied if `rectify` is true.
    ///
    /// # Shapes
    /// - input `[b, in, h, w]`
    /// - output and residual `[b, out, h', w']`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 4>, residual: Option<Tensor<B, 4>>, rectify: bool) -> Tensor<B, 4> {
        if self.conv.bias.is_some() {
            return self.norm.forward_then(self.conv.forward(x), residual, rectify);
        }
        let [scale, shift] = self.norm.scale_and_shift();
        let epilogue = Epilogue { scale, shift, residual, relu: rectify };
        ops::conv2d_fused(x, self.conv.weight.val(), epilogue, self.conv.options)
    }

    /// Normalises with the batch statistics. Returns the output and a layer with updated running statistics. See
    /// [`BatchNorm::train`].
    #[track_caller]
    pub fn train(&self, x: Tensor<B, 4>, residual: Option<Tensor<B, 4>>, rectify: bool) -> (Tensor<B, 4>, Self) {
        let (y, norm) = self.norm.train(self.conv.forward(x), residual, rectify);
        (y, Self { conv: self.conv.clone(), norm })
    }
}
