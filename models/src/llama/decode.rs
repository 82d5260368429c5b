use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::KvCache;

use super::{Layer, Llama, LlamaState};
use crate::{Decoder, generation::Rewind};

impl<B: Backend> Llama<B> {
    /// Bytes of the decoding state of a sequence of this many positions.
    pub fn cache_bytes(&self, positions: usize) -> usize {
        let windows = self.layers.iter().map(|layer| layer.self_attn.window);
        let numbers = 2 * self.config.n_kv_head() * self.config.head_dim();
        KvCache::<B>::bytes(windows, positions, numbers, self.norm.weight.dtype().size())
    }
}

impl<B: Backend> Decoder<B> for Llama<B> {
    type State = LlamaState<B>;

    fn start(&self, room: usize) -> LlamaState<B> {
        let cache = |layer: &Layer<B>| KvCache::seeing(layer.self_attn.window, room);
        LlamaState { caches: self.layers.iter().map(cache).collect() }
    }

    fn decode(&self, ids: Tensor<B, 2, Int>, padding: &[usize], state: LlamaState<B>) -> (Tensor<B, 2>, LlamaState<B>) {
        let (x, state) = self.advance(ids, padding, state);
        let [b, t, _] = x.dims();
        (self.logits(x.narrow(1, t - 1, 1)).reshape([b, self.config.vocab_size]), state)
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn context(&self) -> Option<usize> {
        Some(self.config.max_position_embeddings)
    }

    fn device(&self) -> B::Device {
        self.embed_tokens.device()
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.config.eos_token_id.to_vec()
    }
}

impl<B: Backend> Rewind<B> for Llama<B> {
    fn decode_last(&self, ids: Tensor<B, 2, Int>, n: usize, state: LlamaState<B>) -> (Tensor<B, 3>, LlamaState<B>) {
        let (x, state) = self.advance(ids, &[], state);
        let t = x.dims()[1];
        (self.logits(x.narrow(1, t - n, n)), state)
    }

    fn rewind(&self, state: LlamaState<B>, len: usize) -> Option<LlamaState<B>> {
        let caches = state.caches.into_iter().map(|cache| cache.truncate(len)).collect::<Option<_>>()?;
        Some(LlamaState { caches })
    }
}
