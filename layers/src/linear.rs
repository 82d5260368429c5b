use burn::tensor::{Tensor, module};
use grove_backend::{Backend, matmul};
use grove_tree::{Array, Init, Key, Tree, cast};

use crate::LowRank;

/// An affine map of the last axis, `y = x W + b`, to which a change of low rank may be added.
#[derive(Tree, Clone, Debug)]
pub struct Linear<B: Backend> {
    /// `[in, out]`, which is the layout of GPT-2's files; PyTorch's own `nn.Linear` has `[out, in]`.
    pub weight: Array<B, 2>,
    /// `[out]`.
    pub bias: Option<Array<B, 1>>,
    /// What is trained in place of the weight; see [`adapted`](Self::adapted).
    pub low_rank: Option<LowRank<B>>,
}

impl<B: Backend> Linear<B> {
    /// A map by its weight, `[in, out]`, and its bias, `[out]`.
    pub fn new(weight: Array<B, 2>, bias: Option<Array<B, 1>>) -> Self {
        Self { weight, bias, low_rank: None }
    }

    /// Weights normally distributed with a standard deviation, and a bias of zeros.
    pub fn normal(inputs: usize, outputs: usize, std: f64, init: &Init<B>) -> Self {
        let weight = init.named("weight").normal([inputs, outputs], std);
        Self::new(weight, Some(init.named("bias").zeros([outputs])))
    }

    /// The same map with a change of a rank added to it, at first none; see [`LowRank::new`].
    ///
    /// # Panics
    /// If the weight is absent.
    pub fn adapted(self, rank: usize, alpha: f64, key: Key) -> Self {
        let [inputs, outputs] = self.weight.shape();
        let init = Init::new(key, &self.weight.val().device());
        let low_rank = LowRank::new(inputs, outputs, rank, alpha, &init);
        Self { low_rank: Some(cast(low_rank, self.weight.dtype().into())), ..self }
    }

    /// The same map with its change, where there is one, in the weight.
    pub fn merged(self) -> Self {
        match self.low_rank {
            Some(change) => Self::new(Array::new(self.weight.val() + change.matrix()), self.bias),
            None => self,
        }
    }

    /// # Shapes
    /// - input `[..., in]`
    /// - output `[..., out]`
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        match &self.low_rank {
            Some(change) => self.affine(x.clone()) + change.forward(x),
            None => self.affine(x),
        }
    }

    fn affine<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        let (weight, bias) = (self.weight.val(), self.bias.as_ref().map(Array::val));
        let (mut shape, [inputs, outputs]) = (x.dims(), weight.dims());
        if B::FUSES_VECTORS_WRONGLY && (outputs == 1 || shape[..D - 1].ends_with(&[1])) {
            let y = matmul(x.reshape([-1, inputs as i32]), weight);
            shape[D - 1] = outputs;
            return bias.map_or(y.clone(), |bias| y + bias.unsqueeze()).reshape(shape);
        }
        module::linear(x, weight, bias)
    }
}
