use burn::tensor::Tensor;
use grove_backend::{Backend, KeyRanges, matmul, ops};
use grove_layers::mean_of_axis;

use super::{Pooling, Vit, VitAttention};

/// Computes the attention rollout (Abnar and Zuidema, 2020, <https://arxiv.org/abs/2005.00928>): the contribution of
/// each input token to each output token after all blocks. The rollout is the product over the blocks of half the mean
/// of the heads plus half the identity. The identity accounts for the residual connection.
///
/// # Shapes
/// - attentions of each block, `[b, n_head, t, t]`; see [`Vit::attentions`](super::Vit::attentions)
/// - output `[b, t, t]`: rows sum to 1
///
/// # Panics
/// If there are no blocks.
pub fn attention_rollout<B: Backend>(attentions: &[Tensor<B, 4>]) -> Tensor<B, 3> {
    let step = |weights: &Tensor<B, 4>| {
        let [b, _, t, _] = weights.dims();
        let identity = Tensor::<B, 2>::eye(t, &weights.device()).cast(weights.dtype());
        let mean = mean_of_axis(weights.clone(), 1).reshape([b, t, t]);
        (mean + identity.unsqueeze()).mul_scalar(0.5)
    };
    let rollout = attentions.iter().map(step).reduce(|below, above| matmul(above, below));
    rollout.expect("a model has blocks")
}

impl<B: Backend> VitAttention<B> {
    /// Computes the attention weights.
    ///
    /// # Shapes
    /// - x `[b, t, hidden_size]`
    /// - output `[b, n_head, t, t]`
    pub fn weights(&self, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let [q, k] = self.heads([&self.query, &self.key], x); // each [b, n_head, t, head_dim]
        ops::masked_softmax(matmul(q, k.swap_dims(2, 3)), self.scale, &KeyRanges::default())
    }
}

impl<B: Backend> Vit<B> {
    /// Returns the attention weights of every block, each `[b, n_head, tokens, tokens]`. Pixels are as in
    /// [`forward`](Self::forward).
    pub fn attentions(&self, pixels: Tensor<B, 4>) -> Vec<Tensor<B, 4>> {
        let states = self.states(pixels, None);
        self.blocks.iter().zip(states).map(|(block, x)| block.attention.weights(block.norm1.forward(x))).collect()
    }

    /// Computes the contribution of each patch to the input of the head, by [`attention_rollout`].
    ///
    /// # Shapes
    /// - pixels `[b, c, h, w]`
    /// - output `[b, patches]`, in row-major order
    pub fn attention_map(&self, pixels: Tensor<B, 4>) -> Tensor<B, 2> {
        let rollout = attention_rollout(&self.attentions(pixels));
        let ([b, t, _], prefix) = (rollout.dims(), self.config.prefix_tokens());
        let patches = rollout.narrow(2, prefix, t - prefix);
        // The input of the head is the class token, or the mean of all patches.
        let rows = match self.config.pooling {
            Pooling::Class | Pooling::ClassAndMean => patches.narrow(1, 0, 1),
            Pooling::Mean | Pooling::MeanThenNorm => patches.narrow(1, prefix, t - prefix).mean_dim(1),
        };
        rows.reshape([b, t - prefix])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn two_blocks_by_hand() {
        let device = Default::default();
        let first = Tensor::<Flex, 4>::from_data([[[[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]]], &device);
        let second = Tensor::<Flex, 4>::from_data([[[[0.0, 1.0], [0.0, 1.0]]]], &device);
        // Means: [[.5, .5], [1, 0]] and [[0, 1], [0, 1]]; with the identity: [[.75, .25], [.5, .5]] and [[.5, .5], [0, 1]].
        let found = attention_rollout(&[first, second]).into_data();
        assert_eq!(found.to_vec::<f32>().unwrap(), [0.625, 0.375, 0.5, 0.5]);
    }
}
