//! Causal language models.

use burn::tensor::{FloatDType, Int, Tensor};
use grove_backend::Backend;
use grove_compile::{Traceable, Traced};
use grove_layers::{CacheRows, KvCache, loss::cross_entropy};
use grove_tree::{Key, Tree, device_of};

/// A causal language model, like transformers' `AutoModelForCausalLM`.
///
/// A model provides its hidden states, with or without a cache, and its output layer. Logits, losses and decoding steps
/// have default implementations. The crate `grove-tasks` generates and scores text with any such model.
/// `examples/own_model.rs` defines a model from scratch.
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
    /// State of the positions read so far: keys and values, or the state of a recurrent network.
    type Cache: DecodeCache<B>;

    /// Computes the hidden states of all positions after the final norm: the input of [`lm_head`](Self::lm_head).
    /// Dropout is applied if a `key` is given.
    ///
    /// With a cache, the positions follow the cached ones and are added to the cache. The first `padding[row]`
    /// positions of a row are padding, counted from the beginning of the sequence; an empty slice means no padding. The
    /// states of padding are meaningless.
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

    /// Computes the logits of the next token, from `[b, t, hidden_size]` to `[b, t, vocab_size]`.
    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3>;

    /// Returns an empty cache. Allocates memory for `room` positions in advance; 0 if their number is unknown.
    fn new_cache(&self, room: usize) -> Self::Cache;

    /// Returns an empty cache of fixed size. If the model caches keys and values, the number of cached positions is an
    /// array, so that one program of a traced decoding step serves every position. See [`KvCache::fixed`].
    fn new_fixed_cache(&self, capacity: usize) -> Self::Cache {
        self.new_cache(capacity).fixed(capacity, &self.device())
    }

    /// Returns the vocabulary size.
    fn vocab_size(&self) -> usize;

    /// Returns the bytes of the cache of a sequence with this many positions, in this dtype or else in the model's; `None` if
    /// unknown.
    fn cache_bytes(&self, _positions: usize, _dtype: Option<FloatDType>) -> Option<usize> {
        None
    }

    /// Returns the model's device: that of its first array, or the default device for a skeleton.
    fn device(&self) -> B::Device {
        device_of(self).unwrap_or_default()
    }

    /// Returns the context length that the model was made for, if there is one.
    fn context(&self) -> Option<usize> {
        None
    }

    /// Returns the maximum number of positions that the model can process, if there is a limit. Rotary embeddings work
    /// beyond the context length, but were not trained there.
    fn position_limit(&self) -> Option<usize> {
        self.context()
    }

    /// Returns true if the states of all positions depend on the sequence length, so that a prompt must be processed at
    /// once.
    fn reads_prompts_whole(&self) -> bool {
        false
    }

    /// Returns the tokens that end a sequence, from the model's `config.json`.
    fn end_tokens(&self) -> Vec<u32> {
        vec![]
    }

    /// Returns the model with this dropout rate in all layers, for training. A model without dropout is returned
    /// unchanged.
    #[must_use]
    fn with_dropout(self, _rate: f64) -> Self {
        self
    }

    /// Returns the model with inputs of quantized layers rounded to 8 bits ([`InputPrecision::Int8`]), which is faster and less
    /// accurate; `None` if no weights are quantized.
    ///
    /// [`InputPrecision::Int8`]: grove_backend::InputPrecision::Int8
    fn with_quantized_activations(self) -> Option<Self> {
        None
    }

    /// Computes the hidden states of independent sequences, for value heads, classifiers and probes. Dropout is applied
    /// if a `key` is given.
    ///
    /// # Shapes
    /// - ids `[b, t]`, t at most the model's context
    /// - output `[b, t, hidden_size]`
    #[track_caller]
    fn features(&self, ids: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 3> {
        self.forward_hidden(ids, &[], None, key)
    }

    /// Computes the logits of the next token at each position. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - ids `[b, t]`, each in `0..vocab_size`, t at most the model's context
    /// - output `[b, t, vocab_size]`
    #[track_caller]
    fn forward(&self, ids: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 3> {
        self.lm_head(self.features(ids, key))
    }

    /// Processes the next positions. Returns the logits after the last of them, and the new cache. For `padding` see
    /// [`forward_hidden`](Self::forward_hidden).
    ///
    /// # Shapes
    /// - ids `[b, t]`, t at least 1
    /// - output `[b, vocab_size]`
    #[track_caller]
    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], mut cache: Self::Cache) -> (Tensor<B, 2>, Self::Cache) {
        let [b, t] = ids.dims();
        let hidden = self.forward_hidden(ids, padding, Some(&mut cache), None);
        (self.lm_head(hidden.narrow(1, t - 1, 1)).reshape([b, self.vocab_size()]), cache)
    }

    /// Processes the next positions without padding. Returns the logits after each of the last `n` positions, and the
    /// new cache.
    ///
    /// # Shapes
    /// - ids `[b, t]`, t at least `n`
    /// - output `[b, n, vocab_size]`
    #[track_caller]
    fn decode_last(&self, ids: Tensor<B, 2, Int>, n: usize, mut cache: Self::Cache) -> (Tensor<B, 3>, Self::Cache) {
        let t = ids.dims()[1];
        let hidden = self.forward_hidden(ids, &[], Some(&mut cache), None);
        (self.lm_head(hidden.narrow(1, t - n, n)), cache)
    }

    /// Computes the mean negative log-likelihood per token, in nats. As in transformers, the caller does not shift the
    /// labels: the label of a position is its own token, or -100 to ignore it. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - ids, labels `[b, t]` with `t` at least 2
    /// - output `[1]`
    ///
    /// # Panics
    /// If a row has only one token, or if ids and labels differ in shape.
    #[track_caller]
    fn loss(&self, ids: Tensor<B, 2, Int>, labels: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        let [b, t] = ids.dims();
        let (of_ids, of_labels) = (ids.dims(), labels.dims());
        assert!(
            of_ids == of_labels,
            "ids {of_ids:?} and labels {of_labels:?} differ in shape: give each token a label"
        );
        assert!(
            b > 0 && t > 1,
            "ids have shape {of_ids:?}, but a loss needs rows of at least 2 tokens: the first token has no predecessor"
        );
        let (n, labels) = (b * (t - 1), labels.slice([0..b, 1..t]));
        let logits = self.forward(ids, key).slice([0..b, 0..t - 1]);
        cross_entropy(logits.reshape([n, self.vocab_size()]), labels.reshape([n]))
    }

    /// Computes the mean negative log-likelihood, in nats, of targets that are already shifted: each is the token after
    /// its input. Use it for training on windows of one token more than the context. Dropout is applied if a `key` is
    /// given.
    ///
    /// # Shapes
    /// - ids, targets `[b, t]`; a target of -100 is ignored
    /// - output `[1]`
    #[track_caller]
    fn next_token_loss(&self, ids: Tensor<B, 2, Int>, targets: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        let [b, t] = ids.dims();
        let logits = self.forward(ids, key).reshape([b * t, self.vocab_size()]);
        cross_entropy(logits, targets.reshape([b * t]))
    }
}

