//! The ViT model. Papers: "An Image is Worth 16x16 Words" (Dosovitskiy et al., 2020), "DINOv2" (Oquab et al., 2023),
//! "Vision Transformers Need Registers" (Darcet et al., 2023). References: transformers' `models/vit/modeling_vit.py`
//! and the counterparts in `dinov2` and `dinov2_with_registers`, timm's `vision_transformer.py`, torchvision's
//! `models/vision_transformer.py`.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{
    Activation, AttentionMask, Dropout, LayerNorm, Linear, attend, drop_path, feed_forward, join_heads, layer_scale,
    loss, mean_of_axis, named_key, part_key, to_heads,
};
use grove_tree::{Array, Init, Key, Tree};
use grove_weights::NameMap;
use serde_json::{Map, Value};

use super::{Pooling, VitConfig, VitEmbeddings, published_names};
use crate::{Pretrained, PretrainedConfig, error::Result};

/// ViT or DINOv2 with an optional classification head.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_models::{Pretrained, Vit, VitConfig};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let sizes = VitConfig { hidden_size: 16, num_hidden_layers: 2, num_attention_heads: 2, ..VitConfig::default() };
/// let config = VitConfig { intermediate_size: 32, image_size: [32, 32], patch_size: 8, ..sizes }.with_labels(["cat", "dog"]);
/// let model = Vit::<B>::init(&config, Key::new(0), &device)?;
/// assert_eq!(model.forward(Tensor::ones([4, 3, 32, 32], &device), None).dims(), [4, 2]); // logits
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
pub struct Vit<B: Backend> {
    /// Embeddings of the image patches.
    pub embeddings: VitEmbeddings<B>,
    /// Transformer blocks, from first to last.
    pub blocks: Vec<VitBlock<B>>,
    /// Final layer norm, of the last states or of their mean; see [`Pooling`].
    pub norm: LayerNorm<B>,
    /// Classification head, `[pooled_size, classes]`; `None` if the configuration has no labels.
    pub head: Option<Linear<B>>,
    /// Configuration.
    #[tree(static)]
    pub config: VitConfig,
}

/// Features of images.
#[derive(Clone, Debug)]
pub struct Features<B: Backend> {
    /// Last states, `[b, tokens, hidden_size]`; see [`Vit::forward_features`].
    pub last: Tensor<B, 3>,
    /// Pooled features, `[b, pooled_size]`: the input of the head.
    pub pooled: Tensor<B, 2>,
}

impl<B: Backend> Vit<B> {
    /// Returns the logits of the classes, or the pooled features if the model has no head. Dropout is applied if a
    /// `key` is given.
    ///
    /// # Shapes
    /// - pixels `[b, num_channels, h, w]`, normalised as in training, of any floating-point dtype. For sizes other than
    ///   `image_size`, the position embeddings are interpolated. Partial patches at the right and bottom edges are
    ///   ignored.
    /// - output `[b, classes]`, in the weights' dtype
    ///
    /// # Panics
    /// If an image is smaller than a patch.
    #[track_caller]
    pub fn forward(&self, pixels: Tensor<B, 4>, key: Option<Key>) -> Tensor<B, 2> {
        self.forward_head(self.forward_features(pixels, key))
    }

    /// Computes the last states: the class token, the registers, and the patches in row-major order. They are
    /// normalised, except with [`Pooling::MeanThenNorm`]. Pixels and key are as in [`forward`](Self::forward).
    ///
    /// # Shapes
    /// - pixels `[b, num_channels, h, w]`
    /// - output `[b, tokens, hidden_size]`
    #[track_caller]
    pub fn forward_features(&self, pixels: Tensor<B, 4>, key: Option<Key>) -> Tensor<B, 3> {
        let x = self.embeddings.forward(pixels, named_key(key, "embeddings"));
        let key = named_key(key, "blocks");
        // `states` would keep the previous state alive.
        let x = self.blocks.iter().enumerate().fold(x, |x, (i, block)| block.forward(x, part_key(key, i)));
        if self.config.pooling == Pooling::MeanThenNorm { x } else { self.norm.forward(x) }
    }

    /// Applies pooling and the head, if there is one, to the last states.
    ///
    /// # Shapes
    /// - x `[b, tokens, hidden_size]`
    /// - output `[b, classes]`, or `[b, pooled_size]` without a head
    #[track_caller]
    pub fn forward_head(&self, x: Tensor<B, 3>) -> Tensor<B, 2> {
        let pooled = self.pool(x);
        match &self.head {
            Some(head) => head.forward(pooled),
            None => pooled,
        }
    }

