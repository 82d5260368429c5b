use burn::tensor::{Tensor, TensorData, activation::relu};
use grove_backend::{Backend, at_least_f32, ops};
use grove_communicator::Communicator;
use grove_tree::{Array, Init, Path, Tree, layers_mut};

/// Batch normalisation over images (Ioffe and Szegedy, 2015, <https://arxiv.org/abs/1502.03167>): normalises each
/// channel to mean 0 and variance 1 over the batch, then scales and shifts it. Statistics and their names are those
/// of PyTorch's `BatchNorm2d`.
///
/// f16 and bf16 images are normalised in f32, and their running statistics are f32: a variance may exceed the range
/// of f16, and an update by `momentum` of a step may be below the resolution of bf16.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::BatchNorm;
/// use grove_tree::{Init, Key};
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let norm = BatchNorm::<B>::new(3, &Init::new(Key::new(0), &device));
/// let x = Tensor::ones([2, 3, 4, 4], &device) * 5.0;
/// let (y, norm) = norm.train(x, None, false);                 // by the batch's own statistics
/// assert_eq!(y.max().into_scalar(), 0.0);
/// assert_eq!(norm.running_mean.val().max().into_scalar(), 0.5);  // the successor has moved a tenth of the way
/// ```
#[derive(Tree, Clone, Debug)]
#[tree(layer)]
pub struct BatchNorm<B: Backend> {
    /// Scale, `[channels]`.
    pub weight: Array<B, 1>,
    /// Shift, `[channels]`.
    pub bias: Array<B, 1>,
    /// Mean used in inference, `[channels]`.
    #[tree(buffer)]
    pub running_mean: Array<B, 1>,
    /// Variance used in inference, `[channels]`. Training updates it with the unbiased variance.
    #[tree(buffer)]
    pub running_var: Array<B, 1>,
    /// Added to the variance for numerical stability.
    pub eps: f64,
    /// Weight of the batch's statistics in the update of the running statistics: `running * (1 - momentum) + batch *
    /// momentum`.
    pub momentum: f64,
    /// Ranks over all of whose images the batch's statistics are taken; see [`sync_batch_norm`].
    #[tree(static)]
    pub ranks: Option<Communicator>,
}

/// A batch without a variance.
const ONE_NUMBER: &str = "batch normalisation of one number a channel: train with more than one image at a time";

impl<B: Backend> BatchNorm<B> {
    /// Creates a layer with scale 1, shift 0, running mean 0 and running variance 1; eps 1e-5 and momentum 0.1 as in
    /// PyTorch.
    pub fn new(channels: usize, init: &Init<B>) -> Self {
        Self {
            weight: init.ones([channels]),
            bias: init.zeros([channels]),
            running_mean: init.zeros([channels]),
            running_var: init.ones([channels]),
            eps: 1e-5,
            momentum: 0.1,
            ranks: None,
        }
    }

