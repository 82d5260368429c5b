//! The LLaMA model. Papers: "LLaMA: Open and Efficient Foundation Language Models" (Touvron et al., 2023) and its
//! successors. Reference: transformers' `models/llama/modeling_llama.py`.

use burn::tensor::{DType, Int, Tensor};
use grove_backend::Backend;
use grove_layers::{
    AttentionMask, Embedding, KvCache, MaybeQuantized, QuantEmbedding, QuantLinear, RmsNorm, Rope, RopeAngles, attend,
    join_heads, part_key,
};
use grove_tree::{AnyArray, Init, Key, Path, Tree};
use grove_weights::{NameMap, TensorFiles};
use serde_json::{Map, Value};

use super::{
    LlamaConfig,
    feed_forward::{Mlp, linear},
    pretrained, published_names,
};
use crate::{
    CausalLm, Pretrained, PretrainedConfig,
    error::Result,
    generation::{fixed_position_ids, layer_masks, row_positions},
};

/// LLaMA, or a model with its architecture, with its language-modelling head.
///
/// ```
/// use grove_models::{Llama, LlamaConfig, Pretrained, PretrainedConfig};
/// use grove_tree::count_params;
/// # type B = burn_flex::Flex;
/// let skeleton = Llama::<B>::skeleton(&LlamaConfig::preset("smollm2-135m")?)?; // without weights
/// assert_eq!(count_params(&skeleton), 134_515_008);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
pub struct Llama<B: Backend> {
    /// Token embedding, `[vocab_size, hidden_size]`.
    pub embed_tokens: QuantEmbedding<B>,
    /// Decoder layers.
    pub layers: Vec<Layer<B>>,
    /// Final norm.
    pub norm: RmsNorm<B>,
    /// Output layer, `[vocab_size, hidden_size]`; `None` if it is tied to the token embedding.
    pub lm_head: Option<QuantEmbedding<B>>,
    /// Rotary position embedding.
    #[tree(static)]
    pub rope: Rope,
    /// Configuration.
    #[tree(static)]
    pub config: LlamaConfig,
}

/// Decoder layer: attention and a feed-forward layer, each preceded by a norm and added to the residual stream.
#[derive(Tree, Clone, Debug)]
pub struct Layer<B: Backend> {
    /// Norm before the attention.
    pub input_layernorm: RmsNorm<B>,
    /// Self-attention.
    pub self_attn: Attention<B>,
    /// Norm before the feed-forward layer.
    pub post_attention_layernorm: RmsNorm<B>,
    /// Feed-forward layer.
    pub mlp: Mlp<B>,
}

/// Causal grouped-query self-attention: each key-value head serves a group of query heads. Ainslie et al., "GQA"
/// (2023).
#[derive(Tree, Clone, Debug)]
pub struct Attention<B: Backend> {
    /// Query projection, `hidden_size` to `n_head * head_dim`.
    pub q_proj: QuantLinear<B>,
    /// Key projection, `hidden_size` to `n_kv_head * head_dim`.
    pub k_proj: QuantLinear<B>,
    /// Value projection, `hidden_size` to `n_kv_head * head_dim`.
    pub v_proj: QuantLinear<B>,
    /// Output projection, `n_head * head_dim` to `hidden_size`.
    pub o_proj: QuantLinear<B>,
    /// Head dimension.
    pub head_dim: usize,
    /// Attention window: the number of positions that a query attends to, including its own; `None` for all.
    pub window: Option<usize>,
}

impl<B: Backend> Pretrained<B> for Llama<B> {
    type Config = LlamaConfig;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// zero biases.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &LlamaConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let (hidden, std, eps) = (config.hidden_size, config.initializer_range, config.rms_norm_eps);
        let (queries, keys) = (config.num_attention_heads * config.head_dim(), config.n_kv_head() * config.head_dim());
        let [bias, output_bias] = config.attention_biases();
        let activation = config.activation()?;
        let table = |init: &Init<B>| MaybeQuantized::Dense(Embedding::normal(config.vocab_size, hidden, std, init));
        let layer = |i: usize| {
            let init = init.named("layers").fold_in(i as u32);
            let attn = init.named("self_attn");
            Layer {
                input_layernorm: RmsNorm::new(hidden, eps, &init),
                self_attn: Attention {
                    q_proj: linear(hidden, queries, std, bias, &attn.named("q_proj")),
                    k_proj: linear(hidden, keys, std, bias, &attn.named("k_proj")),
                    v_proj: linear(hidden, keys, std, bias, &attn.named("v_proj")),
                    o_proj: linear(queries, hidden, std, output_bias, &attn.named("o_proj")),
                    head_dim: config.head_dim(),
                    window: config.window(i),
                },
                post_attention_layernorm: RmsNorm::new(hidden, eps, &init),
                mlp: Mlp::new(config, activation, &init.named("mlp")),
            }
        };
        Ok(Self {
            embed_tokens: table(&init.named("embed_tokens")),
            layers: (0..config.num_hidden_layers).map(layer).collect(),
            norm: RmsNorm::new(hidden, eps, init),
            lm_head: (!config.tie_word_embeddings).then(|| table(&init.named("lm_head"))),
            rope: config.rope()?,
            config: config.clone(),
        })
    }

    fn config(&self) -> &LlamaConfig {
        &self.config
    }

    fn published_names(config: &LlamaConfig) -> NameMap {
        published_names(config)
    }

    /// Returns the model without weights. Weights are stored in `dtype`, or if that is `None` as they are in the file:
    /// 16-bit weights stay 16-bit, and quantized matrices stay quantized if the backend multiplies quantized blocks,
    /// else become 16-bit. CPU backends compute in f32 nevertheless and widen weights on the fly.
    fn skeleton_for(checkpoint: &TensorFiles, config: &LlamaConfig, dtype: Option<DType>) -> Result<Self> {
        pretrained::skeleton_for(checkpoint, config, dtype)
    }

    /// # Errors
    /// The model is quantized, or its rotary angles have explicit factors. A `config.json` can express neither.
    fn published_config(&self) -> Result<Map<String, Value>> {
        pretrained::published_config(self)
    }
}

