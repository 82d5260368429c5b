//! The GPT-2 model. Paper: "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019). Reference:
//! transformers' `models/gpt2/modeling_gpt2.py`.

use burn::tensor::{DType, FloatDType, Int, Tensor};
use grove_backend::Backend;
use grove_layers::{
    Activation, DecoderPass, Dropout, Embedding, KvCache, LayerNorm, LayerPass, Linear, feed_forward, join_heads,
    split_heads,
};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{Gpt2Config, published_names};
use crate::{CausalLm, Pretrained, PretrainedConfig, error::Result};

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
    /// Dropout of the embeddings.
    pub drop: Dropout,
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

impl<B: Backend> CausalLm<B> for Gpt2<B> {
    type Cache = Vec<KvCache<B>>;

    #[track_caller]
    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: Option<&mut Self::Cache>,
        key: Option<Key>,
    ) -> Tensor<B, 3> {
        let mut pass = DecoderPass::new(&ids, padding, cache, key);
        let x = self.wte.forward(ids) + self.wpe.forward(pass.positions()); // [b, t, n_embd]
        let mut x = self.drop.forward(x, pass.key("drop"));
        for (i, block) in self.h.iter().enumerate() {
            x = block.forward(x, &mut pass.layer(i));
        }
        self.ln_f.forward(x)
    }

    #[track_caller]
    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.lm_head.as_ref().unwrap_or(&self.wte).attend(hidden)
    }

    fn new_cache(&self, room: usize) -> Self::Cache {
        vec![KvCache::with_room(room); self.h.len()]
    }

    fn cache_bytes(&self, positions: usize, dtype: Option<FloatDType>) -> Option<usize> {
        let dtype = dtype.map_or(self.ln_f.weight.dtype(), DType::from);
        let windows = self.h.iter().map(|_| None);
        Some(KvCache::<B>::bytes(windows, positions, 2 * self.config.n_embd, dtype.size()))
    }

    fn with_dropout(mut self, rate: f64) -> Self {
        let (config, dropout) = (&mut self.config, Dropout::new(rate));
        (config.embd_pdrop, config.attn_pdrop, config.resid_pdrop) = (rate, rate, rate);
        self.drop = dropout;
        for Block { attn, mlp, .. } in &mut self.h {
            (attn.attn_dropout, attn.resid_dropout, mlp.dropout) = (dropout, dropout, dropout);
        }
        self
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn context(&self) -> Option<usize> {
        Some(self.config.n_positions)
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.config.eos_token_id.to_vec()
    }
}

/// Transformer block: attention and a feed-forward layer, each preceded by a layer norm and added to the residual
/// stream.
#[derive(Tree, Clone, Debug)]
pub struct Block<B: Backend, A = Attention<B>> {
    /// Layer norm before the attention.
    pub ln_1: LayerNorm<B>,
    /// Self-attention.
    pub attn: A,
    /// Layer norm before the feed-forward layer.
    pub ln_2: LayerNorm<B>,
    /// Feed-forward layer.
    pub mlp: Mlp<B>,
}

impl<B: Backend, A: SelfAttention<B>> Block<B, A> {
    /// Computes the block's output.
    ///
    /// # Shapes
    /// - x, output `[b, t, n_embd]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, pass: &mut LayerPass<'_, B>) -> Tensor<B, 3> {
        let x = x.clone() + self.attn.forward(self.ln_1.forward(x), pass);
        x.clone() + self.mlp.forward(self.ln_2.forward(x), pass.key("mlp"))
    }
}

/// Causal self-attention of a [`Block`].
pub trait SelfAttention<B: Backend>: Tree<B> {
    /// Computes the attention over the cached positions and those of `x`.
    ///
    /// # Shapes
    /// - x, output `[b, t, n_embd]`
    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, pass: &mut LayerPass<'_, B>) -> Tensor<B, 3>;
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
    /// Dropout of the attention weights.
    pub attn_dropout: Dropout,
    /// Dropout of the output.
    pub resid_dropout: Dropout,
}

impl<B: Backend> SelfAttention<B> for Attention<B> {
    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, pass: &mut LayerPass<'_, B>) -> Tensor<B, 3> {
        let [q, k, v] = split_heads(self.c_attn.forward(x), self.n_head); // each [b, n_head, t, head_dim]
        let y = pass.attend(q, k, v, self.scale, self.attn_dropout); // [b, n_head, t, head_dim]
        self.resid_dropout.forward(self.c_proj.forward(join_heads(y)), pass.key("attn"))
    }
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
    /// Dropout of the output.
    pub dropout: Dropout,
}

impl<B: Backend> Mlp<B> {
    /// Applies the layer. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - x, output `[b, t, n_embd]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, key: Option<Key>) -> Tensor<B, 3> {
        self.dropout.forward(feed_forward(x, &self.c_fc, self.activation, &self.c_proj), key)
    }
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
        let (n_embd, eps, std) = (config.n_embd, config.layer_norm_epsilon, config.initializer_range);
        let residual_std = std / (2.0 * config.n_layer as f64).sqrt();
        let resid_dropout = Dropout::new(config.resid_pdrop);
        let block = |i: usize| {
            let init = init.named("h").fold_in(i as u32);
            let (attn, mlp) = (init.named("attn"), init.named("mlp"));
            Block {
                ln_1: LayerNorm::new(n_embd, eps, &init),
                attn: Attention {
                    c_attn: Linear::normal(n_embd, 3 * n_embd, std, attn.named("c_attn")),
                    c_proj: Linear::normal(n_embd, n_embd, residual_std, attn.named("c_proj")),
                    n_head: config.n_head,
                    scale: config.attention_scale(i),
                    attn_dropout: Dropout::new(config.attn_pdrop),
                    resid_dropout,
                },
                ln_2: LayerNorm::new(n_embd, eps, &init),
                mlp: Mlp {
                    c_fc: Linear::normal(n_embd, config.inner(), std, mlp.named("c_fc")),
                    c_proj: Linear::normal(config.inner(), n_embd, residual_std, mlp.named("c_proj")),
                    activation,
                    dropout: resid_dropout,
                },
            }
        };
        Ok(Self {
            wte: Embedding::normal(config.vocab_size, n_embd, std, init.named("wte")),
            wpe: Embedding::normal(config.n_positions, n_embd, std, init.named("wpe")),
            drop: Dropout::new(config.embd_pdrop),
            h: (0..config.n_layer).map(block).collect(),
            ln_f: LayerNorm::new(n_embd, eps, init),
            lm_head: (!config.tie_word_embeddings)
                .then(|| Embedding::normal(config.vocab_size, n_embd, std, init.named("lm_head"))),
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
