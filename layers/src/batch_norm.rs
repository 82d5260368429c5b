use burn::tensor::{Tensor, TensorData, activation::relu};
use grove_backend::{Backend, at_least_f32, ops, to_dtype};
use grove_communicator::Communicator;
use grove_tree::{Array, Init, Path, Tree, layers_mut};

/// Batch normalisation over images (Ioffe and Szegedy, 2015, <https://arxiv.org/abs/1502.03167>): normalises each channel
/// to mean 0 and variance 1 over the batch, then scales and shifts it. The statistics and their names are those of
/// PyTorch's `BatchNorm2d`.
///
/// f16 and bf16 images are normalised in f32, and the running statistics are always f32: a variance may exceed the range of
/// f16, and an update weighted by `momentum` may be below the resolution of bf16.
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
    /// Mean for inference, `[channels]`.
    #[tree(buffer)]
    pub running_mean: Array<B, 1>,
    /// Variance for inference, `[channels]`. Training updates it with the unbiased variance.
    #[tree(buffer)]
    pub running_var: Array<B, 1>,
    /// Added to the variance for numerical stability.
    pub eps: f64,
    /// Weight of the batch statistics in the update of the running statistics:
    /// `running * (1 - momentum) + batch * momentum`.
    pub momentum: f64,
    /// Ranks whose images the batch statistics cover; `None` for this rank alone. See [`sync_batch_norm`].
    #[tree(static)]
    pub ranks: Option<Communicator>,
}

/// Panic message for a batch with one value per channel, which has no variance.
const ONE_NUMBER: &str =
    "batch normalisation needs more than one value per channel: train with more than one image at a time";

impl<B: Backend> BatchNorm<B> {
    /// Creates a layer with scale 1, shift 0, running mean 0 and running variance 1. eps is 1e-5 and momentum 0.1, as in
    /// PyTorch.
    pub fn new(channels: usize, init: impl Into<Init<B>>) -> Self {
        let init = init.into();
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

    /// Normalises with the running statistics.
    ///
    /// # Shapes
    /// - input `[b, channels, h, w]`
    /// - output, the shape of the input
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.forward_then(x, None, false)
    }

    /// Returns scale and shift for inference, `y = x * scale + shift`, each `[channels]` and at least f32.
    #[track_caller]
    pub fn scale_and_shift(&self) -> [Tensor<B, 1>; 2] {
        let mean = at_least_f32(self.running_mean.val());
        let of_mean = |x: Tensor<B, 1>| to_dtype(x, mean.dtype());
        let deviation = of_mean(at_least_f32(self.running_var.val())).add_scalar(self.eps).sqrt();
        let scale = of_mean(self.weight.val()) / deviation;
        let shift = of_mean(self.bias.val()) - mean.clone() * scale.clone();
        [scale, shift]
    }

    /// Normalises with the batch statistics. Returns the output and a layer with updated running statistics. `residual`, if
    /// `Some`, is added to the output, and `rectify` applies a ReLU after the addition: `relu(norm(x) + residual)`. Both
    /// are part of the same pass.
    ///
    /// # Shapes
    /// - input and residual `[b, channels, h, w]`
    /// - output, the shape of the input
    ///
    /// # Panics
    /// If there is only one value per channel, because it has no variance.
    #[track_caller]
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

    /// Returns the layer with running statistics moved towards a batch's mean and unbiased variance.
    #[track_caller]
    fn successor(&self, mean: Tensor<B, 1>, variance: Tensor<B, 1>) -> Self {
        let moved = |running: &Array<B, 1>, new: Tensor<B, 1>| {
            let running = at_least_f32(running.val());
            let new = to_dtype(new, running.dtype());
            Array::new(running * (1.0 - self.momentum) + new * self.momentum)
        };
        Self {
            running_mean: moved(&self.running_mean, mean),
            running_var: moved(&self.running_var, variance),
            ..self.clone()
        }
    }

    /// [`train`](Self::train) with the batch statistics of all ranks. Ranks may have different numbers of images.
    #[track_caller]
    fn train_on_ranks(
        &self,
        x: Tensor<B, 4>,
        residual: Option<Tensor<B, 4>>,
        rectify: bool,
        ranks: &Communicator,
    ) -> (Tensor<B, 4>, Self) {
        let (dtype, x) = (x.dtype(), at_least_f32(x));
        let ([b, c, h, w], wide) = (x.dims(), x.dtype());
        let all_reduce = |x: Tensor<B, 1>| ops::all_reduce_wide(x, "batch statistics", ranks);
        let own = Tensor::from_data(TensorData::from([(b * h * w) as f32]), (&x.device(), wide));
        // The other ranks' image counts may change from run to run of a compiled program, so the total is an array.
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
        let scale = to_dtype(self.weight.val(), wide) / variance.clone().add_scalar(self.eps).sqrt();
        let y = centred * scale.reshape([1, c, 1, 1]) + to_dtype(self.bias.val(), wide).reshape([1, c, 1, 1]);
        let y = to_dtype(add_then(y, residual, rectify), dtype);
        // Running statistics get no gradient.
        let unbiased = variance * (count.clone() / count.sub_scalar(1.0));
        (y, self.successor(mean.detach(), unbiased.detach()))
    }

    /// Computes [`forward`](Self::forward), adds `residual` if it is `Some`, then applies a ReLU if `rectify` is true.
    #[track_caller]
    pub fn forward_then(&self, x: Tensor<B, 4>, residual: Option<Tensor<B, 4>>, rectify: bool) -> Tensor<B, 4> {
        let (dtype, x) = (x.dtype(), at_least_f32(x));
        let [scale, shift] = self.scale_and_shift().map(|row| {
            let row = to_dtype(row, x.dtype());
            row.reshape([1, self.weight.shape()[0], 1, 1])
        });
        to_dtype(add_then(x * scale + shift, residual, rectify), dtype)
    }
}

/// Adds `residual` if it is `Some`, then applies a ReLU if `rectify` is true.
#[track_caller]
fn add_then<B: Backend>(y: Tensor<B, 4>, residual: Option<Tensor<B, 4>>, rectify: bool) -> Tensor<B, 4> {
    let y = match residual {
        Some(residual) => y + at_least_f32(residual),
        None => y,
    };
    if rectify { relu(y) } else { y }
}

/// Returns the model with every [`BatchNorm`] using the batch statistics of all ranks in training, as PyTorch's
/// `SyncBatchNorm`. Training on n ranks with a part of the batch each is then equivalent to training on one rank with the
/// whole batch. `grove_train::fit` calls this function with its own ranks. A communicator of one rank restores per-rank
/// statistics.
pub fn sync_batch_norm<B: Backend, M: Tree<B>>(mut model: M, ranks: &Communicator) -> M {
    layers_mut::<B, M, BatchNorm<B>>(&mut model, |_: &Path, norm| {
        norm.ranks = ranks.is_shared().then(|| ranks.clone())
    });
    model
}
