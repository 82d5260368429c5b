//! Language models that predict each token from those before it.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{KvCache, loss::cross_entropy};
use grove_tree::{AnyArray, Key, Path, Tree};

use super::{GenerateOptions, Generated, Score, generate, score_text};
use crate::{error::Result, shifted::check_shifted};

/// A causal language model, as transformers' `AutoModelForCausalLM`.
///
/// A model states its hidden states, with or without a cache, and its output layer. Logits, losses, generation and scoring
/// follow. `examples/own_model.rs` defines a model from scratch.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// # let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// # let model = Gpt2::<B>::init(&config, Key::new(0), &device)?;
/// let ids = Tensor::<B, 2, Int>::from_ints([[1, 2, 3]], &device);
/// assert_eq!(model.forward(ids.clone(), None).dims(), [1, 3, 16]); // logits
/// assert_eq!(model.features(ids.clone(), None).dims(), [1, 3, 8]); // hidden states
/// assert!(model.loss(ids.clone(), ids, None).into_scalar() > 0.0); // nats
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub trait CausalLm<B: Backend>: Tree<B> {
    /// Memory of the positions read: keys and values, or the state of a recurrent network.
    type Cache: DecodeCache<B>;

    /// Hidden states of all positions after the last norm: the input of [`lm_head`](Self::lm_head). Dropout is applied if a
    /// `key` is given.
    ///
    /// With a cache the positions follow those that it holds, and are added to it. `padding[row]` positions at the beginning
    /// of a row are padding, counted from the very first position; an empty slice means none anywhere. The states of
    /// padding are meaningless.
    ///
    /// # Shapes
    /// - ids `[b, t]`, each in `0..vocab_size`, t at least 1
    /// - output `[b, t, hidden_size]`
    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: Option<&mut Self::Cache>,
        key: Option<Key>,
    ) -> Tensor<B, 3>;

    /// Logits of the next token, `[b, t, hidden_size]` to `[b, t, vocab_size]`.
    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3>;

    /// Returns an empty cache. Memory for `room` positions is allocated at once; 0 if their number is unknown.
    fn new_cache(&self, room: usize) -> Self::Cache;

    /// Returns an empty cache of fixed size, whose number of positions is an array where the model keeps keys and values: one
    /// program of a traced decoding step serves every position. See [`KvCache::fixed`].
    fn new_fixed_cache(&self, capacity: usize) -> Self::Cache {
        self.new_cache(capacity).fixed(capacity, &self.device())
    }

    /// Number of tokens.
    fn vocab_size(&self) -> usize;

    /// Bytes of the cache of a sequence of this many positions; `None` if unknown.
    fn cache_bytes(&self, _positions: usize) -> Option<usize> {
        None
    }

    /// The model's device: that of its first array, or the default one for a skeleton.
    fn device(&self) -> B::Device {
        let mut device = None;
        self.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| {
            device = device.take().or_else(|| leaf.device())
        });
        device.unwrap_or_default()
    }

    /// The sequence length for which the model is made, if there is one.
    fn context(&self) -> Option<usize> {
        None
    }

    /// The most positions that the model can read, if there is a limit. Rotary positions go beyond the context, for which alone
    /// they were trained.
    fn position_limit(&self) -> Option<usize> {
        self.context()
    }

    /// True if the states of all positions depend on the length of a prompt, which must be read at once then.
    fn reads_prompts_whole(&self) -> bool {
        false
    }

    /// Tokens that end a text, as the model's `config.json` names them.
    fn end_tokens(&self) -> Vec<u32> {
        vec![]
    }

    /// Returns the model with this rate of dropout everywhere, for training. A model without dropout stays as it is.
    #[must_use]
    fn with_dropout(self, _rate: f64) -> Self {
        self
    }

    /// Hidden states of independent sequences, for value heads, classifiers and probes. Dropout is applied if a `key` is
    /// given.
    ///
    /// # Shapes
    /// - ids `[b, t]`, t at most the model's context
    /// - output `[b, t, hidden_size]`
    fn features(&self, ids: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 3> {
        self.forward_hidden(ids, &[], None, key)
    }

    /// Logits of the next token at each position. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - ids `[b, t]`, each in `0..vocab_size`, t at most the model's context
    /// - output `[b, t, vocab_size]`
    fn forward(&self, ids: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 3> {
        self.lm_head(self.features(ids, key))
    }

    /// Reads the next positions. Returns the logits after the last of them, and the new cache. For `padding` see
    /// [`forward_hidden`](Self::forward_hidden).
    ///
    /// # Shapes
    /// - ids `[b, t]`, t at least 1
    /// - output `[b, vocab_size]`
    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], mut cache: Self::Cache) -> (Tensor<B, 2>, Self::Cache) {
        let [b, t] = ids.dims();
        let hidden = self.forward_hidden(ids, padding, Some(&mut cache), None);
        (self.lm_head(hidden.narrow(1, t - 1, 1)).reshape([b, self.vocab_size()]), cache)
    }

    /// As [`decode`](Self::decode) without padding, with the logits after each of the last `n` positions.
    ///
    /// # Shapes
    /// - ids `[b, t]`, t at least `n`
    /// - output `[b, n, vocab_size]`
    fn decode_last(&self, ids: Tensor<B, 2, Int>, n: usize, mut cache: Self::Cache) -> (Tensor<B, 3>, Self::Cache) {
        let t = ids.dims()[1];
        let hidden = self.forward_hidden(ids, &[], Some(&mut cache), None);
        (self.lm_head(hidden.narrow(1, t - n, n)), cache)
    }

    /// Mean negative log-likelihood, in nats, of each token after those before it. As in transformers, labels are not
    /// shifted by the caller: the label of a position is its own token, or -100 where it does not count. Dropout is applied
    /// if a `key` is given.
    ///
    /// # Shapes
    /// - ids, labels `[b, t]` with `t` at least 2
    /// - output `[1]`
    ///
    /// # Panics
    /// If a row has one token, which has nothing before it, or ids and labels differ in shape.
    fn loss(&self, ids: Tensor<B, 2, Int>, labels: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        let [b, t] = ids.dims();
        check_shifted(ids.dims(), labels.dims());
        let (n, labels) = (b * (t - 1), labels.slice([0..b, 1..t]));
        let logits = self.forward(ids, key).slice([0..b, 0..t - 1]);
        cross_entropy(logits.reshape([n, self.vocab_size()]), labels.reshape([n]))
    }

    /// Mean negative log-likelihood, in nats, of targets that are the tokens after the inputs. Use it for training on
    /// windows of one token more than the context. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - ids, targets `[b, t]`; a target of -100 does not count
    /// - output `[1]`
    fn next_token_loss(&self, ids: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        let [b, t] = ids.dims();
        let logits = self.forward(ids, key).reshape([b * t, self.vocab_size()]);
        cross_entropy(logits, targets.reshape([b * t]))
    }

    /// Continues prompts; see [`generate`].
    ///
    /// # Errors
    /// As [`generate`].
    fn generate(
        &self,
        prompts: &[Vec<u32>],
        options: &GenerateOptions,
        on_token: impl FnMut(usize, u32) -> bool,
    ) -> Result<Vec<Generated>> {
        generate(self, prompts, options, on_token)
    }

    /// Scores a text; see [`score_text`].
    ///
    /// # Errors
    /// As [`score_text`].
    fn score(&self, ids: &[u32], stride: Option<usize>) -> Result<Score> {
        score_text(self, ids, stride)
    }
}

