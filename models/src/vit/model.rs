//! The ViT model. Papers: "An Image is Worth 16x16 Words" (Dosovitskiy et al., 2020), "DINOv2" (Oquab et al., 2023),
//! "Vision Transformers Need Registers" (Darcet et al., 2023). References: transformers' `models/vit/modeling_vit.py`
//! and the counterparts in `dinov2` and `dinov2_with_registers`, timm's `vision_transformer.py`, torchvision's
//! `models/vision_transformer.py`.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{LayerNorm, Linear, dropout, loss, mean_of_axis, named_key, part_key};
use grove_tree::{Array, Init, Key, Tree};
use grove_weights::NameMap;
use serde_json::{Map, Value};

use super::{Pooling, VitBlock, VitConfig, published_names};
use crate::{Pretrained, PretrainedConfig, error::Result};

/// ViT or DINOv2 with an optional classification head.
#[derive(Tree, Clone, Debug)]
pub struct Vit<B: Backend> {
    /// Embeddings of the image patches.
    pub embeddings: VitEmbeddings<B>,
    /// Transformer blocks, from first to last.
    pub blocks: Vec<VitBlock<B>>,
    /// Final layer norm, of the last states or of their mean; see [`Pooling`].
    pub norm: LayerNorm<B>,
    /// Classification head, `[pooled_size, classes]`; `None` if the configuration has no labels.
    pub head: Option<Linear<B>>,
    /// Configuration.
    #[tree(static)]
    pub config: VitConfig,
}

/// Embeddings: patch projection, prefix tokens and position embeddings.
#[derive(Tree, Clone, Debug)]
pub struct VitEmbeddings<B: Backend> {
    /// Patch projection, `[num_channels * patch_size^2, hidden_size]`.
    pub patch: Linear<B>,
    /// Class token, `[1, 1, hidden_size]`; `None` if the model has no class token.
    pub class: Option<Array<B, 3>>,
    /// Register tokens, `[1, num_register_tokens, hidden_size]`; `None` if the model has no registers.
    pub registers: Option<Array<B, 3>>,
    /// Position embeddings, `[1, position_prefix + patches, hidden_size]`.
    pub positions: Array<B, 3>,
}

/// Features of images.
#[derive(Clone, Debug)]
pub struct Features<B: Backend> {
    /// Last states, `[b, tokens, hidden_size]`: the class token, the registers, and the patches in row-major order.
    /// They are normalised, except with [`Pooling::MeanThenNorm`].
    pub last: Tensor<B, 3>,
    /// Pooled features, `[b, pooled_size]`: the input of the head.
    pub pooled: Tensor<B, 2>,
}

impl<B: Backend> Pretrained<B> for Vit<B> {
    type Config = VitConfig;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// zero biases.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &VitConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let (n, std) = (config.hidden_size, config.initializer_range);
        let embeddings = init.named("embeddings");
        let token = |name: &str, count: usize| embeddings.named(name).normal([1, count, n], std);
        let [rows, columns] = config.grid();
        let pixels = config.num_channels * config.patch_size * config.patch_size;
        let block = |i: usize| VitBlock::new(config, &init.named("blocks").fold_in(i as u32));
        let classes = config.labels.len();
        Ok(Self {
            embeddings: VitEmbeddings {
                patch: Linear::normal(pixels, n, std, &embeddings.named("patch")),
                class: config.class_token.then(|| token("class", 1)),
                registers: (config.num_register_tokens > 0).then(|| token("registers", config.num_register_tokens)),
                positions: token("positions", config.position_prefix + rows * columns),
            },
            blocks: (0..config.num_hidden_layers).map(block).collect::<Result<_>>()?,
            norm: LayerNorm::new(n, config.layer_norm_eps, init),
            head: (classes > 0).then(|| Linear::normal(config.pooled_size(), classes, std, &init.named("head"))),
            config: config.clone(),
        })
    }

    fn config(&self) -> &VitConfig {
        &self.config
    }

    fn published_names(config: &VitConfig) -> NameMap {
        published_names(config)
    }

    fn published_config(&self) -> Result<Map<String, Value>> {
        self.config.to_json()
    }
}

