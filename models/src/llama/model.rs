//! The model. Papers: "LLaMA: Open and Efficient Foundation Language Models" (Touvron et al., 2023) and its successors.
//! Reference: transformers' `models/llama/modeling_llama.py`.

use burn::tensor::{DType, Int, Tensor};
use grove_backend::Backend;
use grove_layers::{
    AttentionMask, Embedding, KvCache, Linear, Projection, RmsNorm, Rope, Rotation, Table, Weights, attend, loss,
};
use grove_transform::eval_shape;
use grove_tree::{AnyArray, Init, Key, Path, Tree};
use std::ops::Range;

use super::{LlamaConfig, feed_forward::Mlp};
use crate::{error::Result, generation::row_positions, shifted::check_shifted};

/// A LLaMA, or a model of its architecture, with its language-modelling head.
#[derive(Tree, Clone, Debug)]
pub struct Llama<B: Backend> {
    /// Token embedding, `[vocab_size, hidden_size]`.
    pub embed_tokens: Table<B>,
    /// Layers.
    pub layers: Vec<Layer<B>>,
    /// Last norm.
    pub norm: RmsNorm<B>,
    /// Output layer, `[vocab_size, hidden_size]`; if `None`, the token embedding is used.
    pub lm_head: Option<Table<B>>,
    /// Rotary position embedding.
    #[tree(static)]
    pub rope: Rope,
    /// Sizes and options.
    #[tree(static)]
    pub config: LlamaConfig,
}

/// Attention and a feed-forward layer, each added to the residual stream.
#[derive(Tree, Clone, Debug)]
pub struct Layer<B: Backend> {
    /// Norm before the attention.
    pub input_layernorm: RmsNorm<B>,
    /// The attention.
    pub self_attn: Attention<B>,
    /// Norm before the feed-forward layer.
    pub post_attention_layernorm: RmsNorm<B>,
    /// The feed-forward layer.
    pub mlp: Mlp<B>,
}

/// Causal self-attention, in which a head of keys and values serves a group of heads of queries: Ainslie et al., "GQA"
/// (2023).
#[derive(Tree, Clone, Debug)]
pub struct Attention<B: Backend> {
    /// Queries, `hidden_size` to `n_head * head_dim`.
    pub q_proj: Projection<B>,
    /// Keys, `hidden_size` to `n_kv_head * head_dim`.
    pub k_proj: Projection<B>,
    /// Values, `hidden_size` to `n_kv_head * head_dim`.
    pub v_proj: Projection<B>,
    /// Output, `n_head * head_dim` to `hidden_size`.
    pub o_proj: Projection<B>,
    /// Width of a head.
    pub head_dim: usize,
    /// Attention window: the number of positions that a position attends to, including itself; `None` for all.
    pub window: Option<usize>,
}

/// The decoding state.
#[derive(Tree, Clone, Debug)]
pub struct LlamaState<B: Backend> {
    /// The cache of each layer.
    pub caches: Vec<KvCache<B>>,
}

/// Rate and key of the attention's dropout, while training.
type Dropping = Option<(f64, Key)>;

/// A linear map with weights as published, and a bias of zeros if it has one.
pub(super) fn map<B: Backend>(inputs: usize, outputs: usize, std: f64, bias: bool, init: &Init<B>) -> Projection<B> {
    let map = Linear::normal(inputs, outputs, std, init);
    Weights::Dense(if bias { map } else { Linear { bias: None, ..map } })
}

