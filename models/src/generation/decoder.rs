use burn::tensor::{Int, Tensor};
use grove_backend::Backend;

use super::CausalLm;

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
        self.0.new_cache(prompt.saturating_add(steps))
    }

    fn decode(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: M::Cache,
        _seen: usize,
    ) -> (Tensor<B, 2>, M::Cache) {
        self.0.decode(ids, padding, cache)
    }
}
