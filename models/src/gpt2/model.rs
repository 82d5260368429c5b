//! The model. Paper: "Language Models are Unsupervised Multitask Learners" (Radford et al., 2019). Reference:
//! transformers' `models/gpt2/modeling_gpt2.py`.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{
    Activation, AttentionMask, Embedding, KvCache, LayerNorm, Linear, attend, dropout, loss, split_heads,
};
use grove_transform::eval_shape;
use grove_tree::{Init, Key, Tree};

use super::Gpt2Config;
use crate::{
    Decoder,
    error::Result,
    generation::{Rewind, position_ids},
    shifted::check_shifted,
};

/// A GPT-2 with its language-modelling head, which is the token embedding.
#[derive(Tree, Clone, Debug)]
pub struct Gpt2<B: Backend> {
    /// Token embedding, `[vocab_size, n_embd]`.
    pub wte: Embedding<B>,
    /// Position embedding, `[n_positions, n_embd]`.
    pub wpe: Embedding<B>,
    /// Blocks.
    pub h: Vec<Block<B>>,
    /// Last layer norm.
    pub ln_f: LayerNorm<B>,
    /// Sizes and options.
    #[tree(static)]
    pub config: Gpt2Config,
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

/// Causal self-attention with several heads.
#[derive(Tree, Clone, Debug)]
pub struct Attention<B: Backend> {
    /// Queries, keys and values, `[n_embd, 3 n_embd]`.
    pub c_attn: Linear<B>,
    /// Output, `[n_embd, n_embd]`.
    pub c_proj: Linear<B>,
    /// Number of heads.
    pub n_head: usize,
    /// Factor of the attention scores.
    pub scale: f64,
}

/// The feed-forward layer.
#[derive(Tree, Clone, Debug)]
pub struct Mlp<B: Backend> {
    /// `[n_embd, n_inner]`.
    pub c_fc: Linear<B>,
    /// `[n_inner, n_embd]`.
    pub c_proj: Linear<B>,
    /// Activation between the two linear layers.
    #[tree(static)]
    pub activation: Activation,
}

/// The decoding state.
#[derive(Tree, Clone, Debug)]
pub struct Gpt2State<B: Backend> {
    /// The cache of each block.
    pub caches: Vec<KvCache<B>>,
}

/// Dropout rates and this part's key, while training.
type Dropping<'a> = Option<(&'a Gpt2Config, Key)>;

