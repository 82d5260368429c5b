//! The GPT-2 model. Paper: "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019). Reference:
//! transformers' `models/gpt2/modeling_gpt2.py`.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{
    Activation, AttentionMask, Embedding, KvCache, LayerNorm, Linear, attend, dropout, feed_forward, join_heads,
    part_key, part_keys, split_heads,
};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{Gpt2Config, published_names};
use crate::{
    CausalLm, Pretrained, PretrainedConfig,
    error::Result,
    generation::{cached_position_ids, layer_masks},
};

/// GPT-2 with its language-modelling head.
///
/// ```
/// use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// let gpt2 = Gpt2::<B>::init(&config, Key::new(0), &Default::default())?;
/// assert_eq!((gpt2.h.len(), gpt2.vocab_size(), gpt2.context()), (1, 16, Some(32)));
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
pub struct Gpt2<B: Backend> {
    /// Token embedding, `[vocab_size, n_embd]`.
    pub wte: Embedding<B>,
    /// Position embedding, `[n_positions, n_embd]`.
    pub wpe: Embedding<B>,
    /// Transformer blocks.
    pub h: Vec<Block<B>>,
    /// Final layer norm.
    pub ln_f: LayerNorm<B>,
    /// Output layer, `[vocab_size, n_embd]`; `None` if it is tied to the token embedding.
    pub lm_head: Option<Embedding<B>>,
    /// Configuration.
    #[tree(static)]
    pub config: Gpt2Config,
}

/// Transformer block: attention and a feed-forward layer, each preceded by a layer norm and added to the residual
/// stream.
#[derive(Tree, Clone, Debug)]
pub struct Block<B: Backend> {
    /// Layer norm before the attention.
    pub ln_1: LayerNorm<B>,
    /// Self-attention.
    pub attn: Attention<B>,
    /// Layer norm before the feed-forward layer.
    pub ln_2: LayerNorm<B>,
    /// Feed-forward layer.
    pub mlp: Mlp<B>,
}

/// Causal multi-head self-attention.
#[derive(Tree, Clone, Debug)]
pub struct Attention<B: Backend> {
    /// Fused projection to queries, keys and values, `[n_embd, 3 n_embd]`.
    pub c_attn: Linear<B>,
    /// Output projection, `[n_embd, n_embd]`.
    pub c_proj: Linear<B>,
    /// Number of heads.
    pub n_head: usize,
    /// Factor by which attention scores are multiplied.
    pub scale: f64,
}

/// Feed-forward layer.
#[derive(Tree, Clone, Debug)]
pub struct Mlp<B: Backend> {
    /// First linear layer, `[n_embd, n_inner]`.
    pub c_fc: Linear<B>,
    /// Second linear layer, `[n_inner, n_embd]`.
    pub c_proj: Linear<B>,
    /// Activation between the two linear layers.
    #[tree(static)]
    pub activation: Activation,
}

impl<B: Backend> Pretrained<B> for Gpt2<B> {
    type Config = Gpt2Config;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// divided by `sqrt(2 n_layer)` for the projections into the residual stream, and zero biases.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &Gpt2Config, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let activation = config.activation()?;
        let (n_embd, std) = (config.n_embd, config.initializer_range);
        let residual_std = std / (2.0 * config.n_layer as f64).sqrt();
        let block = |i: usize| {
            let init = init.named("h").fold_in(i as u32);
            let (attn, mlp) = (init.named("attn"), init.named("mlp"));
            let mut scale =
                if config.scale_attn_weights { 1.0 / ((n_embd / config.n_head) as f64).sqrt() } else { 1.0 };
            if config.scale_attn_by_inverse_layer_idx {
                scale /= (i + 1) as f64;
            }
            Block {
                ln_1: LayerNorm::new(n_embd, config.layer_norm_epsilon, &init),
                attn: Attention {
                    c_attn: Linear::normal(n_embd, 3 * n_embd, std, &attn.named("c_attn")),
                    c_proj: Linear::normal(n_embd, n_embd, residual_std, &attn.named("c_proj")),
                    n_head: config.n_head,
                    scale,
                },
                ln_2: LayerNorm::new(n_embd, config.layer_norm_epsilon, &init),
                mlp: Mlp {
                    c_fc: Linear::normal(n_embd, config.inner(), std, &mlp.named("c_fc")),
                    c_proj: Linear::normal(config.inner(), n_embd, residual_std, &mlp.named("c_proj")),
                    activation,
                },
            }
        };
        Ok(Self {
            wte: Embedding::normal(config.vocab_size, n_embd, std, &init.named("wte")),
            wpe: Embedding::normal(config.n_positions, n_embd, std, &init.named("wpe")),
            h: (0..config.n_layer).map(block).collect(),
            ln_f: LayerNorm::new(n_embd, config.layer_norm_epsilon, init),
            lm_head: (!config.tie_word_embeddings)
                .then(|| Embedding::normal(config.vocab_size, n_embd, std, &init.named("lm_head"))),
            config: config.clone(),
        })
    }

    fn config(&self) -> &Gpt2Config {
        &self.config
    }

    fn published_names(config: &Gpt2Config) -> NameMap {
        published_names(config)
    }
}