impl<B: Backend> Llama<B> {
    /// A model with initial weights as published: normal with `initializer_range`, biases 0.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    pub fn new(config: &LlamaConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let (hidden, std, eps) = (config.hidden_size, config.initializer_range, config.rms_norm_eps);
        let (queries, keys) = (config.num_attention_heads * config.head_dim(), config.n_kv_head() * config.head_dim());
        let [bias, output_bias] = config.attention_biases();
        let activation = config.activation()?;
        let table = |init: &Init<B>| Weights::Dense(Embedding::normal(config.vocab_size, hidden, std, init));
        let layer = |i: usize| {
            let init = init.named("layers").fold_in(i as u32);
            let attn = init.named("self_attn");
            Layer {
                input_layernorm: RmsNorm::new(hidden, eps, &init),
                self_attn: Attention {
                    q_proj: map(hidden, queries, std, bias, &attn.named("q_proj")),
                    k_proj: map(hidden, keys, std, bias, &attn.named("k_proj")),
                    v_proj: map(hidden, keys, std, bias, &attn.named("v_proj")),
                    o_proj: map(queries, hidden, std, output_bias, &attn.named("o_proj")),
                    head_dim: config.head_dim(),
                    window: config.window(i),
                },
                post_attention_layernorm: RmsNorm::new(hidden, eps, &init),
                mlp: Mlp::new(config, activation, &init.named("mlp")),
            }
        };
        Ok(Self {
            embed_tokens: table(&init.named("embed_tokens")),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            norm: RmsNorm::new(hidden, eps, init),
            lm_head: (!config.tie_word_embeddings).then(|| table(&init.named("lm_head"))),
            rope: config.rope()?,
            config: config.clone(),
        })
    }

    /// A model with initial weights; see [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn init(config: &LlamaConfig, key: Key, device: &B::Device) -> Result<Self> {
        Self::new(config, &Init::new(key, device))
    }

    /// The model without weights: for counting, printing and loading.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn skeleton(config: &LlamaConfig) -> Result<Self> {
        eval_shape(|init| Self::new(config, init))
    }

    /// Returns true if some of the weights are in quantised blocks.
    pub fn is_quantised(&self) -> bool {
        let mut found = false;
        self.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| found |= leaf.dtype() == DType::U8);
        found
    }

    /// Logits of the next token at each position.
    ///
    /// # Shapes
    /// - ids `[b, t]`, each in `0..vocab_size`
    /// - output `[b, t, vocab_size]`
    pub fn forward(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.train(ids, None)
    }

    /// As [`forward`](Self::forward), with dropout of the attention when a key is given.
    pub fn train(&self, ids: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 3> {
        let ([_, t], device) = (ids.dims(), ids.device());
        let mut x = self.embed(ids); // [b, t, hidden_size]
        let positions: Vec<usize> = (0..t).collect();
        let rotation = self.rope.at(&positions, 1, x.dtype(), &device);
        let rate = self.config.attention_dropout;
        let masks = self.masks(t, |_| 0..t, &[], &device);
        for (i, (layer, mask)) in self.layers.iter().zip(masks).enumerate() {
            let dropping = key.map(|key| (rate, key.fold_in(i as u32)));
            x = layer.forward(x, &rotation, &mask, dropping);
        }
        self.logits(x)
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

    /// Mean negative log-likelihood, in nats, of targets that are the tokens after the inputs. Use it for training on
    /// windows of one token more than the context.
    ///
    /// # Shapes
    /// - ids, targets `[b, t]`; a target of -100 does not count
    /// - output `[1]`
    pub fn next_token_loss(
        &self,
        ids: Tensor<B, 2, Int>,
        targets: Tensor<B, 2, Int>,
        key: Option<Key>,
    ) -> Tensor<B, 1> {
        let [b, t] = ids.dims();
        let logits = self.train(ids, key).reshape([b * t, self.config.vocab_size]);
        loss::cross_entropy(logits, targets.reshape([b * t]))
    }

    /// Rows of the token embedding, in the dtype that the model computes in, which is that of its norms.
    pub(super) fn embed(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.embed_tokens.rows(ids).cast(self.norm.weight.dtype())
    }

    /// `[b, t, hidden_size]` to `[b, t, vocab_size]`.
    pub(super) fn logits(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.lm_head.as_ref().unwrap_or(&self.embed_tokens).attend(self.norm.forward(x))
    }

    /// Each layer's mask.
    fn masks(
        &self,
        t: usize,
        keys: impl Fn(usize) -> Range<usize>,
        padding: &[usize],
        device: &B::Device,
    ) -> Vec<AttentionMask<B>> {
        let windows: Vec<Option<usize>> = self.layers.iter().map(|layer| layer.self_attn.window).collect();
        AttentionMask::of_layers(&windows, t, keys, padding, device)
    }

    /// Reads the next positions. Returns the last layer's output for each of them, and the new state.
    pub(super) fn advance(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        state: LlamaState<B>,
    ) -> (Tensor<B, 3>, LlamaState<B>) {
        let ([_, t], device) = (ids.dims(), ids.device());
        let seen = state.caches.first().map_or(0, KvCache::len);
        let (positions, rows) = row_positions(seen, t, padding);
        let mut x = self.embed(ids);
        let rotation = self.rope.at(&positions, rows, x.dtype(), &device);
        let masks = self.masks(t, |i| state.caches[i].keys_of(t), padding, &device);
        let mut caches = Vec::with_capacity(self.layers.len());
        for ((layer, cache), mask) in self.layers.iter().zip(state.caches).zip(masks) {
            let (y, cache) = layer.decode(x, &rotation, &mask, cache);
            x = y;
            caches.push(cache);
        }
        (x, LlamaState { caches })
    }
}

impl<B: Backend> Layer<B> {
    fn forward(
        &self,
        x: Tensor<B, 3>,
        rotation: &Rotation<B>,
        mask: &AttentionMask<B>,
        dropping: Dropping,
    ) -> Tensor<B, 3> {
        let [q, k, v] = self.self_attn.project(self.input_layernorm.forward(x.clone()), rotation);
        let x = x + self.self_attn.gather([q, k, v], mask, dropping);
        let y = self.mlp.forward(self.post_attention_layernorm.forward(x.clone()));
        x + y
    }

    fn decode(
        &self,
        x: Tensor<B, 3>,
        rotation: &Rotation<B>,
        mask: &AttentionMask<B>,
        cache: KvCache<B>,
    ) -> (Tensor<B, 3>, KvCache<B>) {
        let [q, k, v] = self.self_attn.project(self.input_layernorm.forward(x.clone()), rotation);
        let (k, v, cache) = cache.append(k, v);
        let x = x + self.self_attn.gather([q, k, v], mask, None);
        let y = self.mlp.forward(self.post_attention_layernorm.forward(x.clone()));
        (x + y, cache)
    }
}

impl<B: Backend> Attention<B> {
    /// `[b, t, hidden_size]` to queries, `[b, n_head, t, head_dim]`, keys and values, `[b, n_kv_head, t, head_dim]`.
    fn project(&self, x: Tensor<B, 3>, rotation: &Rotation<B>) -> [Tensor<B, 4>; 3] {
        let [b, t, _] = x.dims();
        let heads =
            |map: &Projection<B>| map.forward(x.clone()).reshape([b, t, map.outputs() / self.head_dim, self.head_dim]);
        let (q, k) = (rotation.turn(heads(&self.q_proj)), rotation.turn(heads(&self.k_proj)));
        [q, k, heads(&self.v_proj)].map(|x| x.swap_dims(1, 2))
    }

    /// Attention and the output projection, `[b, t, hidden_size]`.
    fn gather(&self, [q, k, v]: [Tensor<B, 4>; 3], mask: &AttentionMask<B>, dropping: Dropping) -> Tensor<B, 3> {
        let [b, n_head, t, head_dim] = q.dims();
        let y = attend(q, k, v, mask, 1.0 / (head_dim as f64).sqrt(), dropping);
        self.o_proj.forward(y.swap_dims(1, 2).reshape([b, t, n_head * head_dim]))
    }
}