impl<B: Backend> Gpt2<B> {
    /// A model with initial weights as published: normal with `initializer_range`, the projections into the residual
    /// stream smaller by `sqrt(2 n_layer)`, biases 0.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    pub fn new(config: &Gpt2Config, init: &Init<B>) -> Result<Self> {
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
            config: config.clone(),
        })
    }

    /// A model with initial weights; see [`new`](Self::new).
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn init(config: &Gpt2Config, key: Key, device: &B::Device) -> Result<Self> {
        Self::new(config, &Init::new(key, device))
    }

    /// The model without weights: for counting, printing and loading.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn skeleton(config: &Gpt2Config) -> Result<Self> {
        eval_shape(|init| Self::new(config, init))
    }

    /// Logits of the next token at each position.
    ///
    /// # Shapes
    /// - ids `[b, t]`, each in `0..vocab_size`, `t` at most `n_positions`
    /// - output `[b, t, vocab_size]`
    pub fn forward(&self, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
        self.train(ids, None)
    }

    /// As [`forward`](Self::forward), with dropout when a key is given.
    pub fn train(&self, ids: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 3> {
        let dropping = key.map(|key| (&self.config, key));
        let x = self.embed(ids, 0, &[]); // [b, t, n_embd]
        let mut x = dropout(x, self.config.embd_pdrop, part(dropping, 0).map(|(_, key)| key));
        for (i, block) in self.h.iter().enumerate() {
            x = block.forward(x, part(dropping, 1 + i as u32));
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

    /// Token and position embeddings of the positions from `seen` on, in rows that begin with padding: `[b, t, n_embd]`
    fn embed(&self, ids: Tensor<B, 2, Int>, seen: usize, padding: &[usize]) -> Tensor<B, 3> {
        let positions = position_ids(seen, ids.dims()[1], padding, &ids.device());
        self.wte.forward(ids) + self.wpe.forward(positions)
    }
}

impl<B: Backend> Block<B> {
    fn forward(&self, x: Tensor<B, 3>, dropping: Dropping<'_>) -> Tensor<B, 3> {
        let rate = dropping.map_or(0.0, |(config, _)| config.resid_pdrop);
        let [key_attn, key_mlp] = [1, 2].map(|i| part(dropping, i).map(|(_, key)| key));
        let y = self.attn.forward(self.ln_1.forward(x.clone()), part(dropping, 0));
        let x = x + dropout(y, rate, key_attn);
        let y = self.mlp.forward(self.ln_2.forward(x.clone()));
        x + dropout(y, rate, key_mlp)
    }

    fn decode(&self, x: Tensor<B, 3>, mask: &AttentionMask<B>, cache: KvCache<B>) -> (Tensor<B, 3>, KvCache<B>) {
        let (y, cache) = self.attn.decode(self.ln_1.forward(x.clone()), mask, cache);
        let x = x + y;
        let y = self.mlp.forward(self.ln_2.forward(x.clone()));
        (x + y, cache)
    }
}

impl<B: Backend> Attention<B> {
    /// `[b, t, n_embd]` to queries, keys and values, each `[b, n_head, t, head_dim]`.
    fn project(&self, x: Tensor<B, 3>) -> [Tensor<B, 4>; 3] {
        split_heads(self.c_attn.forward(x), self.n_head)
    }

    /// `[b, n_head, t, head_dim]` to `[b, t, n_embd]`.
    fn output(&self, y: Tensor<B, 4>) -> Tensor<B, 3> {
        let [b, n_head, t, head_dim] = y.dims();
        self.c_proj.forward(y.swap_dims(1, 2).reshape([b, t, n_head * head_dim]))
    }

    fn forward(&self, x: Tensor<B, 3>, dropping: Dropping<'_>) -> Tensor<B, 3> {
        let [q, k, v] = self.project(x);
        let dropping = dropping.map(|(config, key)| (config.attn_pdrop, key));
        self.output(attend(q, k, v, &AttentionMask::Causal, self.scale, dropping))
    }

    fn decode(&self, x: Tensor<B, 3>, mask: &AttentionMask<B>, cache: KvCache<B>) -> (Tensor<B, 3>, KvCache<B>) {
        let [q, k, v] = self.project(x);
        let (k, v, cache) = cache.append(k, v);
        (self.output(attend(q, k, v, mask, self.scale, None)), cache)
    }
}

impl<B: Backend> Mlp<B> {
    fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        self.c_proj.forward(self.activation.forward(self.c_fc.forward(x)))
    }
}

/// Derives the key of a part; each part has its own.
fn part(dropping: Dropping<'_>, number: u32) -> Dropping<'_> {
    dropping.map(|(config, key)| (config, key.fold_in(number)))
}

impl<B: Backend> Gpt2<B> {
    /// Bytes of the decoding state of a sequence of this many positions.
    pub fn cache_bytes(&self, positions: usize) -> usize {
        let windows = self.h.iter().map(|_| None);
        KvCache::<B>::bytes(windows, positions, 2 * self.config.n_embd, self.ln_f.weight.dtype().size())
    }

    /// Reads the next positions. Returns the logits after each of the last `n`, and the new state.
    fn advance(
        &self,
        ids: Tensor<B, 2, Int>,
        n: usize,
        padding: &[usize],
        state: Gpt2State<B>,
    ) -> (Tensor<B, 3>, Gpt2State<B>) {
        let t = ids.dims()[1];
        let seen = state.caches.first().map_or(0, KvCache::len);
        let mask = AttentionMask::causal(t, seen, padding, &ids.device());
        let mut x = self.embed(ids, seen, padding);
        let mut caches = Vec::with_capacity(self.h.len());
        for (block, cache) in self.h.iter().zip(state.caches) {
            let (y, cache) = block.decode(x, &mask, cache);
            x = y;
            caches.push(cache);
        }
        let last = x.narrow(1, t - n, n); // [b, n, n_embd]
        (self.wte.attend(self.ln_f.forward(last)), Gpt2State { caches })
    }
}

impl<B: Backend> Rewind<B> for Gpt2<B> {
    fn decode_last(&self, ids: Tensor<B, 2, Int>, n: usize, state: Gpt2State<B>) -> (Tensor<B, 3>, Gpt2State<B>) {
        self.advance(ids, n, &[], state)
    }

    fn rewind(&self, state: Gpt2State<B>, len: usize) -> Option<Gpt2State<B>> {
        let caches = state.caches.into_iter().map(|cache| cache.truncate(len)).collect::<Option<_>>()?;
        Some(Gpt2State { caches })
    }
}

impl<B: Backend> Decoder<B> for Gpt2<B> {
    type State = Gpt2State<B>;

    fn start(&self, room: usize) -> Gpt2State<B> {
        Gpt2State { caches: vec![KvCache::with_room(room); self.h.len()] }
    }

    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], state: Gpt2State<B>) -> (Tensor<B, 2>, Gpt2State<B>) {
        let (logits, state) = self.advance(ids, 1, padding, state);
        let b = logits.dims()[0];
        (logits.reshape([b, self.config.vocab_size]), state)
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
        self.config.eos_token_id.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;
    use grove_tree::{count_params, leaves};

    #[test]
    fn published_sizes_have_the_published_numbers_of_parameters() {
        // Counted by transformers: sum(p.numel() for p in GPT2LMHeadModel(config).parameters()).
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
        let logits = |key: Option<u64>| model.train(ids(), key.map(Key::new)).to_data();
        assert_eq!(logits(Some(1)), logits(Some(1)));
        assert_ne!(logits(Some(1)), logits(Some(2)));
        assert_eq!(logits(None), model.forward(ids()).to_data());
    }
}