impl<B: Backend> CausalLm<B> for Llama<B> {
    type Cache = Vec<KvCache<B>>;

    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: Option<&mut Vec<KvCache<B>>>,
        key: Option<Key>,
    ) -> Tensor<B, 3> {
        let (t, device) = (ids.dims()[1], ids.device());
        let windows: Vec<Option<usize>> = self.layers.iter().map(|layer| layer.self_attn.window).collect();
        let masks = layer_masks(&windows, ids.dims(), cache.as_deref(), padding, &device);

        // Activations have the dtype of the norms, which can be wider than that of the matrices.
        let mut x = self.embed_tokens.rows(ids).cast(self.norm.weight.dtype()); // [b, t, hidden_size]
        let first = cache.as_ref().and_then(|cache| cache.first());
        let rotation = match (fixed_position_ids(first, t, padding), first) {
            (Some(positions), Some(cache)) => {
                let all = cache.visible_range(t);
                debug_assert_eq!(all.start, 0, "a cache of fixed size begins with the text");
                self.rope.table(all.end, t, x.dtype(), &device).select(positions)
            }
            _ => {
                let (positions, rows) = row_positions(first.map_or(0, KvCache::len), t, padding);
                self.rope.at(&positions, rows, x.dtype(), &device)
            }
        };
        let mut caches = cache.into_iter().flatten();
        for (i, (layer, mask)) in self.layers.iter().zip(&masks).enumerate() {
            let weights = part_key(key, i).map(|key| (self.config.attention_dropout, key));
            x = layer.forward(x, &rotation, mask, caches.next(), weights);
        }
        self.norm.forward(x)
    }

    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.lm_head.as_ref().unwrap_or(&self.embed_tokens).attend(hidden)
    }

    fn new_cache(&self, room: usize) -> Vec<KvCache<B>> {
        self.layers.iter().map(|layer| KvCache::for_window(layer.self_attn.window, room)).collect()
    }

    fn cache_bytes(&self, positions: usize) -> Option<usize> {
        let windows = self.layers.iter().map(|layer| layer.self_attn.window);
        let values = 2 * self.config.n_kv_head() * self.config.head_dim();
        Some(KvCache::<B>::bytes(windows, positions, values, self.norm.weight.dtype().size()))
    }

    fn with_dropout(mut self, rate: f64) -> Self {
        self.config.attention_dropout = rate;
        self
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn context(&self) -> Option<usize> {
        Some(self.config.trained_positions())
    }

    /// Returns `None`: rotary position embeddings have no maximum length.
    fn position_limit(&self) -> Option<usize> {
        None
    }

    fn reads_prompts_whole(&self) -> bool {
        self.rope.depends_on_length()
    }

    fn device(&self) -> B::Device {
        self.embed_tokens.device()
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.config.eos_token_id.to_vec()
    }
}

impl<B: Backend> Llama<B> {
    /// Returns true if some weights are quantized.
    pub fn is_quantized(&self) -> bool {
        let mut found = false;
        self.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| found |= leaf.dtype() == DType::U8);
        found
    }
}

impl<B: Backend> Layer<B> {
    /// Computes the layer's output. If there is a cache, `x` holds the positions that follow the cached ones, and their
    /// keys and values are appended to the cache. `weights` is the dropout rate of the attention weights, with its key.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        rotation: &RopeAngles<B>,
        mask: &AttentionMask<B>,
        cache: Option<&mut KvCache<B>>,
        weights: Option<(f64, Key)>,
    ) -> Tensor<B, 3> {
        let y = self.self_attn.forward(self.input_layernorm.forward(x.clone()), rotation, mask, cache, weights);
        let x = x + y;
        let y = self.mlp.forward(self.post_attention_layernorm.forward(x.clone()));
        x + y
    }
}

impl<B: Backend> Attention<B> {
    /// Computes the attention of [`Layer::forward`].
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    pub fn forward(
        &self,
        x: Tensor<B, 3>,
        rotation: &RopeAngles<B>,
        mask: &AttentionMask<B>,
        cache: Option<&mut KvCache<B>>,
        weights: Option<(f64, Key)>,
    ) -> Tensor<B, 3> {
        let ([b, t, _], head_dim) = (x.dims(), self.head_dim);
        let heads =
            |linear: &QuantLinear<B>| linear.forward(x.clone()).reshape([b, t, linear.outputs() / head_dim, head_dim]);
        let (q, k) = (rotation.apply(heads(&self.q_proj)), rotation.apply(heads(&self.k_proj))); // [b, t, n, head_dim]
        let [q, k, v] = [q, k, heads(&self.v_proj)].map(|x| x.swap_dims(1, 2)); // [b, n_head or n_kv_head, t, head_dim]
        let [k, v] = match cache {
            Some(cache) => cache.update(k, v),
            None => [k, v],
        };
        let y = attend(q, k, v, mask, 1.0 / (head_dim as f64).sqrt(), weights); // [b, n_head, t, head_dim]
        self.o_proj.forward(join_heads(y))
    }
}
