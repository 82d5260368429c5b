//! Embeddings of an image: its patches, the prefix tokens and the positions.

use burn::tensor::Tensor;
use grove_backend::{Backend, to_dtype};
use grove_layers::{Dropout, Linear};
use grove_tree::{Array, Init, Key, Tree};

use super::{Interpolation, VitConfig};

/// Embeddings: patch projection, prefix tokens and position embeddings.
#[derive(Tree, Clone, Debug)]
pub struct VitEmbeddings<B: Backend> {
    /// Patch projection, `[num_channels * patch_size^2, hidden_size]`.
    pub patch_embed: Linear<B>,
    /// Class token, `[1, 1, hidden_size]`; `None` if the model has no class token.
    pub cls_token: Option<Array<B, 3>>,
    /// Register tokens, `[1, num_register_tokens, hidden_size]`; `None` if the model has no registers.
    pub reg_token: Option<Array<B, 3>>,
    /// Position embeddings, `[1, position_prefix + patches, hidden_size]`.
    pub pos_embed: Array<B, 3>,
    /// Height and width of a patch, in pixels.
    pub patch_size: usize,
    /// Number of patch rows and columns of the position embeddings.
    #[tree(static)]
    pub grid: [usize; 2],
    /// Interpolation of the position embeddings for images of another size.
    #[tree(static)]
    pub interpolation: Interpolation,
    /// Dropout of the embeddings.
    pub pos_drop: Dropout,
}

impl<B: Backend> VitEmbeddings<B> {
    /// Creates embeddings with the published initialisation.
    pub(super) fn new(config: &VitConfig, init: &Init<B>) -> Self {
        let (n, std, grid) = (config.hidden_size, config.initializer_range, config.grid());
        let (patch, registers) = (config.num_channels * config.patch_size.pow(2), config.num_register_tokens);
        let token = |name: &str, count: usize| init.named(name).normal([1, count, n], std);
        Self {
            // These names determine the initial weights of a seed, and so do not follow the fields.
            patch_embed: Linear::normal(patch, n, std, init.named("patch")),
            cls_token: config.class_token.then(|| token("class", 1)),
            reg_token: (registers > 0).then(|| token("registers", registers)),
            pos_embed: token("positions", config.position_prefix + grid[0] * grid[1]),
            patch_size: config.patch_size,
            grid,
            interpolation: config.interpolation(),
            pos_drop: Dropout::new(config.hidden_dropout_prob),
        }
    }

    /// Computes the embeddings of an image's tokens: the class token, the registers, and the patches in row-major order.
    ///
    /// # Shapes
    /// - pixels `[b, num_channels, h, w]`
    /// - output `[b, tokens, hidden_size]`
    ///
    /// # Panics
    /// If an image is smaller than a patch.
    #[track_caller]
    pub fn forward(&self, pixels: Tensor<B, 4>, key: Option<Key>) -> Tensor<B, 3> {
        let ([b, c, h, w], p) = (pixels.dims(), self.patch_size);
        let (rows, columns) = (h / p, w / p);
        assert!(rows > 0 && columns > 0, "an image of {h}x{w} pixels has no patch of {p}x{p}");
        // Pixels are f32, but the weights can be 16-bit.
        let pixels = to_dtype(pixels, self.patch_embed.weight.dtype());
        let pixels = pixels.narrow(2, 0, rows * p).narrow(3, 0, columns * p); // [b, c, rows * p, columns * p]
        let patches = pixels.reshape([b, c, rows, p, columns, p]).permute([0, 2, 4, 1, 3, 5]); // [b, rows, columns, c, p, p]
        let x = self.patch_embed.forward(patches.reshape([b, rows * columns, c * p * p])); // [b, rows * columns, n]
        let [_, t, n] = x.dims();
        let pos_embed = self.resample_pos_embed([rows, columns]); // [1, prefix + t, n]
        let prefix = pos_embed.dims()[1] - t;
        // Reshaped to matrices, for which broadcasting is fast on all backends.
        let of_patches = pos_embed.clone().narrow(1, prefix, t).reshape([1, t * n]); // [1, t * n]
        let x = (x.reshape([b, t * n]) + of_patches).reshape([b, t, n]); // [b, t * n] to [b, t, n]
        let mut tokens = Vec::with_capacity(3);
        let mut start = 0;
        for token in [&self.cls_token, &self.reg_token].into_iter().flatten() {
            let [_, count, _] = token.shape();
            let end = start + count;
            // Some models have no positions for the registers, or for any prefix token.
            let token =
                if end > prefix { token.val() } else { token.val() + pos_embed.clone().narrow(1, start, count) };
            tokens.push(token.expand([b, count, n]));
            start = end;
        }
        tokens.push(x);
        let x = if tokens.len() == 1 { tokens.remove(0) } else { Tensor::cat(tokens, 1) }; // [b, tokens, n]
        self.pos_drop.forward(x, key)
    }

    /// Returns the position embeddings of a grid of patch rows and columns, `[1, position_prefix + patches, hidden_size]`.
    /// Those of the prefix tokens are unchanged.
    pub(super) fn resample_pos_embed(&self, grid: [usize; 2]) -> Tensor<B, 3> {
        let pos_embed = self.pos_embed.val();
        if grid == self.grid {
            return pos_embed;
        }
        let count = pos_embed.dims()[1];
        let patches = self.grid[0] * self.grid[1];
        let prefix = count - patches;
        let of_patches = self.interpolation.apply(pos_embed.clone().narrow(1, prefix, patches), self.grid, grid);
        if prefix == 0 { of_patches } else { Tensor::cat(vec![pos_embed.narrow(1, 0, prefix), of_patches], 1) }
    }
}
