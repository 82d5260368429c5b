use burn::tensor::Tensor;
use grove_backend::{Backend, Conv2dOptions, Epilogue, ops};
use grove_tree::{Init, Tree};

use crate::{Activation, BatchNorm, Conv2d};

/// The statistics by which the batch norms of a forward pass normalise.
#[derive(Debug)]
pub enum BatchStats<B: Backend> {
    /// The running statistics, for inference.
    Running,
    /// The batch's own statistics, for training. Collects the norms with updated running statistics, in order of use.
    Batch(Vec<BatchNorm<B>>),
}

impl<B: Backend> BatchStats<B> {
    /// Replaces the batch norms of a model by the collected ones. `norms` are the model's, in the order in which the pass
    /// used them.
    ///
    /// # Panics
    /// If `norms` are not as many as the pass used.
    pub fn update<'a>(self, norms: impl IntoIterator<Item = &'a mut BatchNorm<B>>) {
        let updated = match self {
            Self::Running => return,
            Self::Batch(updated) => updated,
        };
        let norms: Vec<_> = norms.into_iter().collect();
        assert_eq!(norms.len(), updated.len(), "the pass used another number of batch norms");
        norms.into_iter().zip(updated).for_each(|(norm, updated)| *norm = updated);
    }
}

/// A convolution without a bias, followed by batch normalisation. Inference is a single fused operation on backends with a
/// kernel for it.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::{Activation, BatchStats, ConvBn};
/// use grove_tree::{Init, Key};
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let mut layer = ConvBn::<B>::new(3, 8, [1, 1], Default::default(), &Init::new(Key::new(0), &device));
/// let x = Tensor::ones([2, 3, 4, 4], &device);
/// let y = layer.forward_act(x.clone(), Activation::Relu, &mut BatchStats::Running); // inference
/// assert_eq!(y.dims(), [2, 8, 4, 4]);
/// let mut stats = BatchStats::Batch(vec![]);
/// let y = layer.forward_act(x, Activation::Relu, &mut stats); // training
/// assert!(y.max().into_scalar() < 1e-3); // equal pixels have no variance
/// stats.update([&mut layer.norm]);
/// ```
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
        let conv = Conv2d::kaiming(inputs, outputs, kernel, options, init.named("conv"));
        Self { conv, norm: BatchNorm::new(outputs, init.named("norm")) }
    }

    /// Computes `norm(conv(x))`.
    ///
    /// # Shapes
    /// - input `[b, in, h, w]`
    /// - output `[b, out, h', w']`
    ///
    /// # Panics
    /// As [`BatchNorm::train`], with the batch's statistics.
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 4>, stats: &mut BatchStats<B>) -> Tensor<B, 4> {
        self.apply(x, None, Activation::Linear, stats)
    }

    /// Computes `activation(norm(conv(x)))`; see [`forward`](Self::forward). A ReLU is part of the fused operation.
    #[track_caller]
    pub fn forward_act(&self, x: Tensor<B, 4>, activation: Activation, stats: &mut BatchStats<B>) -> Tensor<B, 4> {
        self.apply(x, None, activation, stats)
    }

    /// Computes `activation(norm(conv(x)) + residual)`; see [`forward_act`](Self::forward_act).
    ///
    /// # Shapes
    /// - input `[b, in, h, w]`
    /// - residual, output `[b, out, h', w']`
    #[track_caller]
    pub fn forward_add_act(
        &self,
        x: Tensor<B, 4>,
        residual: Tensor<B, 4>,
        activation: Activation,
        stats: &mut BatchStats<B>,
    ) -> Tensor<B, 4> {
        self.apply(x, Some(residual), activation, stats)
    }

    #[track_caller]
    fn apply(
        &self,
        x: Tensor<B, 4>,
        residual: Option<Tensor<B, 4>>,
        activation: Activation,
        stats: &mut BatchStats<B>,
    ) -> Tensor<B, 4> {
        let relu = activation == Activation::Relu;
        let y = match stats {
            BatchStats::Batch(updated) => {
                let (y, norm) = self.norm.train(self.conv.forward(x), residual, relu);
                updated.push(norm);
                y
            }
            BatchStats::Running if self.conv.bias.is_some() => {
                self.norm.forward_then(self.conv.forward(x), residual, relu)
            }
            BatchStats::Running => {
                let [scale, shift] = self.norm.scale_and_shift();
                let epilogue = Epilogue { scale, shift, residual, relu };
                ops::conv2d_fused(x, self.conv.weight.val(), epilogue, self.conv.options)
            }
        };
        if relu { y } else { activation.forward(y) }
    }
}