/// A model's memory of the positions that it has read.
pub trait DecodeCache<B: Backend>: Tree<B> {
    /// Number of positions read, padding included.
    ///
    /// # Panics
    /// If the cache is [of fixed size](Self::fixed), where the number is an array or is not known. A model that decodes with such a
    /// cache takes positions from [`cached_position_ids`](super::cached_position_ids) and masks from
    /// [`layer_masks`](super::layer_masks) or [`AttentionMask::after`](grove_layers::AttentionMask::after).
    fn seen(&self) -> usize;

    /// Returns the cache after the first `len` positions, or `None` if it no longer holds what the next position needs.
    fn truncate(self, len: usize) -> Option<Self>;

    /// Returns an empty cache of fixed size in place of an empty one. A cache whose size does not depend on the number of positions
    /// stays.
    fn fixed(self, _capacity: usize, _device: &B::Device) -> Self {
        self
    }

    /// Returns a cache of fixed size with room for more positions, which holds what this one holds. Other caches stay.
    fn with_capacity(self, _capacity: usize) -> Self {
        self
    }
}

/// The caches of a model's attention layers.
impl<B: Backend> DecodeCache<B> for Vec<KvCache<B>> {
    fn seen(&self) -> usize {
        self.first().map_or(0, KvCache::len)
    }

    fn truncate(self, len: usize) -> Option<Self> {
        self.into_iter().map(|cache| cache.truncate(len)).collect()
    }

    fn fixed(self, capacity: usize, device: &B::Device) -> Self {
        self.into_iter().map(|cache| KvCache::fixed(cache.window(), capacity, device)).collect()
    }

    fn with_capacity(self, capacity: usize) -> Self {
        self.into_iter().map(|cache| cache.with_capacity(capacity)).collect()
    }
}
