use burn::tensor::Tensor;
use grove_backend::{Backend, KeyRanges, matmul, ops};
use grove_layers::{
    Activation, AttentionMask, LayerNorm, Linear, attend, drop_path, dropout, feed_forward, join_heads, layer_scale,
    named_key, to_heads,
};
use grove_tree::{Array, Init, Key, Tree};

use super::VitConfig;
use crate::error::Result;

/// Pre-norm transformer block: attention and a feed-forward layer, each preceded by a layer norm and added to the
/// residual stream.
#[derive(Tree, Clone, Debug)]
pub struct VitBlock<B: Backend> {
    /// Layer norm before the attention.
    pub norm1: LayerNorm<B>,
    /// Self-attention.
    pub attention: VitAttention<B>,
    /// Layer scale of the attention's output, `[hidden_size]`; `None` for no layer scale.
    pub scale1: Option<Array<B, 1>>,
    /// Layer norm before the feed-forward layer.
    pub norm2: LayerNorm<B>,
    /// Feed-forward layer.
    pub mlp: VitMlp<B>,
    /// Layer scale of the feed-forward layer's output, `[hidden_size]`; `None` for no layer scale.
    pub scale2: Option<Array<B, 1>>,
}

/// Multi-head self-attention; each token attends to all tokens.
#[derive(Tree, Clone, Debug)]
pub struct VitAttention<B: Backend> {
    /// Query projection, `[hidden_size, hidden_size]`.
    pub query: Linear<B>,
    /// Key projection, `[hidden_size, hidden_size]`.
    pub key: Linear<B>,
    /// Value projection, `[hidden_size, hidden_size]`.
    pub value: Linear<B>,
    /// Output projection, `[hidden_size, hidden_size]`.
    pub output: Linear<B>,
    /// Number of heads.
    pub n_head: usize,
}

/// Feed-forward layer, optionally gated.
#[derive(Tree, Clone, Debug)]
pub struct VitMlp<B: Backend> {
    /// Gate projection, `[hidden_size, intermediate_size]`; `None` if the layer is not gated.
    pub gate: Option<Linear<B>>,
    /// First linear layer, `[hidden_size, intermediate_size]`. Its output is multiplied by the activated gate, if there
    /// is one.
    pub up: Linear<B>,
    /// Second linear layer, `[intermediate_size, hidden_size]`.
    pub down: Linear<B>,
    /// Activation of the gate if there is one, else of the first linear layer.
    #[tree(static)]
    pub activation: Activation,
}

impl<B: Backend> VitBlock<B> {
    pub(super) fn new(config: &VitConfig, init: &Init<B>) -> Result<Self> {
        let (n, inner, std, eps) =
            (config.hidden_size, config.intermediate_size, config.initializer_range, config.layer_norm_eps);
        let projection = |name: &str| {
            let linear = Linear::normal(n, n, std, &init.named("attention").named(name));
            Linear { bias: linear.bias.filter(|_| config.qkv_bias), ..linear }
        };
        let layer = |inputs: usize, outputs: usize, name: &str| {
            Linear::normal(inputs, outputs, std, &init.named("mlp").named(name))
        };
        let scale = || config.layerscale_value.map(|value| init.full([n], value));
        Ok(Self {
            norm1: LayerNorm::new(n, eps, init),
            attention: VitAttention {
                query: projection("query"),
                key: projection("key"),
                value: projection("value"),
                output: Linear::normal(n, n, std, &init.named("attention").named("output")),
                n_head: config.num_attention_heads,
            },
            scale1: scale(),
            norm2: LayerNorm::new(n, eps, init),
            mlp: VitMlp {
                gate: config.swiglu.then(|| layer(n, inner, "gate")),
                up: layer(n, inner, "up"),
                down: layer(inner, n, "down"),
                activation: config.activation()?,
            },
            scale2: scale(),
        })
    }

    /// Computes the block's output, `[b, t, hidden_size]`. `rate` is the stochastic-depth rate.
    pub(super) fn forward(&self, x: Tensor<B, 3>, rate: f64, config: &VitConfig, key: Option<Key>) -> Tensor<B, 3> {
        let attended = self.attention.forward(self.norm1.forward(x.clone()), config, named_key(key, "attention"));
        let x = x + drop_path(layer_scale(attended, self.scale1.as_ref()), rate, named_key(key, "drop_path1"));
        let y = self.mlp.forward(self.norm2.forward(x.clone()), config, named_key(key, "mlp"));
        x + drop_path(layer_scale(y, self.scale2.as_ref()), rate, named_key(key, "drop_path2"))
    }
}

impl<B: Backend> VitAttention<B> {
    /// Applies a projection and splits its output into heads: `[b, t, n]` to `[b, n_head, t, head_dim]`.
    fn heads(&self, layer: &Linear<B>, x: &Tensor<B, 3>) -> Tensor<B, 4> {
        to_heads(layer.forward(x.clone()), self.n_head)
    }

    fn scale(&self) -> f64 {
        let [_, n] = self.query.weight.shape();
        1.0 / ((n / self.n_head) as f64).sqrt()
    }

    fn forward(&self, x: Tensor<B, 3>, config: &VitConfig, key: Option<Key>) -> Tensor<B, 3> {
        let attended = attend(
            self.heads(&self.query, &x),
            self.heads(&self.key, &x),
            self.heads(&self.value, &x),
            &AttentionMask::Full,
            self.scale(),
            named_key(key, "weights").map(|key| (config.attention_probs_dropout_prob, key)),
        );
        dropout(self.output.forward(join_heads(attended)), config.hidden_dropout_prob, named_key(key, "output"))
    }

    /// Returns the attention weights, `[b, n_head, t, t]`.
    pub(super) fn weights(&self, x: Tensor<B, 3>) -> Tensor<B, 4> {
        let scores = matmul(self.heads(&self.query, &x), self.heads(&self.key, &x).swap_dims(2, 3));
        ops::masked_softmax(scores, self.scale(), &KeyRanges::default())
    }
}

impl<B: Backend> VitMlp<B> {
    fn forward(&self, x: Tensor<B, 3>, config: &VitConfig, key: Option<Key>) -> Tensor<B, 3> {
        let y = match &self.gate {
            Some(gate) => self.down.forward(self.activation.forward(gate.forward(x.clone())) * self.up.forward(x)),
            None => feed_forward(x, &self.up, self.activation, &self.down),
        };
        dropout(y, config.hidden_dropout_prob, key)
    }
}