    /// Returns the last states and the pooled features. Pixels are as in [`forward`](Self::forward).
    #[track_caller]
    pub fn features(&self, pixels: Tensor<B, 4>) -> Features<B> {
        let last = self.forward_features(pixels, None);
        Features { pooled: self.pool(last.clone()), last }
    }

    /// Iterates over the hidden states, each `[b, tokens, hidden_size]`: the embeddings, then the output of each block.
    /// States are computed lazily. Pixels and key are as in [`forward`](Self::forward).
    #[track_caller]
    pub fn states(&self, pixels: Tensor<B, 4>, key: Option<Key>) -> impl Iterator<Item = Tensor<B, 3>> + '_ {
        let x = self.embeddings.forward(pixels, named_key(key, "embeddings"));
        let key = named_key(key, "blocks");
        let mut blocks = self.blocks.iter().enumerate();
        std::iter::successors(Some(x), move |x| {
            blocks.next().map(|(i, block)| block.forward(x.clone(), part_key(key, i)))
        })
    }

    /// Computes the mean negative log-likelihood, in nats, of each image's class, `[b]`. Dropout is applied if a `key`
    /// is given.
    #[track_caller]
    pub fn loss(&self, pixels: Tensor<B, 4>, labels: Tensor<B, 1, Int>, key: Option<Key>) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(pixels, key), labels)
    }

    /// Computes the head's input: `[b, tokens, hidden_size]` to `[b, pooled_size]`.
    #[track_caller]
    fn pool(&self, x: Tensor<B, 3>) -> Tensor<B, 2> {
        let ([b, t, n], prefix) = (x.dims(), self.config.prefix_tokens());
        let class = |x: Tensor<B, 3>| x.narrow(1, 0, 1).reshape([b, n]); // [b, 1, n] to [b, n]
        let mean = |x: Tensor<B, 3>| mean_of_axis(x.narrow(1, prefix, t - prefix), 1).reshape([b, n]); // [b, 1, n] to [b, n]
        match self.config.pooling {
            Pooling::Class => class(x),
            Pooling::Mean => mean(x),
            Pooling::MeanThenNorm => self.norm.forward(mean(x)),
            Pooling::ClassAndMean => Tensor::cat(vec![class(x.clone()), mean(x)], 1), // [b, 2 n]
        }
    }

    /// Returns the model with a new head for other classes.
    #[must_use]
    pub fn with_new_head(self, labels: Vec<String>, key: Key) -> Self {
        let config = self.config.clone().with_labels(labels);
        let init = Init::new(key, &self.norm.weight.val().device());
        let (inputs, classes) = (config.pooled_size(), config.labels.len());
        let head = (classes > 0).then(|| Linear::normal(inputs, classes, config.initializer_range, &init));
        Self { head, config, ..self }
    }

    /// Returns the model for images of another size. The position embeddings are interpolated once and can then be
    /// trained.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the images are smaller than a patch.
    pub fn with_image_size(self, image_size: [usize; 2]) -> Result<Self> {
        let config = VitConfig { image_size, ..self.config };
        config.validate()?;
        let grid = config.grid();
        let pos_embed = Array::new(self.embeddings.resample_pos_embed(grid));
        Ok(Self { embeddings: VitEmbeddings { pos_embed, grid, ..self.embeddings }, config, ..self })
    }
}

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
    /// Stochastic-depth rate in training.
    pub drop_path: f64,
}

impl<B: Backend> VitBlock<B> {
    /// Computes the block's output. Dropout and stochastic depth are applied if a `key` is given.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, key: Option<Key>) -> Tensor<B, 3> {
        let y = self.attention.forward(self.norm1.forward(x.clone()), named_key(key, "attention"));
        let x = x + drop_path(layer_scale(y, self.scale1.as_ref()), self.drop_path, named_key(key, "drop_path1"));
        let y = self.mlp.forward(self.norm2.forward(x.clone()), named_key(key, "mlp"));
        x + drop_path(layer_scale(y, self.scale2.as_ref()), self.drop_path, named_key(key, "drop_path2"))
    }
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
    /// Factor by which attention scores are multiplied.
    pub scale: f64,
    /// Dropout of the attention weights.
    pub attn_drop: Dropout,
    /// Dropout of the output.
    pub proj_drop: Dropout,
}