/// A language model whose decoding step can be traced. Implemented by every [`CausalLm`] that derives [`Tree`] and is
/// generic over the backend.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_backend::Backend;
/// use grove_compile::{Traced, jit};
/// use grove_models::{CausalLm, Gpt2, Gpt2Config, Pretrained, TraceableLm};
/// use grove_tree::{Array, Key};
/// # type B = burn_flex::Flex;
///
/// /// Logits of a language model of any family, as a compiled function.
/// fn logits<B: Backend, M: TraceableLm<B>>(model: &M, ids: Tensor<B, 2, Int>) -> Tensor<B, 3> {
///     let forward = jit(|(model, ids): (M::OnTraced, Array<Traced, 2, Int>)| {
///         Array::<Traced, 3>::new(model.forward(ids.val(), None))
///     });
///     forward.call::<B>((model.clone(), Array::new(ids))).val()
/// }
///
/// # let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// let model = Gpt2::<B>::init(&config, Key::new(0), &Default::default())?;
/// assert_eq!(logits(&model, Tensor::ones([2, 3], &Default::default())).dims(), [2, 3, 16]);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub trait TraceableLm<B: Backend>:
    CausalLm<B, Cache: Traceable<B, OnTraced = Self::TracedCache>>
    + Traceable<B, OnTraced: CausalLm<Traced, Cache = Self::TracedCache>>
{
    /// Type of the model's cache in a trace.
    type TracedCache: Tree<Traced, On<B> = Self::Cache>;
}

impl<B, M, C> TraceableLm<B> for M
where
    B: Backend,
    M: CausalLm<B, Cache: Traceable<B, OnTraced = C>> + Traceable<B, OnTraced: CausalLm<Traced, Cache = C>>,
    C: Tree<Traced, On<B> = M::Cache>,
{
    type TracedCache = C;
}

/// State of a model's decoding: the positions that it has processed.
pub trait DecodeCache<B: Backend>: Tree<B> {
    /// Returns the number of positions processed, including padding.
    ///
    /// # Panics
    /// If the cache is [of fixed size](Self::fixed): its number of positions is an array or unknown. A model that
    /// decodes with such a cache takes positions and masks from a [`DecoderPass`](grove_layers::DecoderPass), or masks from
    /// [`AttentionMask::after`](grove_layers::AttentionMask::after).
    fn seen(&self) -> usize;

    /// Returns the cache after the first `len` positions, or `None` if it no longer contains what the next position
    /// needs.
    fn truncate(self, len: usize) -> Option<Self>;

    /// Joins rows of caches into one cache of `len` positions, with memory for `room` positions: sequences enter a batch
    /// and leave it, and a prompt is processed once for several continuations. See [`KvCache::join`]. `None` if this is
    /// not supported, the default; a cache that supports it also joins no caches.
    fn join(_parts: Vec<CacheRows<Self>>, _len: usize, _room: usize) -> Option<Self> {
        None
    }