impl<B: Backend> CausalLm<B> for Gpt2<B> {
    type Cache = Vec<KvCache<B>>;

    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: Option<&mut Vec<KvCache<B>>>,
        key: Option<Key>,
    ) -> Tensor<B, 3> {
        let (t, device) = (ids.dims()[1], ids.device());
        let mask = layer_masks(&[None], ids.dims(), cache.as_deref(), padding, &device).remove(0);
        let positions = cached_position_ids(cache.as_deref(), t, padding, &device);

        let x = self.wte.forward(ids) + self.wpe.forward(positions); // [b, t, n_embd]
        let mut x = dropout(x, self.config.embd_pdrop, part_key(key, 0));
        let mut caches = cache.into_iter().flatten();
        for (i, block) in self.h.iter().enumerate() {
            x = block.forward(x, &mask, caches.next(), &self.config, part_key(key, 1 + i));
        }
        self.ln_f.forward(x)
    }

    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.lm_head.as_ref().unwrap_or(&self.wte).attend(hidden)
    }

    fn new_cache(&self, room: usize) -> Vec<KvCache<B>> {
        vec![KvCache::with_room(room); self.h.len()]
    }

    fn cache_bytes(&self, positions: usize) -> Option<usize> {
        let windows = self.h.iter().map(|_| None);
        Some(KvCache::<B>::bytes(windows, positions, 2 * self.config.n_embd, self.ln_f.weight.dtype().size()))
    }

    fn with_dropout(mut self, rate: f64) -> Self {
        let config = &mut self.config;
        (config.embd_pdrop, config.attn_pdrop, config.resid_pdrop) = (rate, rate, rate);
        self
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn context(&self) -> Option<usize> {
        Some(self.config.n_positions)
    }

    fn device(&self) -> B::Device {
        self.wte.weight.val().device()
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.config.eos_token_id.to_vec()
    }
}

impl<B: Backend> Block<B> {
    /// Computes the block's output. If there is a cache, `x` holds the positions that follow the cached ones, and their
    /// keys and values are appended to the cache. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - x, output `[b, t, n_embd]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        mask: &AttentionMask<B>,
        cache: Option<&mut KvCache<B>>,
        config: &Gpt2Config,
        key: Option<Key>,
    ) -> Tensor<B, 3> {
        let [key_weights, key_attn, key_mlp] = part_keys(key);
        let weights = key_weights.map(|key| (config.attn_pdrop, key));
        let y = self.attn.forward(self.ln_1.forward(x.clone()), mask, cache, weights);
        let x = x + dropout(y, config.resid_pdrop, key_attn);
        let y = self.mlp.forward(self.ln_2.forward(x.clone()));
        x + dropout(y, config.resid_pdrop, key_mlp)
    }
}

impl<B: Backend> Attention<B> {
    /// Computes the attention of [`Block::forward`]. `weights` is the dropout rate of the attention weights, with its
    /// key.
    ///
    /// # Shapes
    /// - x, output `[b, t, n_embd]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        mask: &AttentionMask<B>,
        cache: Option<&mut KvCache<B>>,
        weights: Option<(f64, Key)>,
    ) -> Tensor<B, 3> {
        let [q, k, v] = split_heads(self.c_attn.forward(x), self.n_head); // each [b, n_head, t, head_dim]
        let [k, v] = match cache {
            Some(cache) => cache.update(k, v),
            None => [k, v],
        };
        let y = attend(q, k, v, mask, self.scale, weights); // [b, n_head, t, head_dim]
        self.c_proj.forward(join_heads(y))
    }
}

impl<B: Backend> Mlp<B> {
    /// Applies the layer.
    ///
    /// # Shapes
    /// - x, output `[b, t, n_embd]`
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        feed_forward(x, &self.c_fc, self.activation, &self.c_proj)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;
    use grove_tree::{count_params, leaves};

    #[test]
    fn published_sizes_have_the_published_numbers_of_parameters() {
        // Counted by transformers: `sum(p.numel() for p in GPT2LMHeadModel(config).parameters())`.
        let known = [
            ("gpt2", 124_439_808),
            ("gpt2-medium", 354_823_168),
            ("gpt2-large", 774_030_080),
            ("gpt2-xl", 1_557_611_200),
        ];
        for (name, count) in known {
            let skeleton = Gpt2::<Flex>::skeleton(&Gpt2Config::preset(name).unwrap()).unwrap();
            assert_eq!(count_params(&skeleton), count, "{name}");
        }
    }

    #[test]
    fn initial_weights_are_as_published() {
        let config = Gpt2Config { n_embd: 64, n_layer: 2, n_head: 4, vocab_size: 500, ..Gpt2Config::default() };
        let model = Gpt2::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
        for (path, leaf) in leaves(&model) {
            let values: Vec<f64> = leaf.into_data().unwrap().iter::<f64>().collect();
            let mean = values.iter().sum::<f64>() / values.len() as f64;
            let std = (values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64).sqrt();
            let (expected_mean, expected_std) = match &*path {
                path if path.contains("ln_") && path.ends_with("weight") => (1.0, 0.0),
                path if path.ends_with("bias") => (0.0, 0.0),
                path if path.ends_with("c_proj.weight") => (0.0, 0.02 / 2.0),
                _ => (0.0, 0.02),
            };
            assert!((mean - expected_mean).abs() < 2e-3, "{path}: mean {mean}");
            assert!((std - expected_std).abs() <= 0.05 * expected_std, "{path}: standard deviation {std}");
        }
    }

    #[test]
    fn dropout_follows_its_key() {
        let config = Gpt2Config { n_embd: 16, n_layer: 1, n_head: 2, vocab_size: 11, ..Gpt2Config::default() };
        let model = Gpt2::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
        let ids = || Tensor::from_ints([[1, 2, 3], [4, 5, 6]], &Default::default());
        let logits = |key: Option<u64>| model.forward(ids(), key.map(Key::new)).to_data();
        assert_eq!(logits(Some(1)), logits(Some(1)));
        assert_ne!(logits(Some(1)), logits(Some(2)));
        assert_ne!(logits(Some(1)), logits(None));
    }
}
