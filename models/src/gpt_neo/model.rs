//! The model. Black et al., "GPT-Neo: Large Scale Autoregressive Language Modeling with Mesh-Tensorflow" (2021).
//! Reference: transformers' `models/gpt_neo/modeling_gpt_neo.py`.

use burn::tensor::{DType, Int, Tensor};
use grove_backend::Backend;
use grove_layers::{Activation, AttentionMask, Embedding, KvCache, LayerNorm, Linear, attend, dropout, loss};
use grove_transform::eval_shape;
use grove_tree::{Init, Key, Tree};
use std::ops::Range;

use super::{AttentionKind, GptNeoConfig};
use crate::{error::Result, generation::position_ids, shifted::check_shifted};

/// A GPT-Neo with its language-modelling head, which is the token embedding.
#[derive(Tree, Clone, Debug)]
pub struct GptNeo<B: Backend> {
    /// Token embedding, `[vocab_size, hidden_size]`.
    pub wte: Embedding<B>,
    /// Position embedding, `[max_position_embeddings, hidden_size]`.
    pub wpe: Embedding<B>,
    /// Blocks.
    pub h: Vec<Block<B>>,
    /// Last layer norm.
    pub ln_f: LayerNorm<B>,
    /// Sizes and options.
    #[tree(static)]
    pub config: GptNeoConfig,
}

/// Attention and a feed-forward layer, each added to the residual stream.
#[derive(Tree, Clone, Debug)]
pub struct Block<B: Backend> {
    /// Norm before the attention.
    pub ln_1: LayerNorm<B>,
    /// The attention.
    pub attn: Attention<B>,
    /// Norm before the feed-forward layer.
    pub ln_2: LayerNorm<B>,
    /// The feed-forward layer.
    pub mlp: Mlp<B>,
}

/// Causal self-attention over all positions or a window. The scores are not scaled.
#[derive(Tree, Clone, Debug)]
pub struct Attention<B: Backend> {
    /// Queries, `[hidden_size, hidden_size]`.
    pub q_proj: Linear<B>,
    /// Keys.
    pub k_proj: Linear<B>,
    /// Values.
    pub v_proj: Linear<B>,
    /// Output.
    pub out_proj: Linear<B>,
    /// Number of heads.
    pub num_heads: usize,
    /// Attention window: the number of positions that a position attends to, including itself; `None` for all.
    pub window: Option<usize>,
}

/// The feed-forward layer.
#[derive(Tree, Clone, Debug)]
pub struct Mlp<B: Backend> {
    /// `[hidden_size, intermediate_size]`.
    pub c_fc: Linear<B>,
    /// `[intermediate_size, hidden_size]`.
    pub c_proj: Linear<B>,
    /// Activation between the two linear layers.
    #[tree(static)]
    pub activation: Activation,
}

/// The decoding state.
#[derive(Tree, Clone, Debug)]
pub struct GptNeoState<B: Backend> {
    /// The cache of each block.
    pub caches: Vec<KvCache<B>>,
}

/// Dropout rates and this part's key, while training.
type Dropping<'a> = Option<(&'a GptNeoConfig, Key)>;

