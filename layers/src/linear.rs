use burn::tensor::{Tensor, TensorPrimitive};
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
        let primitive = |x: Tensor<B, 1>| x.into_primitive().tensor();
        let bias = self.bias.as_ref().map(|bias| primitive(bias.val()));
        let (x, weight) = (x.into_primitive().tensor(), self.weight.val().into_primitive().tensor());
        Tensor::from_primitive(TensorPrimitive::Float(B::affine(x, weight, bias)))
    }
}
