//! The LLaMA model. Papers: "LLaMA: Open and Efficient Foundation Language Models" (Touvron et al., 2023) and its
//! successors. Reference: transformers' `models/llama/modeling_llama.py`.

use burn::tensor::{DType, FloatDType, Int, Tensor};
use grove_backend::{Backend, ops, to_dtype};
use grove_layers::{
    Activation, DecoderPass, Dropout, Embedding, KvCache, LayerPass, Linear, MaybeQuantized, QuantEmbedding,
    QuantLinear, RmsNorm, Rope, RopeAngles, RopeScaling, join_heads,
};
use grove_tree::{AnyArray, Init, Key, Path, Tree};
use grove_weights::{NameMap, TensorFiles};
use serde_json::{Map, Value};

use super::{LlamaConfig, published_names};
use crate::{
    CausalLm, Pretrained, PretrainedConfig,
    error::{Result, invalid},
    pretrained::{computing_in, fields_of},
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

impl<B: Backend> CausalLm<B> for Llama<B> {
    type Cache = Vec<KvCache<B>>;

    #[track_caller]
    fn forward_hidden(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        cache: Option<&mut Self::Cache>,
        key: Option<Key>,
    ) -> Tensor<B, 3> {
        let mut pass = DecoderPass::new(&ids, padding, cache, key);
        // Activations have the dtype of the norms, which can be wider than that of the matrices.
        let mut x = to_dtype(self.embed_tokens.rows(ids), self.norm.weight.dtype()); // [b, t, hidden_size]
        let rotation = pass.rope(&self.rope, x.dtype());
        for (i, layer) in self.layers.iter().enumerate() {
            x = layer.forward(x, &rotation, &mut pass.layer(i));
        }
        self.norm.forward(x)
    }

    #[track_caller]
    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.lm_head.as_ref().unwrap_or(&self.embed_tokens).attend(hidden)
    }

    fn new_cache(&self, room: usize) -> Self::Cache {
        self.layers.iter().map(|layer| KvCache::for_window(layer.self_attn.window, room)).collect()
    }

    fn cache_bytes(&self, positions: usize, dtype: Option<FloatDType>) -> Option<usize> {
        let dtype = dtype.map_or(self.norm.weight.dtype(), DType::from);
        let windows = self.layers.iter().map(|layer| layer.self_attn.window);
        let values = 2 * self.config.n_kv_head() * self.config.head_dim();
        Some(KvCache::<B>::bytes(windows, positions, values, dtype.size()))
    }

    fn with_dropout(mut self, rate: f64) -> Self {
        self.config.attention_dropout = rate;
        for layer in &mut self.layers {
            layer.self_attn.dropout = Dropout::new(rate);
        }
        self
    }

    fn with_quantized_activations(self) -> Option<Self> {
        self.rounding_activations()
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

impl<B: Backend> Layer<B> {
    /// Computes the layer's output.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, rotation: &RopeAngles<B>, pass: &mut LayerPass<'_, B>) -> Tensor<B, 3> {
        let x = x.clone() + self.self_attn.forward(self.input_layernorm.forward(x), rotation, pass);
        x.clone() + self.mlp.forward(self.post_attention_layernorm.forward(x))
    }
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
    /// Norm of each query head, `[head_dim]`; only Qwen3 has it.
    pub q_norm: Option<RmsNorm<B>>,
    /// Norm of each key head, `[head_dim]`; only Qwen3 has it.
    pub k_norm: Option<RmsNorm<B>>,
    /// Head dimension.
    pub head_dim: usize,
    /// Attention window: the number of positions that a query attends to, including its own; `None` for all.
    pub window: Option<usize>,
    /// Dropout of the attention weights.
    pub dropout: Dropout,
}

impl<B: Backend> Attention<B> {
    /// Computes the attention over the cached positions and those of `x`.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, rotation: &RopeAngles<B>, pass: &mut LayerPass<'_, B>) -> Tensor<B, 3> {
        let ([b, t, _], head_dim) = (x.dims(), self.head_dim);
        let heads = |projection: &QuantLinear<B>| {
            let n = projection.outputs() / head_dim;
            projection.forward(x.clone()).reshape([b, t, n, head_dim])
        };
        let [q, k, v] = [&self.q_proj, &self.k_proj, &self.v_proj].map(heads); // [b, t, n_head or n_kv_head, head_dim]
        let q = rotation.apply(norm_heads(q, self.q_norm.as_ref()));
        let k = rotation.apply(norm_heads(k, self.k_norm.as_ref()));
        let [q, k, v] = [q, k, v].map(|x| x.swap_dims(1, 2)); // [b, n_head or n_kv_head, t, head_dim]
        let scale = 1.0 / (head_dim as f64).sqrt();
        let y = pass.attend_within(self.window, q, k, v, scale, self.dropout); // [b, n_head, t, head_dim]
        self.o_proj.forward(join_heads(y))
    }
}