/// Derives the key of a part; each part has its own.
fn part(dropping: Dropping<'_>, number: u32) -> Dropping<'_> {
    dropping.map(|(config, key)| (config, key.fold_in(number)))
}

impl<B: Backend> GptNeo<B> {
    /// A model with initial weights as published: normal with `initializer_range`, biases 0.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    pub fn new(config: &GptNeoConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let activation = config.activation()?;
        let (size, std, eps) = (config.hidden_size, config.initializer_range, config.layer_norm_epsilon);
        let block = |(i, kind): (usize, AttentionKind)| {
            let init = init.named("h").fold_in(i as u32);
            let (attn, mlp) = (init.named("attn"), init.named("mlp"));
            let plain = |name: &str| Linear { bias: None, ..Linear::normal(size, size, std, &attn.named(name)) };
            Block {
                ln_1: LayerNorm::new(size, eps, &init),
                attn: Attention {
                    q_proj: plain("q_proj"),
                    k_proj: plain("k_proj"),
                    v_proj: plain("v_proj"),
                    out_proj: Linear::normal(size, size, std, &attn.named("out_proj")),
                    num_heads: config.num_heads,
                    window: (kind == AttentionKind::Local).then_some(config.window_size),
                },
                ln_2: LayerNorm::new(size, eps, &init),
                mlp: Mlp {
                    c_fc: Linear::normal(size, config.inner(), std, &mlp.named("c_fc")),
                    c_proj: Linear::normal(config.inner(), size, std, &mlp.named("c_proj")),
                    activation,
                },
            }
        };
        Ok(Self {
            wte: Embedding::normal(config.vocab_size, size, std, &init.named("wte")),
            wpe: Embedding::normal(config.max_position_embeddings, size, std, &init.named("wpe")),
            h: config.kinds().take(config.num_layers).enumerate().map(block).collect(),
            ln_f: LayerNorm::new(size, eps, init),
            config: config.clone(),
        })
    }

    /// A model with initial weights; see [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn init(config: &GptNeoConfig, key: Key, device: &B::Device) -> Result<Self> {
        Self::new(config, &Init::new(key, device))
    }

    /// The model without weights: for counting, printing and loading.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn skeleton(config: &GptNeoConfig) -> Result<Self> {
        eval_shape(|init| Self::new(config, init))
    }

    /// Logits of the next token at each position.
    ///
    /// # Shapes
    /// - ids `[b, t]`, each in `0..vocab_size`, `t` at most `max_position_embeddings`
    /// - output `[b, t, vocab_size]`
    pub fn forward(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.train(ids, None)
    }

    /// As [`forward`](Self::forward), with dropout when a key is given.
    pub fn train(&self, ids: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 3> {
        let ([_, t], device) = (ids.dims(), ids.device());
        let dropping = key.map(|key| (&self.config, key));
        let x = self.embed(ids, 0, &[]); // [b, t, hidden_size]
        let mut x = dropout(x, self.config.embed_dropout, part(dropping, 0).map(|(_, key)| key));
        let masks = self.masks(t, |_| 0..t, &[], &device);
        for (i, (block, mask)) in self.h.iter().zip(&masks).enumerate() {
            x = block.forward(x, mask, part(dropping, 1 + i as u32));
        }
        self.wte.attend(self.ln_f.forward(x))
    }

    /// Mean negative log-likelihood, in nats, of each token after those before it. As in transformers, labels are not
    /// shifted by the caller: the label of a position is its own token, or -100 where it does not count.
    ///
    /// # Shapes
    /// - ids, labels `[b, t]` with `t` at least 2
    /// - output `[1]`
    ///
    /// # Panics
    /// If a row has one token, which has nothing before it, or ids and labels differ in shape.
    pub fn loss(&self, ids: Tensor<B, 2, Int>, labels: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        let [b, t] = ids.dims();
        check_shifted(ids.dims(), labels.dims());
        let logits = self.train(ids, key).slice([0..b, 0..t - 1]);
        let labels = labels.slice([0..b, 1..t]);
        let n = b * (t - 1);
        loss::cross_entropy(logits.reshape([n, self.config.vocab_size]), labels.reshape([n]))
    }

    /// Token and position embeddings, `[b, t, hidden_size]`, in the dtype that the model computes in, which is that of
    /// its norms.
    pub(super) fn embed(&self, ids: Tensor<B, 2, Int>, seen: usize, padding: &[usize]) -> Tensor<B, 3> {
        let positions = position_ids(seen, ids.dims()[1], padding, &ids.device());
        let dtype = self.ln_f.weight.dtype();
        self.wte.forward(ids).cast(dtype) + self.wpe.forward(positions).cast(dtype)
    }

    /// Each block's mask.
    pub(super) fn masks(
        &self,
        t: usize,
        keys: impl Fn(usize) -> Range<usize>,
        padding: &[usize],
        device: &B::Device,
    ) -> Vec<AttentionMask<B>> {
        let windows: Vec<Option<usize>> = self.h.iter().map(|block| block.attn.window).collect();
        AttentionMask::of_layers(&windows, t, keys, padding, device)
    }
}

impl<B: Backend> Block<B> {
    fn forward(&self, x: Tensor<B, 3>, mask: &AttentionMask<B>, dropping: Dropping<'_>) -> Tensor<B, 3> {
        let rate = dropping.map_or(0.0, |(config, _)| config.resid_dropout);
        let [key_attn, key_mlp] = [1, 2].map(|i| part(dropping, i).map(|(_, key)| key));
        let inputs = self.attn.project(self.ln_1.forward(x.clone()));
        let weights = part(dropping, 0).map(|(config, key)| (config.attention_dropout, key));
        let x = x + dropout(self.attn.gather(inputs, mask, weights), rate, key_attn);
        let y = self.mlp.forward(self.ln_2.forward(x.clone()));
        x + dropout(y, rate, key_mlp)
    }

    pub(super) fn decode(
        &self,
        x: Tensor<B, 3>,
        mask: &AttentionMask<B>,
        cache: KvCache<B>,
    ) -> (Tensor<B, 3>, KvCache<B>) {
        let [q, k, v] = self.attn.project(self.ln_1.forward(x.clone()));
        let (k, v, cache) = cache.append(k, v);
        let x = x + self.attn.gather([q, k, v], mask, None);
        let y = self.mlp.forward(self.ln_2.forward(x.clone()));
        (x + y, cache)
    }
}

impl<B: Backend> Attention<B> {
    /// `[b, t, hidden_size]` to queries, keys and values, each `[b, num_heads, t, head_dim]`.
    fn project(&self, x: Tensor<B, 3>) -> [Tensor<B, 4>; 3] {
        let [b, t, size] = x.dims();
        [&self.q_proj, &self.k_proj, &self.v_proj]
            .map(|map| map.forward(x.clone()).reshape([b, t, self.num_heads, size / self.num_heads]).swap_dims(1, 2))
    }

    /// Attention and the output projection, `[b, t, hidden_size]`. The scores are not scaled and would exceed the
    /// precision of 16 bits, so the inputs are converted to f32 first.
    fn gather(&self, inputs: [Tensor<B, 4>; 3], mask: &AttentionMask<B>, dropping: Option<(f64, Key)>) -> Tensor<B, 3> {
        let [b, num_heads, t, head_dim] = inputs[0].dims();
        let dtype = inputs[0].dtype();
        let [q, k, v] = inputs.map(|x| if dtype.size() < 4 { x.cast(DType::F32) } else { x });
        let y = attend(q, k, v, mask, 1.0, dropping);
        let y = if y.dtype() == dtype { y } else { y.cast(dtype) };
        self.out_proj.forward(y.swap_dims(1, 2).reshape([b, t, num_heads * head_dim]))
    }
}

impl<B: Backend> Mlp<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.c_proj.forward(self.activation.forward(self.c_fc.forward(x)))
    }
}
