//! Decoding with a cache.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::KvCache;

use super::{Block, GptNeo, GptNeoState};
use crate::{Decoder, generation::Rewind};

impl<B: Backend> GptNeo<B> {
    /// Bytes of the decoding state of a sequence of this many positions.
    pub fn cache_bytes(&self, positions: usize) -> usize {
        let windows = self.h.iter().map(|block| block.attn.window);
        KvCache::<B>::bytes(windows, positions, 2 * self.config.hidden_size, self.ln_f.weight.dtype().size())
    }

    /// Reads the next positions. Returns the logits after each of the last `n`, and the new state.
    fn advance(
        &self,
        ids: Tensor<B, 2, Int>,
        n: usize,
        padding: &[usize],
        state: GptNeoState<B>,
    ) -> (Tensor<B, 3>, GptNeoState<B>) {
        let (t, device) = (ids.dims()[1], ids.device());
        let seen = state.caches.first().map_or(0, KvCache::len);
        let masks = self.masks(t, |i| state.caches[i].keys_of(t), padding, &device);
        let mut x = self.embed(ids, seen, padding);
        let mut caches = Vec::with_capacity(self.h.len());
        for ((block, cache), mask) in self.h.iter().zip(state.caches).zip(&masks) {
            let (y, cache) = block.decode(x, mask, cache);
            x = y;
            caches.push(cache);
        }
        let last = x.narrow(1, t - n, n); // [b, n, hidden_size]
        (self.wte.attend(self.ln_f.forward(last)), GptNeoState { caches })
    }
}

impl<B: Backend> Decoder<B> for GptNeo<B> {
    type State = GptNeoState<B>;

    fn start(&self, room: usize) -> GptNeoState<B> {
        let cache = |block: &Block<B>| KvCache::seeing(block.attn.window, room);
        GptNeoState { caches: self.h.iter().map(cache).collect() }
    }

    fn decode(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        state: GptNeoState<B>,
    ) -> (Tensor<B, 2>, GptNeoState<B>) {
        let (logits, state) = self.advance(ids, 1, padding, state);
        let b = logits.dims()[0];
        (logits.reshape([b, self.config.vocab_size]), state)
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn context(&self) -> Option<usize> {
        Some(self.config.max_position_embeddings)
    }

    fn device(&self) -> B::Device {
        self.wte.weight.val().device()
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.config.eos_token_id.into_iter().collect()
    }
}

impl<B: Backend> Rewind<B> for GptNeo<B> {
    fn decode_last(&self, ids: Tensor<B, 2, Int>, n: usize, state: GptNeoState<B>) -> (Tensor<B, 3>, GptNeoState<B>) {
        self.advance(ids, n, &[], state)
    }

    fn rewind(&self, state: GptNeoState<B>, len: usize) -> Option<GptNeoState<B>> {
        let caches = state.caches.into_iter().map(|cache| cache.truncate(len)).collect::<Option<_>>()?;
        Some(GptNeoState { caches })
    }
}