impl<B: Backend> Vit<B> {
    /// Returns the logits of the classes, or the pooled features if the model has no head. Dropout is applied if a
    /// `key` is given.
    ///
    /// # Shapes
    /// - pixels `[b, num_channels, h, w]`, normalised as in training, of any floating-point dtype. For sizes other than
    ///   `image_size`, the position embeddings are interpolated. Partial patches at the right and bottom edges are
    ///   ignored.
    /// - output `[b, classes]`, in the weights' dtype
    ///
    /// # Panics
    /// If an image is smaller than a patch.
    pub fn forward(&self, pixels: Tensor<B, 4>, key: Option<Key>) -> Tensor<B, 2> {
        let pooled = self.pool(self.last(pixels, key));
        match &self.head {
            Some(head) => head.forward(pooled),
            None => pooled,
        }
    }

    /// Returns the last states and the pooled features. Pixels are as in [`forward`](Self::forward).
    pub fn features(&self, pixels: Tensor<B, 4>) -> Features<B> {
        let last = self.last(pixels, None);
        Features { pooled: self.pool(last.clone()), last }
    }

    /// Iterates over the hidden states, each `[b, tokens, hidden_size]`: the embeddings, then the output of each block.
    /// States are computed lazily.
    pub fn states(&self, pixels: Tensor<B, 4>, key: Option<Key>) -> impl Iterator<Item = Tensor<B, 3>> + '_ {
        let x = self.embed_and_drop(pixels, key);
        let mut blocks = self.blocks.iter().enumerate();
        std::iter::successors(Some(x), move |x| {
            let (i, block) = blocks.next()?;
            Some(self.step(x.clone(), i, block, key))
        })
    }

    /// Returns the attention weights of every block, each `[b, n_head, tokens, tokens]`. Pixels are as in
    /// [`forward`](Self::forward).
    pub fn attentions(&self, pixels: Tensor<B, 4>) -> Vec<Tensor<B, 4>> {
        let states = self.states(pixels, None);
        self.blocks.iter().zip(states).map(|(block, x)| block.attention.weights(block.norm1.forward(x))).collect()
    }

    /// Computes the mean negative log-likelihood, in nats, of each image's class, `[b]`. Dropout is applied if a `key`
    /// is given.
    pub fn loss(&self, pixels: Tensor<B, 4>, labels: Tensor<B, 1, Int>, key: Option<Key>) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(pixels, key), labels)
    }

    /// Returns the model with a new head for other classes.
    #[must_use]
    pub fn with_new_head(self, labels: Vec<String>, key: Key) -> Self {
        let config = self.config.clone().with_labels(labels);
        let init = Init::new(key, &self.norm.weight.val().device());
        let (inputs, classes) = (config.pooled_size(), config.labels.len());
        let head = (classes > 0).then(|| Linear::normal(inputs, classes, config.initializer_range, &init));
        Self { head, config, ..self }
    }

    /// Returns the model for images of another size. The position embeddings are interpolated once and can then be
    /// trained.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the images are smaller than a patch.
    pub fn with_image_size(self, image_size: [usize; 2]) -> Result<Self> {
        let config = VitConfig { image_size, ..self.config.clone() };
        config.validate()?;
        let (positions, prefix) = (self.embeddings.positions.val(), config.position_prefix);
        let count = positions.dims()[1];
        let of_patches = positions.clone().narrow(1, prefix, count - prefix);
        let of_patches = config.interpolation().apply(of_patches, self.config.grid(), config.grid());
        let positions = match prefix {
            0 => of_patches,
            _ => Tensor::cat(vec![positions.narrow(1, 0, prefix), of_patches], 1),
        };
        let embeddings = VitEmbeddings { positions: Array::new(positions), ..self.embeddings };
        Ok(Self { embeddings, config, ..self })
    }

    /// Returns the stochastic-depth rate of a block: linear from 0 in the first block to `drop_path_rate` in the last.
    fn drop_path(&self, block: usize) -> f64 {
        self.config.drop_path_rate * block as f64 / (self.blocks.len() - 1).max(1) as f64
    }

    fn last(&self, pixels: Tensor<B, 4>, key: Option<Key>) -> Tensor<B, 3> {
        // Avoids `states`, which keeps the previous state alive.
        let blocks = self.blocks.iter().enumerate();
        let x = blocks.fold(self.embed_and_drop(pixels, key), |x, (i, block)| self.step(x, i, block, key));
        if self.config.pooling == Pooling::MeanThenNorm { x } else { self.norm.forward(x) }
    }

    fn embed_and_drop(&self, pixels: Tensor<B, 4>, key: Option<Key>) -> Tensor<B, 3> {
        dropout(self.embed(pixels), self.config.hidden_dropout_prob, named_key(key, "embeddings"))
    }

    fn step(&self, x: Tensor<B, 3>, i: usize, block: &VitBlock<B>, key: Option<Key>) -> Tensor<B, 3> {
        block.forward(x, self.drop_path(i), &self.config, part_key(named_key(key, "blocks"), i))
    }

    fn pool(&self, x: Tensor<B, 3>) -> Tensor<B, 2> {
        let [b, t, n] = x.dims();
        let class = |x: Tensor<B, 3>| x.narrow(1, 0, 1).reshape([b, n]);
        let prefix = self.config.prefix_tokens();
        let mean = |x: Tensor<B, 3>| mean_of_axis(x.narrow(1, prefix, t - prefix), 1).reshape([b, n]);
        match self.config.pooling {
            Pooling::Class => class(x),
            Pooling::Mean => mean(x),
            Pooling::MeanThenNorm => self.norm.forward(mean(x)),
            Pooling::ClassAndMean => Tensor::cat(vec![class(x.clone()), mean(x)], 1),
        }
    }

    /// Computes the embeddings of an image's tokens, `[b, tokens, hidden_size]`.
    fn embed(&self, pixels: Tensor<B, 4>) -> Tensor<B, 3> {
        let ([b, channels, h, w], p, n) = (pixels.dims(), self.config.patch_size, self.config.hidden_size);
        let (rows, columns) = (h / p, w / p);
        assert!(rows > 0 && columns > 0, "an image of {h}x{w} pixels has no patch of {p}x{p}");
        // Pixels are f32, but the weights can be 16-bit.
        let pixels = pixels.cast(self.embeddings.patch.weight.dtype());
        let whole = pixels.narrow(2, 0, rows * p).narrow(3, 0, columns * p); // [b, channels, rows * p, columns * p]
        let patches = whole.reshape([b, channels, rows, p, columns, p]).permute([0, 2, 4, 1, 3, 5]);
        let patches = patches.reshape([b, rows * columns, channels * p * p]); // [b, patches, channels * p^2]
        let parts = &self.embeddings;
        let (positions, prefix) = (parts.positions.val(), self.config.position_prefix);
        let count = positions.dims()[1];
        let of_patches = positions.clone().narrow(1, prefix, count - prefix);
        let of_patches = self.config.interpolation().apply(of_patches, self.config.grid(), [rows, columns]);
        // Reshaped to matrices, for which broadcasting is fast on all backends.
        let t = rows * columns;
        let x = parts.patch.forward(patches).reshape([b, t * n]) + of_patches.reshape([1, t * n]);
        let before = [&parts.class, &parts.registers].into_iter().flatten().map(|token| token.val());
        let before: Vec<_> = before.collect();
        if before.is_empty() {
            return x.reshape([b, t, n]);
        }
        let before = Tensor::cat(before, 1); // [1, prefix tokens, n]
        let count = before.dims()[1];
        let before = match prefix {
            0 => before,
            _ if prefix == count => before + positions.narrow(1, 0, prefix),
            // The registers have no position embeddings.
            _ => Tensor::cat(
                vec![
                    before.clone().narrow(1, 0, prefix) + positions.narrow(1, 0, prefix),
                    before.narrow(1, prefix, count - prefix),
                ],
                1,
            ),
        };
        Tensor::cat(vec![before.expand([b, count, n]), x.reshape([b, t, n])], 1) // [b, tokens, n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn dropout_follows_its_key() {
        let config = VitConfig { hidden_size: 16, num_hidden_layers: 3, num_attention_heads: 2, ..Default::default() };
        let config = VitConfig { intermediate_size: 8, image_size: [8, 8], patch_size: 4, num_channels: 1, ..config };
        let rates: [fn(&mut VitConfig); 3] = [
            |config| config.hidden_dropout_prob = 0.2,
            |config| config.attention_probs_dropout_prob = 0.2,
            |config| config.drop_path_rate = 0.5,
        ];
        for set in rates {
            let mut config = VitConfig { initializer_range: 0.5, ..config.clone() };
            set(&mut config);
            let model = Vit::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
            let pixels = Key::new(1).normal::<Flex, 4>([5, 1, 8, 8], &Default::default());
            let found = |key: Option<u64>| model.forward(pixels.clone(), key.map(Key::new)).into_data();
            assert_eq!(found(Some(1)), found(Some(1)));
            assert_ne!(found(Some(1)), found(Some(2)));
            assert_ne!(found(Some(1)), found(None));
        }
    }
}