    /// Normalises by the running statistics.
    ///
    /// # Shapes
    /// - input `[b, channels, h, w]`
    /// - output as the input
    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.forward_then(x, None, false)
    }

    /// Returns scale and shift of the inference pass, `y = x * scale + shift`, each `[channels]` and in at least f32.
    pub fn scale_and_shift(&self) -> [Tensor<B, 1>; 2] {
        let mean = at_least_f32(self.running_mean.val());
        let of_mean = |x: Tensor<B, 1>| if x.dtype() == mean.dtype() { x } else { x.cast(mean.dtype()) };
        let deviation = of_mean(at_least_f32(self.running_var.val())).add_scalar(self.eps).sqrt();
        let scale = of_mean(self.weight.val()) / deviation;
        let shift = of_mean(self.bias.val()) - mean.clone() * scale.clone();
        [scale, shift]
    }

    /// Normalises by the batch's own statistics, and returns the output and a layer with updated running statistics.
    /// `residual`, if `Some`, is added to the output, and `rectify` applies a ReLU after it: `relu(norm(x) +
    /// residual)`. Both are part of the same pass.
    ///
    /// # Shapes
    /// - input and residual `[b, channels, h, w]`
    /// - output as the input
    ///
    /// # Panics
    /// If there is only one value per channel, which has no variance.
    pub fn train(&self, x: Tensor<B, 4>, residual: Option<Tensor<B, 4>>, rectify: bool) -> (Tensor<B, 4>, Self) {
        if let Some(ranks) = self.ranks.as_ref().filter(|ranks| ranks.is_shared()) {
            return self.train_on_ranks(x, residual, rectify, ranks);
        }
        let [b, _, h, w] = x.dims();
        let count = b * h * w;
        assert!(count > 1, "{ONE_NUMBER}");
        let options = ops::BatchNorm { relu: rectify, eps: self.eps };
        let normed = ops::batch_norm(x, self.weight.val(), self.bias.val(), residual, options);
        let unbiased = normed.variance * (count as f64 / (count - 1) as f64);
        (normed.output, self.successor(normed.mean, unbiased))
    }

    /// The layer with running statistics that have moved towards a batch's mean and unbiased variance.
    fn successor(&self, mean: Tensor<B, 1>, variance: Tensor<B, 1>) -> Self {
        let moved = |running: &Array<B, 1>, new: Tensor<B, 1>| {
            let running = at_least_f32(running.val());
            let new = if new.dtype() == running.dtype() { new } else { new.cast(running.dtype()) };
            Array::new(running * (1.0 - self.momentum) + new * self.momentum)
        };
        Self {
            running_mean: moved(&self.running_mean, mean),
            running_var: moved(&self.running_var, variance),
            ..self.clone()
        }
    }

    /// [`train`](Self::train) by the statistics of the images of all ranks. Ranks may have different numbers of images.
    fn train_on_ranks(
        &self,
        x: Tensor<B, 4>,
        residual: Option<Tensor<B, 4>>,
        rectify: bool,
        ranks: &Communicator,
    ) -> (Tensor<B, 4>, Self) {
        let (dtype, x) = (x.dtype(), at_least_f32(x));
        let of_x = |x: Tensor<B, 1>, dtype| if x.dtype() == dtype { x } else { x.cast(dtype) };
        let ([b, c, h, w], wide) = (x.dims(), x.dtype());
        let all_reduce = |x: Tensor<B, 1>| ops::all_reduce_wide(x, "batch statistics", ranks);
        let own = Tensor::from_data(TensorData::from([(b * h * w) as f32]), (&x.device(), wide));
        // In a program the number of other ranks' images is that of each run, so that it is an array.
        let count = all_reduce(own);
        if !B::LAZY && !B::FUSES {
            let count = count.clone().into_data().iter::<f64>().next();
            assert!(count > Some(1.0), "{ONE_NUMBER}");
        }
        let count = count.expand([c]);
        let sums = |x: Tensor<B, 4>| all_reduce(x.sum_dim(3).sum_dim(2).sum_dim(0).reshape([c])) / count.clone();
        let mean = sums(x.clone());
        let centred = x - mean.clone().reshape([1, c, 1, 1]);
        let variance = sums(centred.clone().powi_scalar(2));
        let scale = of_x(self.weight.val(), wide) / variance.clone().add_scalar(self.eps).sqrt();
        let y = centred * scale.reshape([1, c, 1, 1]) + of_x(self.bias.val(), wide).reshape([1, c, 1, 1]);
        let y = match residual {
            Some(residual) => y + at_least_f32(residual),
            None => y,
        };
        let y = if rectify { relu(y) } else { y };
        let y = if y.dtype() == dtype { y } else { y.cast(dtype) };
        // No gradient flows through running statistics.
        let unbiased = variance * (count.clone() / count.sub_scalar(1.0));
        (y, self.successor(mean.detach(), unbiased.detach()))
    }

    /// [`forward`](Self::forward), then the optional addition of `residual`, then a ReLU if `rectify` is true.
    pub fn forward_then(&self, x: Tensor<B, 4>, residual: Option<Tensor<B, 4>>, rectify: bool) -> Tensor<B, 4> {
        let (dtype, x) = (x.dtype(), at_least_f32(x));
        let [scale, shift] = self.scale_and_shift().map(|row| {
            let row = if row.dtype() == x.dtype() { row } else { row.cast(x.dtype()) };
            row.reshape([1, self.weight.shape()[0], 1, 1])
        });
        let y = x * scale + shift;
        let y = match residual {
            Some(residual) => y + at_least_f32(residual),
            None => y,
        };
        let y = if rectify { relu(y) } else { y };
        if y.dtype() == dtype { y } else { y.cast(dtype) }
    }
}

/// The model with every [`BatchNorm`] normalising by the images of all ranks in training, as PyTorch's `SyncBatchNorm`: on n
/// ranks with a part of the batch each, it trains as on one with the whole. `grove_train::fit` does it for its own ranks. One
/// rank makes layers that normalise by their own images again.
pub fn sync_batch_norm<B: Backend, M: Tree<B>>(mut model: M, ranks: &Communicator) -> M {
    layers_mut::<B, M, BatchNorm<B>>(&mut model, |_: &Path, norm| {
        norm.ranks = ranks.is_shared().then(|| ranks.clone())
    });
    model
}