    /// Replaces an empty cache by an empty cache of fixed size. A cache whose size does not depend on the number of
    /// positions is returned unchanged.
    fn fixed(self, _capacity: usize, _device: &B::Device) -> Self {
        self
    }

    /// Sets the dtype of an empty cache's keys and values; see [`KvCache::with_dtype`]. A cache without keys and values is
    /// returned unchanged.
    #[must_use]
    fn with_dtype(self, _dtype: Option<FloatDType>) -> Self {
        self
    }

    /// Grows a cache of fixed size to the given capacity and keeps its contents. Other caches are returned unchanged.
    fn with_capacity(self, _capacity: usize) -> Self {
        self
    }
}

/// Caches of a model's attention layers.
impl<B: Backend> DecodeCache<B> for Vec<KvCache<B>> {
    fn seen(&self) -> usize {
        self.first().map_or(0, KvCache::len)
    }

    fn truncate(self, len: usize) -> Option<Self> {
        self.into_iter().map(|cache| cache.truncate(len)).collect()
    }

    fn join(parts: Vec<CacheRows<Self>>, len: usize, room: usize) -> Option<Self> {
        let layers = parts.first().map_or(0, |part| part.cache.len());
        // Taken one by one, so that the memory of a layer is freed once it has been joined.
        let mut parts: Vec<_> = parts.into_iter().map(|part| (part.cache.into_iter(), part.len, part.rows)).collect();
        let layer = |_| {
            let part = |(caches, len, rows): &mut (std::vec::IntoIter<KvCache<B>>, usize, Vec<usize>)| {
                Some(CacheRows { cache: caches.next()?, len: *len, rows: rows.clone() })
            };
            KvCache::join(parts.iter_mut().filter_map(part).collect(), len, room)
        };
        Some((0..layers).map(layer).collect())
    }

    fn fixed(self, capacity: usize, device: &B::Device) -> Self {
        self.into_iter().map(|cache| KvCache::fixed(cache.window(), capacity, device)).collect()
    }

    fn with_dtype(self, dtype: Option<FloatDType>) -> Self {
        self.into_iter().map(|cache| cache.with_dtype(dtype)).collect()
    }

    fn with_capacity(self, capacity: usize) -> Self {
        self.into_iter().map(|cache| cache.with_capacity(capacity)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        CausalLm, Gpt2, GptNeo, Llama, Pretrained, gpt_neo::GptNeoConfig, gpt2::Gpt2Config, llama::LlamaConfig,
    };
    use burn::tensor::{Int, Tensor};
    use grove_backend::Flex;
    use grove_tree::Key;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    fn refuses(name: &str, loss: impl Fn(Tensor<Flex, 2, Int>, Tensor<Flex, 2, Int>) -> Tensor<Flex, 1>) {
        let ids = |columns| Tensor::<Flex, 2, Int>::ones([3, columns], &Default::default());
        let message = |t, labels| {
            let panic = catch_unwind(AssertUnwindSafe(|| loss(ids(t), ids(labels)))).expect_err("it is refused");
            panic.downcast_ref::<String>().cloned().expect("a sentence")
        };
        assert!(
            message(1, 1).contains("[3, 1], but a loss needs rows of at least 2 tokens"),
            "{name}: {}",
            message(1, 1)
        );
        assert!(message(4, 3).contains("ids [3, 4] and labels [3, 3] differ in shape"), "{name}: {}", message(4, 3));
        assert!(loss(ids(2), ids(2)).into_scalar().is_finite(), "{name}: 2 tokens have a loss");
    }

    #[test]
    fn a_loss_of_one_token_is_refused_with_a_sentence() {
        let (key, device) = (Key::new(0), Default::default());
        let config =
            Gpt2Config { n_layer: 1, n_head: 2, n_embd: 8, n_positions: 8, vocab_size: 10, ..Default::default() };
        let model = Gpt2::<Flex>::init(&config, key, &device).expect("a model");
        refuses("gpt2", |ids, labels| model.loss(ids, labels, None));

        let config = LlamaConfig {
            hidden_size: 8,
            intermediate_size: 16,
            num_hidden_layers: 1,
            num_attention_heads: 2,
            num_key_value_heads: Some(1),
            max_position_embeddings: 8,
            vocab_size: 10,
            ..Default::default()
        };
        let model = Llama::<Flex>::init(&config, key, &device).expect("a model");
        refuses("llama", |ids, labels| model.loss(ids, labels, None));

        let config = GptNeoConfig {
            hidden_size: 8,
            // The default list of attention kinds has 24 entries.
            num_layers: 24,
            num_heads: 2,
            max_position_embeddings: 8,
            vocab_size: 10,
            ..Default::default()
        };
        let model = GptNeo::<Flex>::init(&config, key, &device).expect("a model");
        refuses("gpt_neo", |ids, labels| model.loss(ids, labels, None));
    }
}
