//! Byte-level decoder: causal attention with a cache, training, and generation.

use grove::layers::{DecoderPass, Dropout, KvCache, LayerPass, activation::gelu, join_heads, split_heads};
use grove::prelude::*;

/// Embedding width.
pub const WIDTH: usize = 32;
/// Number of attention heads.
pub const HEADS: usize = 4;

/// Byte-level decoder. The output layer shares the token embedding, and only the causal mask encodes positions.
#[derive(Tree, Clone, Debug)]
#[allow(missing_docs)]
pub struct Decoder<B: Backend> {
    pub tokens: Embedding<B>,
    pub blocks: Vec<Block<B>>,
    pub norm: RmsNorm<B>,
}

/// Attention and a feed-forward layer, each added to the residual stream.
#[derive(Tree, Clone, Debug)]
#[allow(missing_docs)]
pub struct Block<B: Backend> {
    pub norms: [RmsNorm<B>; 2],
    pub qkv: Linear<B>,
    pub out: Linear<B>,
    pub up: Linear<B>,
    pub down: Linear<B>,
}

impl<B: Backend> Block<B> {
    /// Creates a block with normally distributed weights.
    pub fn new(init: &Init<B>) -> Self {
        let (n, norm) = (WIDTH, || RmsNorm::new(WIDTH, 1e-6, init));
        let sizes = [("qkv", n, 3 * n), ("out", n, n), ("up", n, 4 * n), ("down", 4 * n, n)];
        let [qkv, out, up, down] = sizes.map(|(name, from, to)| Linear::normal(from, to, 0.1, init.named(name)));
        Self { norms: [norm(), norm()], qkv, out, up, down }
    }

    /// Maps `[b, t, WIDTH]` to `[b, t, WIDTH]`. With a cache, the positions follow those in it.
    pub fn forward(&self, x: Tensor<B, 3>, pass: &mut LayerPass<'_, B>) -> Tensor<B, 3> {
        let [q, k, v] = split_heads(self.qkv.forward(self.norms[0].forward(x.clone())), HEADS);
        let scale = (HEADS as f64 / WIDTH as f64).sqrt();
        let y = pass.attend(q, k, v, scale, Dropout::new(0.0)); // [b, HEADS, t, WIDTH / HEADS]
        let x = x + self.out.forward(join_heads(y));
        x.clone() + self.down.forward(gelu(self.up.forward(self.norms[1].forward(x))))
    }
}

/// Creates a decoder of `layers` blocks.
pub fn decoder<B: Backend>(layers: u32, init: &Init<B>) -> Decoder<B> {
    let blocks = (0..layers).map(|i| Block::new(&init.fold_in(i))).collect();
    Decoder { tokens: Embedding::normal(256, WIDTH, 0.1, init), blocks, norm: RmsNorm::new(WIDTH, 1e-6, init) }
}

impl<B: Backend> CausalLm<B> for Decoder<B> {
    type Cache = Vec<KvCache<B>>;

    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: Option<&mut Self::Cache>,
        key: Option<Key>,
    ) -> Tensor<B, 3> {
        let mut pass = DecoderPass::new(&ids, padding, cache, key);
        let mut x = self.tokens.forward(ids); // [b, t, WIDTH]
        for (i, block) in self.blocks.iter().enumerate() {
            x = block.forward(x, &mut pass.layer(i));
        }
        self.norm.forward(x)
    }

    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.tokens.attend(hidden)
    }

    fn new_cache(&self, room: usize) -> Self::Cache {
        vec![KvCache::with_room(room); self.blocks.len()]
    }

    fn vocab_size(&self) -> usize {
        256
    }
}

/// Trains on one text for `steps` steps.
pub fn train<B: Backend>(mut model: Decoder<B>, text: &Tensor<B, 2, Int>, steps: u32) -> Decoder<B> {
    let loss = |model: Decoder<_>, ids: &Tensor<B, 2, Int>, key| {
        let ids = Tensor::from_inner(ids.clone());
        model.loss(ids.clone(), ids, Some(key))
    };
    let optimizer = adamw(3e-3, Adamw::default());
    let step = train_step(loss, &optimizer, StepOptions::default());
    let mut state = optimizer.init(&model);
    for i in 0..steps {
        (model, state, _) = step(model, state, text, Key::new(0).fold_in(i));
    }
    model
}
