//! Recurrent language model. Reference: `model.py` of PyTorch's example `word_language_model`,
//! <https://github.com/pytorch/examples/tree/main/word_language_model>. Weights are tied as in "Using the Output
//! Embedding to Improve Language Models" (Press and Wolf, 2017).

use burn::tensor::{FloatDType, Int, Tensor};
use grove_backend::{Backend, matmul};
use grove_layers::{Embedding, dropout, loss, named_key};
use grove_tree::{Array, Init, Key, Tree};
use grove_weights::NameMap;

use super::{RnnCache, RnnKind, RnnLayers, RnnLmConfig, RnnState, published_names};
use crate::{CausalLm, Pretrained, PretrainedConfig, error::Result};

/// A recurrent language model.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_models::{CausalLm, Pretrained, RnnLm, RnnLmConfig};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let config = RnnLmConfig { vocab_size: 50, embedding_size: 8, hidden_size: 12, ..RnnLmConfig::default() };
/// let model = RnnLm::<B>::init(&config, Key::new(0), &device)?;
/// let text = Tensor::<B, 2, Int>::from_ints([[1, 2, 3, 4, 5]], &device);
/// let (logits, state) = model.forward_from(text.clone().narrow(1, 0, 3), None, None);
/// assert_eq!(logits.dims(), [1, 3, 50]);
///
/// // The state carries what has been read: in two parts or at once is the same.
/// let (rest, _) = model.forward_from(text.clone().narrow(1, 3, 2), Some(state), None);
/// let whole = model.forward(text, None);
/// assert!(rest.all_close(whole.narrow(1, 3, 2), Some(1e-5), Some(1e-6)));
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
pub struct RnnLm<B: Backend> {
    /// Token embedding, `[vocab_size, embedding_size]`.
    pub encoder: Embedding<B>,
    /// Recurrent layers, from `embedding_size` to `hidden_size`.
    pub rnn: RnnLayers<B>,
    /// Output layer.
    pub decoder: OutputLayer<B>,
    /// Configuration.
    #[tree(static)]
    pub config: RnnLmConfig,
}

/// Output layer of a language model, with its own weight or tied to the token embedding.
#[derive(Tree, Clone, Debug)]
pub struct OutputLayer<B: Backend> {
    /// Weight, `[vocab_size, hidden_size]`; `None` if it is tied to the token embedding.
    pub weight: Option<Array<B, 2>>,
    /// Bias, `[vocab_size]`.
    pub bias: Array<B, 1>,
}

impl<B: Backend> Pretrained<B> for RnnLm<B> {
    type Config = RnnLmConfig;

    /// Creates a model with the reference's initialisation: embedding and output layer uniform in [-0.1, 0.1], zero
    /// output bias, recurrent layers as in PyTorch.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &RnnLmConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let (vocab_size, embedding_size, n) = (config.vocab_size, config.embedding_size, config.hidden_size);
        let table = |part: &str, size| init.named(part).named("weight").uniform([vocab_size, size], -0.1, 0.1);
        Ok(Self {
            encoder: Embedding { weight: table("encoder", embedding_size) },
            rnn: RnnLayers::new(config.cell, embedding_size, n, &config.options(), &init.named("rnn")),
            decoder: OutputLayer {
                weight: (!config.tie_word_embeddings).then(|| table("decoder", n)),
                bias: init.zeros([vocab_size]),
            },
            config: config.clone(),
        })
    }

    fn config(&self) -> &RnnLmConfig {
        &self.config
    }

    fn published_names(config: &RnnLmConfig) -> NameMap {
        published_names(config)
    }
}

impl<B: Backend> CausalLm<B> for RnnLm<B> {
    type Cache = RnnCache<B>;

