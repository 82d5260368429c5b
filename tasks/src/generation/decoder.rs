//! Decoding steps of a model.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Backend, ops::select_rows};
use grove_layers::CacheRows;
use grove_models::{CausalLm, DecodeCache};
use std::{cell::RefCell, collections::HashMap};

use super::rows::int_tensor;

/// Minimum capacity of a cache of fixed size, in positions. The capacity doubles when the cache is full.
const FIRST_CAPACITY: usize = 64;

/// Returns the capacity of a fixed-size cache for this many positions.
pub(super) fn capacity(positions: usize) -> usize {
    positions.next_power_of_two().max(FIRST_CAPACITY)
}

/// Logits of the next token, `[b, vocab_size]`, and the cache with the positions processed.
pub(super) type Decoded<B, M> = (Tensor<B, 2>, <M as CausalLm<B>>::Cache);

/// Decoding steps of a model.
pub(super) trait Decoder<B: Backend, M: CausalLm<B>> {
    /// Returns the model.
    fn model(&self) -> &M;

    /// Returns an empty cache for a prompt of this many positions and at most `steps` steps.
    fn new_cache(&self, prompt: usize, steps: usize) -> M::Cache;

    /// Returns true if a step is compiled for its number of rows.
    fn compiles(&self) -> bool {
        B::LAZY
    }

    /// Returns true if the cache contains all that later steps need of the earlier ones.
    fn uses_cache(&self) -> bool {
        true
    }

    /// Runs [`CausalLm::decode`] with a cache that contains `seen` positions.
    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], cache: M::Cache, seen: usize) -> Decoded<B, M>;
}

/// Processes prompts, `[rows, t]`, with an empty cache, before at most `steps` steps. Equal prompts, as of several samples,
/// are processed once.
pub(super) fn decode_prompts<B: Backend, M: CausalLm<B>>(
    decoder: &dyn Decoder<B, M>,
    prompts: &[Vec<u32>],
    padding: &[usize],
    cache: M::Cache,
    steps: usize,
) -> Decoded<B, M> {
    let (len, device) = (prompts.first().map_or(0, Vec::len), decoder.model().device());
    // The prompts that differ, and the index of each prompt among them.
    let (mut distinct, mut distinct_padding, mut indices) = (vec![], vec![], HashMap::new());
    let mut rows = vec![];
    for (prompt, &pad) in prompts.iter().zip(padding) {
        rows.push(*indices.entry((prompt, pad)).or_insert_with(|| {
            distinct.push(prompt.clone());
            distinct_padding.push(pad);
            distinct.len() - 1
        }));
    }
    if distinct.len() == prompts.len() || !decoder.uses_cache() || !joins::<B, M>() {
        return decoder.decode(int_tensor(prompts, &device), padding, cache, 0);
    }
    let (logits, cache) = decoder.decode(int_tensor(&distinct, &device), &distinct_padding, cache, 0);
    let indices: Vec<i64> = rows.iter().map(|&row| row as i64).collect();
    let logits = select_rows(logits, Tensor::from_data(TensorData::new(indices, [rows.len()]), &device));
    let cache = M::Cache::join(vec![CacheRows { cache, len, rows }], len, len.saturating_add(steps));
    (logits, cache.unwrap_or_else(|| unreachable!("caches can be joined")))
}

/// Returns true if the model's caches can be joined.
pub(super) fn joins<B: Backend, M: CausalLm<B>>() -> bool {
    M::Cache::join(vec![], 0, 0).is_some()
}

/// Eager steps.
pub(super) struct Eager<'a, M>(pub &'a M);

impl<B: Backend, M: CausalLm<B>> Decoder<B, M> for Eager<'_, M> {
    fn model(&self) -> &M {
        self.0
    }

    fn new_cache(&self, prompt: usize, steps: usize) -> M::Cache {
        new_cache(self.0, prompt, prompt.saturating_add(steps))
    }

    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], cache: M::Cache, seen: usize) -> Decoded<B, M> {
        let (mut cache, chunks) = chunks(self.0, ids, padding, cache, seen);
        let mut logits = None;
        for ids in chunks {
            let (of_chunk, next) = self.0.decode(ids, padding, cache);
            (logits, cache) = (Some(of_chunk), next);
        }
        (logits.unwrap_or_else(|| unreachable!("a step reads at least one token")), cache)
    }
}

/// Steps of another decoder, each of which processes all tokens again.
pub(super) struct Again<'a, B: Backend, M> {
    inner: &'a dyn Decoder<B, M>,
    /// Tokens processed so far, `[b, t]`.
    read: RefCell<Option<Tensor<B, 2, Int>>>,
}

impl<'a, B: Backend, M: CausalLm<B>> Again<'a, B, M> {
    pub(super) fn new(inner: &'a dyn Decoder<B, M>) -> Self {
        Self { inner, read: RefCell::new(None) }
    }
}

impl<B: Backend, M: CausalLm<B>> Decoder<B, M> for Again<'_, B, M> {
    fn model(&self) -> &M {
        self.inner.model()
    }

    fn new_cache(&self, prompt: usize, _steps: usize) -> M::Cache {
        self.inner.new_cache(prompt, 0)
    }

    fn uses_cache(&self) -> bool {
        false
    }

    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], _cache: M::Cache, seen: usize) -> Decoded<B, M> {
        let before = self.read.take().filter(|_| seen > 0);
        let all = Tensor::cat(before.into_iter().chain([ids]).collect(), 1);
        self.read.replace(Some(all.clone()));
        let cache = self.new_cache(all.dims()[1], 0);
        self.inner.decode(all, padding, cache, 0)
    }
}

/// Returns an empty cache with room for `room` positions, of which the first `prompt` are processed at once. On
/// compiling backends it has a fixed size: otherwise each number of positions would need its own program.
pub(super) fn new_cache<B: Backend, M: CausalLm<B>>(model: &M, prompt: usize, room: usize) -> M::Cache {
    if B::LAZY { model.new_fixed_cache(capacity(prompt.saturating_add(1))) } else { model.new_cache(room) }
}

/// Returns a cache with room for the tokens `[b, t]`, and the tokens in chunks. On compiling backends, tokens without
/// padding are split into power-of-two chunks, so that few programs are compiled. Otherwise there is one chunk.
pub(super) fn chunks<B: Backend, M: CausalLm<B>>(
    model: &M,
    ids: Tensor<B, 2, Int>,
    padding: &[usize],
    cache: M::Cache,
    seen: usize,
) -> (M::Cache, Vec<Tensor<B, 2, Int>>) {
    if !B::LAZY {
        return (cache, vec![ids]);
    }
    let t = ids.dims()[1];
    let cache = cache.with_capacity(capacity(seen + t));
    if padding.iter().any(|&pad| pad > 0) || model.reads_prompts_whole() {
        return (cache, vec![ids]);
    }
    let (mut parts, mut at) = (Vec::new(), 0);
    while at < t {
        let size = 1 << (t - at).ilog2();
        parts.push(ids.clone().narrow(1, at, size));
        at += size;
    }
    (cache, parts)
}