#[track_caller]
fn norm_heads<B: Backend>(x: Tensor<B, 4>, norm: Option<&RmsNorm<B>>) -> Tensor<B, 4> {
    match norm {
        Some(norm) => norm.forward(x),
        None => x,
    }
}

/// Gated feed-forward layer: Shazeer, "GLU Variants Improve Transformer" (2020).
#[derive(Tree, Clone, Debug)]
pub struct Mlp<B: Backend> {
    /// Gate projection, `hidden_size` to `intermediate_size`; its output is activated.
    pub gate_proj: QuantLinear<B>,
    /// Up projection, `hidden_size` to `intermediate_size`; its output is multiplied by the gate.
    pub up_proj: QuantLinear<B>,
    /// Down projection, `intermediate_size` to `hidden_size`.
    pub down_proj: QuantLinear<B>,
    /// Activation of the gate.
    #[tree(static)]
    pub activation: Activation,
}

impl<B: Backend> Mlp<B> {
    /// Applies the layer.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>) -> Tensor<B, 3> {
        let (gate, up) = (self.gate_proj.forward(x.clone()), self.up_proj.forward(x));
        let inner = match self.activation {
            Activation::Silu => ops::swiglu(gate, up),
            other => other.forward(gate) * up,
        };
        self.down_proj.forward(inner)
    }
}

impl<B: Backend> Pretrained<B> for Llama<B> {
    type Config = LlamaConfig;

    const KEEPS_QUANTIZED: bool = true;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// zero biases.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &LlamaConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let (hidden, inner) = (config.hidden_size, config.intermediate_size);
        let (std, eps) = (config.initializer_range, config.rms_norm_eps);
        let (queries, keys) = (config.num_attention_heads * config.head_dim(), config.n_kv_head() * config.head_dim());
        let [bias, output_bias] = config.attention_biases();
        let activation = config.activation()?;
        let table = |init: &Init<B>| MaybeQuantized::Dense(Embedding::normal(config.vocab_size, hidden, std, init));
        let norm = |init: &Init<B>| config.has_head_norms().then(|| RmsNorm::new(config.head_dim(), eps, init));
        let layer = |i: usize| {
            let init = init.named("layers").fold_in(i as u32);
            let (attn, mlp) = (init.named("self_attn"), init.named("mlp"));
            Layer {
                input_layernorm: RmsNorm::new(hidden, eps, &init),
                self_attn: Attention {
                    q_proj: linear(hidden, queries, std, bias, &attn.named("q_proj")),
                    k_proj: linear(hidden, keys, std, bias, &attn.named("k_proj")),
                    v_proj: linear(hidden, keys, std, bias, &attn.named("v_proj")),
                    o_proj: linear(queries, hidden, std, output_bias, &attn.named("o_proj")),
                    q_norm: norm(&attn),
                    k_norm: norm(&attn),
                    head_dim: config.head_dim(),
                    window: config.window(i),
                    dropout: Dropout::new(config.attention_dropout),
                },
                post_attention_layernorm: RmsNorm::new(hidden, eps, &init),
                mlp: Mlp {
                    gate_proj: linear(hidden, inner, std, config.mlp_bias, &mlp.named("gate_proj")),
                    up_proj: linear(hidden, inner, std, config.mlp_bias, &mlp.named("up_proj")),
                    down_proj: linear(inner, hidden, std, config.mlp_bias, &mlp.named("down_proj")),
                    activation,
                },
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
        let (names, skeleton) = (published_names(config), Self::skeleton(config)?);
        let skeleton = if dtype.is_none() { skeleton.quantized_as(checkpoint, &names) } else { skeleton };
        Ok(computing_in::<B, _>(skeleton, checkpoint, &names, dtype))
    }

    /// # Errors
    /// The model is quantized, or its rotary angles have explicit factors. A `config.json` can express neither.
    fn published_config(&self) -> Result<Map<String, Value>> {
        if self.is_quantized() {
            return invalid(
                "it is quantized, which a safetensors file cannot say; load it with a dtype (f16, say) and save that",
            );
        }
        if matches!(self.rope.scaling, RopeScaling::Factors(_)) {
            return invalid("its rotary angles have scaling factors that a config.json cannot express");
        }
        fields_of(&self.config)
    }
}

/// Creates a linear layer with the published initialisation, and a zero bias if it has one.
fn linear<B: Backend>(inputs: usize, outputs: usize, std: f64, bias: bool, init: &Init<B>) -> QuantLinear<B> {
    let linear = Linear::normal(inputs, outputs, std, init);
    MaybeQuantized::Dense(if bias { linear } else { Linear { bias: None, ..linear } })
}