    #[track_caller]
    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        mut cache: Option<&mut RnnCache<B>>,
        key: Option<Key>,
    ) -> Tensor<B, 3> {
        let t = ids.dims()[1];
        let (seen, counts) = cache.as_ref().map_or((0, true), |cache| (cache.seen, cache.counts));
        let start = cache.as_ref().is_some_and(|cache| cache.state.is_some());
        assert!(
            counts || start || padding.iter().all(|&pad| pad <= t),
            "a cache that does not count positions reads all padding, {padding:?}, with the first {t} tokens"
        );
        // If positions are not counted, all padding was processed with the first tokens.
        let padding = if !counts && start { &[] } else { padding };
        let state = cache.as_mut().and_then(|cache| cache.state.take());
        let here: Vec<usize> = padding.iter().map(|&pad| pad.saturating_sub(seen).min(t)).collect();
        let (hidden, after) = if here.iter().all(|&pad| pad == 0) {
            let (x, after) = self.run(ids, state, key);
            (x.swap_dims(0, 1), after)
        } else {
            self.skip_padding(ids, &here, state, key)
        };
        if let Some(cache) = cache {
            *cache = RnnCache { state: Some(after), seen: if counts { seen + t } else { 0 }, counts };
        }
        hidden
    }

    #[track_caller]
    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        let [b, t, n] = hidden.dims();
        self.logits(hidden.reshape([b * t, n])).reshape([b, t, self.config.vocab_size])
    }

    fn new_cache(&self, _room: usize) -> RnnCache<B> {
        RnnCache { state: None, seen: 0, counts: true }
    }

    /// Returns the size of the state, which does not depend on the number of positions.
    fn cache_bytes(&self, _positions: usize, _dtype: Option<FloatDType>) -> Option<usize> {
        let states = if self.config.cell == RnnKind::Lstm { 2 } else { 1 };
        Some(states * self.config.num_layers * self.config.hidden_size * self.encoder.weight.dtype().size())
    }

    fn with_dropout(mut self, rate: f64) -> Self {
        self.config.dropout = rate;
        self.rnn.options_mut().dropout = rate;
        self
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.config.eos_token_id.into_iter().collect()
    }

    /// Computes the loss of independent windows of a text. [`continued_loss`](Self::continued_loss) carries the state
    /// from window to window.
    #[track_caller]
    fn next_token_loss(&self, ids: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        self.continued_loss(ids, targets, None, key).0
    }
}

impl<B: Backend> RnnLm<B> {
    /// Computes the logits of the next token at each position, and the state after the last. Starts from `state`, or
    /// from zeros if `None`. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - ids `[b, t]`, each in `0..vocab_size`
    /// - output `[b, t, vocab_size]`
    #[track_caller]
    pub fn forward_from(
        &self,
        ids: Tensor<B, 2, Int>,
        state: Option<RnnState<B>>,
        key: Option<Key>,
    ) -> (Tensor<B, 3>, RnnState<B>) {
        let [b, t] = ids.dims();
        let (x, state) = self.run(ids, state, key);
        let logits = self.logits(x.swap_dims(0, 1).reshape([b * t, self.config.hidden_size]));
        (logits.reshape([b, t, self.config.vocab_size]), state)
    }

    /// Computes [`next_token_loss`](CausalLm::next_token_loss) for a window that continues the previous one: takes the
    /// state before the window and returns the state after it.
    ///
    /// # Shapes
    /// As [`next_token_loss`](CausalLm::next_token_loss).
    #[track_caller]
    pub fn continued_loss(
        &self,
        ids: Tensor<B, 2, Int>,
        targets: Tensor<B, 2, Int>,
        state: Option<RnnState<B>>,
        key: Option<Key>,
    ) -> (Tensor<B, 1>, RnnState<B>) {
        let [b, t] = ids.dims();
        let (x, state) = self.run(ids, state, key);
        let logits = self.logits(x.reshape([t * b, self.config.hidden_size])); // [t * b, vocab_size]
        (loss::cross_entropy(logits, targets.swap_dims(0, 1).reshape([t * b])), state)
    }

    /// Runs the layers and returns the last layer's outputs, time-major: `[t, b, hidden_size]`.
    #[track_caller]
    pub(super) fn run(
        &self,
        ids: Tensor<B, 2, Int>,
        state: Option<RnnState<B>>,
        key: Option<Key>,
    ) -> (Tensor<B, 3>, RnnState<B>) {
        let x = self.encoder.forward(ids.swap_dims(0, 1)); // [t, b, embedding_size]
        let x = dropout(x, self.config.dropout, named_key(key, "embedding"));
        let (x, state) = self.rnn.forward(x, state, named_key(key, "layers")); // [t, b, hidden_size]
        (dropout(x, self.config.dropout, named_key(key, "output")), state)
    }

    /// Computes the logits: `[rows, hidden_size]` to `[rows, vocab_size]`.
    #[track_caller]
    pub(super) fn logits(&self, x: Tensor<B, 2>) -> Tensor<B, 2> {
        let weight = self.decoder.weight.as_ref().unwrap_or(&self.encoder.weight);
        matmul(x, weight.val().transpose()) + self.decoder.bias.val().unsqueeze()
    }
}
