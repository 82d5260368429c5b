use burn::tensor::{Tensor, TensorPrimitive, activation::relu};
use grove_backend::{Backend, at_least_f32};
use grove_tree::{Array, Init, Tree};

/// Normalisation of each channel to mean 0 and variance 1 over a batch of pictures, then scaled and shifted (Ioffe and
/// Szegedy, 2015, <https://arxiv.org/abs/1502.03167>). Statistics and their names are those of PyTorch's `BatchNorm2d`.
///
/// Pictures of 16 bits are normalised in f32, and the running statistics are f32 then: a variance may be more than f16 holds,
/// and a tenth of a step is less than bf16 tells apart.
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
pub struct BatchNorm<B: Backend> {
    /// Scale, `[channels]`.
    pub weight: Array<B, 1>,
    /// Shift, `[channels]`.
    pub bias: Array<B, 1>,
    /// What inference takes for the mean, `[channels]`.
    #[tree(buffer)]
    pub running_mean: Array<B, 1>,
    /// What inference takes for the variance, `[channels]`; of training batches the unbiased one.
    #[tree(buffer)]
    pub running_var: Array<B, 1>,
    /// What is added to the variance.
    pub eps: f64,
    /// How far a training step moves the running statistics.
    pub momentum: f64,
}

impl<B: Backend> BatchNorm<B> {
    /// Scale 1, shift 0, running mean 0 and variance 1; PyTorch's eps 1e-5 and momentum 0.1.
    pub fn new(channels: usize, init: &Init<B>) -> Self {
        Self {
            weight: init.ones([channels]),
            bias: init.zeros([channels]),
            running_mean: init.zeros([channels]),
            running_var: init.ones([channels]),
            eps: 1e-5,
            momentum: 0.1,
        }
    }

    /// By the running statistics.
    ///
    /// # Shapes
    /// - input `[b, channels, h, w]`
    /// - output as the input
    pub fn forward(&self, x: Tensor<B, 4>) -> Tensor<B, 4> {
        self.forward_then(x, None, false)
    }

    /// What inference comes to: each channel is multiplied by the first, and the second is added. Both `[channels]`, in at
    /// least f32.
    pub fn scale_and_shift(&self) -> [Tensor<B, 1>; 2] {
        let mean = at_least_f32(self.running_mean.val());
        let of_mean = |x: Tensor<B, 1>| if x.dtype() == mean.dtype() { x } else { x.cast(mean.dtype()) };
        let deviation = of_mean(at_least_f32(self.running_var.val())).add_scalar(self.eps).sqrt();
        let scale = of_mean(self.weight.val()) / deviation;
        let shift = of_mean(self.bias.val()) - mean.clone() * scale.clone();
        [scale, shift]
    }

    /// By the batch's own statistics; the successor's running ones have moved towards them. What is to be added and then
    /// rectified, as in a residual network, is part of the same pass: `relu(normal + residual)`.
    ///
    /// # Shapes
    /// - input and residual `[b, channels, h, w]`
    /// - output as the input
    ///
    /// # Panics
    /// If there is only one number of each channel, which has no variance.
    pub fn train(&self, x: Tensor<B, 4>, residual: Option<Tensor<B, 4>>, rectify: bool) -> (Tensor<B, 4>, Self) {
        let [b, _, h, w] = x.dims();
        let count = b * h * w;
        assert!(count > 1, "batch normalisation of one number a channel: train with more than one picture at a time");
        let inputs = [x.into_primitive(), self.weight.val().into_primitive(), self.bias.val().into_primitive()];
        let residual = residual.map(|residual| residual.into_primitive().tensor());
        let normed = B::batch_norm(inputs.map(TensorPrimitive::tensor), residual, rectify, self.eps);
        let float = |x| Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(x));
        let moved = |running: &Array<B, 1>, new: Tensor<B, 1>| {
            let running = at_least_f32(running.val());
            let new = if new.dtype() == running.dtype() { new } else { new.cast(running.dtype()) };
            Array::new(running * (1.0 - self.momentum) + new * self.momentum)
        };
        let unbiased = float(normed.variance) * (count as f64 / (count - 1) as f64);
        let successor = Self {
            running_mean: moved(&self.running_mean, float(normed.mean)),
            running_var: moved(&self.running_var, unbiased),
            ..self.clone()
        };
        (Tensor::from_primitive(TensorPrimitive::Float(normed.output)), successor)
    }

    /// [`forward`](Self::forward), and what a residual network does then.
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
