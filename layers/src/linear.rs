use burn::tensor::Tensor;
use grove_backend::{Backend, ops};
use grove_tree::{Array, Init, Key, Tree, cast};

use crate::Lora;

/// A linear layer, `y = x W + b` over the last axis, with an optional low-rank update (LoRA).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::Linear;
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// let linear = Linear::<B>::new(3, 2, Key::new(0)); // on the default device
/// assert_eq!(linear.forward(Tensor::<B, 2>::ones([4, 3], &Default::default())).dims(), [4, 2]);
/// ```
#[derive(Tree, Clone, Debug)]
#[tree(layer)]
pub struct Linear<B: Backend> {
    /// Weight, `[in, out]`, the layout of GPT-2's files. PyTorch's `nn.Linear` has `[out, in]`.
    pub weight: Array<B, 2>,
    /// Bias, `[out]`; `None` for a layer without a bias.
    pub bias: Option<Array<B, 1>>,
    /// Low-rank update, trained in place of the weight; `None` for a plain linear layer. See
    /// [`with_lora`](Self::with_lora).
    pub low_rank: Option<Lora<B>>,
}

impl<B: Backend> Linear<B> {
    /// Creates a layer with weight and bias uniform in `±1 / sqrt(inputs)`, as in PyTorch and Equinox. `init` is a key, or
    /// the [`Init`] of a part of a model.
    pub fn new(inputs: usize, outputs: usize, init: impl Into<Init<B>>) -> Self {
        let init = init.into();
        let bound = 1.0 / (inputs as f32).sqrt();
        let weight = init.named("weight").uniform([inputs, outputs], -bound, bound);
        Self::from_arrays(weight, Some(init.named("bias").uniform([outputs], -bound, bound)))
    }

    /// Creates a layer with normally distributed weights of standard deviation `std` and a zero bias.
    pub fn normal(inputs: usize, outputs: usize, std: f64, init: impl Into<Init<B>>) -> Self {
        let init = init.into();
        let weight = init.named("weight").normal([inputs, outputs], std);
        Self::from_arrays(weight, Some(init.named("bias").zeros([outputs])))
    }

    /// Creates a layer from a weight `[in, out]` and a bias `[out]`.
    pub fn from_arrays(weight: Array<B, 2>, bias: Option<Array<B, 1>>) -> Self {
        Self { weight, bias, low_rank: None }
    }

    /// Adds a low-rank update, initially zero; see [`Lora::new`].
    ///
    /// # Panics
    /// If the weight is absent.
    pub fn with_lora(self, rank: usize, alpha: f64, key: Key) -> Self {
        let [inputs, outputs] = self.weight.shape();
        let init = Init::new(key, &self.weight.val().device());
        let low_rank = Lora::new(inputs, outputs, rank, alpha, &init);
        Self { low_rank: Some(cast(low_rank, self.weight.dtype().into())), ..self }
    }

    /// Merges the low-rank update, if any, into the weight.
    pub fn merge_lora(self) -> Self {
        match self.low_rank {
            Some(change) => Self::from_arrays(Array::new(self.weight.val() + change.matrix()), self.bias),
            None => self,
        }
    }

    /// Applies the layer.
    ///
    /// # Shapes
    /// - input `[..., in]`
    /// - output `[..., out]`
    #[track_caller]
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let bias = self.bias.as_ref();
        match &self.low_rank {
            Some(change) => affine(x.clone(), &self.weight, bias) + change.forward(x),
            None => affine(x, &self.weight, bias),
        }
    }
}

/// `x W + b` over the last axis.
#[track_caller]
pub(crate) fn affine<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: &Array<B, 2>,
    bias: Option<&Array<B, 1>>,
) -> Tensor<B, D> {
    ops::linear(x, weight.val(), bias.map(Array::val))
}
