use burn::tensor::{Tensor, module};
use grove_backend::{Backend, matmul};
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
