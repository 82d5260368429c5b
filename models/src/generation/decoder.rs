//! The decoding steps of a model.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use std::cell::RefCell;

use super::{CausalLm, DecodeCache};

/// The least capacity of a cache of fixed size, in positions. It doubles when it is full.
const FIRST_CAPACITY: usize = 64;

/// The capacity of a cache of fixed size that holds so many positions.
pub(super) fn capacity(positions: usize) -> usize {
    positions.next_power_of_two().max(FIRST_CAPACITY)
}

/// The decoding steps of a model.
pub(super) trait Decoder<B: Backend, M: CausalLm<B>> {
    /// The model.
    fn model(&self) -> &M;

    /// Returns an empty cache, for a prompt of this many positions and at most so many steps.
    fn new_cache(&self, prompt: usize, steps: usize) -> M::Cache;

    /// [`CausalLm::decode`] with a cache in which there are `seen` positions.
    fn decode(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: M::Cache,
        seen: usize,
    ) -> (Tensor<B, 2>, M::Cache);
}

/// Steps as the model computes them.
pub(super) struct Eager<'a, M>(pub &'a M);

impl<B: Backend, M: CausalLm<B>> Decoder<B, M> for Eager<'_, M> {
    fn model(&self) -> &M {
        self.0
    }

    fn new_cache(&self, prompt: usize, steps: usize) -> M::Cache {
        new_cache(self.0, prompt, prompt.saturating_add(steps))
    }

    fn decode(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: M::Cache,
        seen: usize,
    ) -> (Tensor<B, 2>, M::Cache) {
        let (mut cache, chunks) = chunks(self.0, ids, padding, cache, seen);
        let mut logits = None;
        for ids in chunks {
            let (of_chunk, next) = self.0.decode(ids, padding, cache);
            (logits, cache) = (Some(of_chunk), next);
        }
        (logits.unwrap_or_else(|| unreachable!("a step reads at least one token")), cache)
    }
}

/// The steps of another decoder, each of which reads all tokens again.
pub(super) struct Again<'a, B: Backend, M> {
    inner: &'a dyn Decoder<B, M>,
    /// The tokens that were read, `[b, t]`.
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

    fn decode(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        _cache: M::Cache,
        seen: usize,
    ) -> (Tensor<B, 2>, M::Cache) {
        let before = self.read.take().filter(|_| seen > 0);
        let all = Tensor::cat(before.into_iter().chain([ids]).collect(), 1);
        self.read.replace(Some(all.clone()));
        let cache = self.new_cache(all.dims()[1], 0);
        self.inner.decode(all, padding, cache, 0)
    }
}

/// An empty cache with room for `room` positions, of which the first `prompt` are read at once. Where programs are compiled, it is of
/// fixed size: each number of positions would be a program of its own.
pub(super) fn new_cache<B: Backend, M: CausalLm<B>>(model: &M, prompt: usize, room: usize) -> M::Cache {
    if B::LAZY { model.new_fixed_cache(capacity(prompt.saturating_add(1))) } else { model.new_cache(room) }
}

/// A cache with room for tokens `[b, t]`, and the tokens in the parts in which they are read: all at once, or where programs are
/// compiled and no row has padding, powers of two, of which there are few.
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
