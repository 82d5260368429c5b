use burn::tensor::{Tensor, module};
use grove_backend::Backend;
use grove_tree::{Array, Init, Tree};

/// An affine map of the last axis, `y = x W + b`.
#[derive(Tree, Clone, Debug)]
pub struct Linear<B: Backend> {
    /// `[in, out]`, which is the layout of GPT-2's files; PyTorch's own `nn.Linear` has `[out, in]`.
    pub weight: Array<B, 2>,
    /// `[out]`.
    pub bias: Option<Array<B, 1>>,
}

impl<B: Backend> Linear<B> {
    /// Weights normally distributed with a standard deviation, and a bias of zeros.
    pub fn normal(inputs: usize, outputs: usize, std: f64, init: &Init<B>) -> Self {
        Self {
            weight: init.named("weight").normal([inputs, outputs], std),
            bias: Some(init.named("bias").zeros([outputs])),
        }
    }

    /// # Shapes
    /// - input `[..., in]`
    /// - output `[..., out]`
    pub fn forward<const D: usize>(&self, x: Tensor<B, D>) -> Tensor<B, D> {
        module::linear(x, self.weight.val(), self.bias.as_ref().map(Array::val))
    }
}