impl<B: Backend> VitAttention<B> {
    /// Computes the attention. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, key: Option<Key>) -> Tensor<B, 3> {
        let [q, k, v] = self.heads([&self.query, &self.key, &self.value], x); // each [b, n_head, t, head_dim]
        let dropout = self.attn_drop.with_key(named_key(key, "weights"));
        let y = attend(q, k, v, &AttentionMask::Full, self.scale, dropout); // [b, n_head, t, head_dim]
        self.proj_drop.forward(self.output.forward(join_heads(y)), named_key(key, "output"))
    }

    /// Applies projections and splits their outputs into heads: `[b, t, hidden_size]` to `[b, n_head, t, head_dim]`.
    #[track_caller]
    pub(super) fn heads<const N: usize>(&self, projections: [&Linear<B>; N], x: Tensor<B, 3>) -> [Tensor<B, 4>; N] {
        projections.map(|projection| to_heads(projection.forward(x.clone()), self.n_head))
    }
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
    /// Dropout of the output.
    pub dropout: Dropout,
}

impl<B: Backend> VitMlp<B> {
    /// Applies the layer. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, key: Option<Key>) -> Tensor<B, 3> {
        let y = match &self.gate {
            Some(gate) => self.down.forward(self.activation.forward(gate.forward(x.clone())) * self.up.forward(x)),
            None => feed_forward(x, &self.up, self.activation, &self.down),
        };
        self.dropout.forward(y, key)
    }
}

impl<B: Backend> Pretrained<B> for Vit<B> {
    type Config = VitConfig;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// zero biases. The stochastic-depth rate increases linearly, from 0 in the first block to `drop_path_rate` in the
    /// last.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &VitConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let activation = config.activation()?;
        let (n, inner, eps, std) =
            (config.hidden_size, config.intermediate_size, config.layer_norm_eps, config.initializer_range);
        let (n_head, depth, classes) = (config.num_attention_heads, config.num_hidden_layers, config.labels.len());
        let dropout = Dropout::new(config.hidden_dropout_prob);
        let scale = || config.layerscale_value.map(|value| init.full([n], value));
        let block = |i: usize| {
            let init = init.named("blocks").fold_in(i as u32);
            let (attention, mlp) = (init.named("attention"), init.named("mlp"));
            let projection = |name: &str| {
                let linear = Linear::normal(n, n, std, attention.named(name));
                Linear { bias: linear.bias.filter(|_| config.qkv_bias), ..linear }
            };
            VitBlock {
                norm1: LayerNorm::new(n, eps, &init),
                attention: VitAttention {
                    query: projection("query"),
                    key: projection("key"),
                    value: projection("value"),
                    output: Linear::normal(n, n, std, attention.named("output")),
                    n_head,
                    scale: 1.0 / ((n / n_head) as f64).sqrt(),
                    attn_drop: Dropout::new(config.attention_probs_dropout_prob),
                    proj_drop: dropout,
                },
                scale1: scale(),
                norm2: LayerNorm::new(n, eps, &init),
                mlp: VitMlp {
                    gate: config.swiglu.then(|| Linear::normal(n, inner, std, mlp.named("gate"))),
                    up: Linear::normal(n, inner, std, mlp.named("up")),
                    down: Linear::normal(inner, n, std, mlp.named("down")),
                    activation,
                    dropout,
                },
                scale2: scale(),
                drop_path: config.drop_path_rate * i as f64 / (depth - 1).max(1) as f64,
            }
        };
        Ok(Self {
            embeddings: VitEmbeddings::new(config, &init.named("embeddings")),
            blocks: (0..depth).map(block).collect(),
            norm: LayerNorm::new(n, eps, init),
            head: (classes > 0).then(|| Linear::normal(config.pooled_size(), classes, std, init.named("head"))),
            config: config.clone(),
        })
    }

    fn config(&self) -> &VitConfig {
        &self.config
    }

    fn published_names(config: &VitConfig) -> NameMap {
        published_names(config)
    }

    fn published_config(&self) -> Result<Map<String, Value>> {
        self.config.to_json()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn dropout_follows_its_key() {
        let config = VitConfig { hidden_size: 16, num_hidden_layers: 3, num_attention_heads: 2, ..Default::default() };
        let config = VitConfig { intermediate_size: 8, image_size: [8, 8], patch_size: 4, num_channels: 1, ..config };
        let rates: [fn(&mut VitConfig); 3] = [
            |config| config.hidden_dropout_prob = 0.2,
            |config| config.attention_probs_dropout_prob = 0.2,
            |config| config.drop_path_rate = 0.5,
        ];
        for set in rates {
            let mut config = VitConfig { initializer_range: 0.5, ..config.clone() };
            set(&mut config);
            let model = Vit::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
            let pixels = Key::new(1).normal::<Flex, 4>([5, 1, 8, 8], &Default::default());
            let found = |key: Option<u64>| model.forward(pixels.clone(), key.map(Key::new)).into_data();
            assert_eq!(found(Some(1)), found(Some(1)));
            assert_ne!(found(Some(1)), found(Some(2)));
            assert_ne!(found(Some(1)), found(None));
        }
    }
}
