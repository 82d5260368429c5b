//! The GPT-Neo model. Paper: Black et al., "GPT-Neo: Large Scale Autoregressive Language Modeling with Mesh-Tensorflow"
//! (2021). Reference: transformers' `models/gpt_neo/modeling_gpt_neo.py`.

use burn::tensor::{DType, FloatDType, Int, Tensor};
use grove_backend::{Backend, at_least_f32, to_dtype};
use grove_layers::{DecoderPass, Dropout, Embedding, KvCache, LayerNorm, LayerPass, Linear, join_heads, to_heads};
use grove_tree::{Init, Key, Tree};
use grove_weights::{NameMap, TensorFiles};

use super::{AttentionKind, GptNeoConfig, published_names};
use crate::{
    CausalLm, Pretrained, PretrainedConfig,
    error::Result,
    gpt2::{self, Mlp, SelfAttention},
    pretrained::computing_in,
};

/// GPT-Neo with its language-modelling head.
///
/// ```
/// use grove_models::{GptNeo, GptNeoConfig, Pretrained, PretrainedConfig};
/// use grove_tree::count_params;
/// # type B = burn_flex::Flex;
/// let skeleton = GptNeo::<B>::skeleton(&GptNeoConfig::preset("gpt-neo-125m")?)?; // without weights
/// assert_eq!(count_params(&skeleton), 125_198_592);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
pub struct GptNeo<B: Backend> {
    /// Token embedding, `[vocab_size, hidden_size]`.
    pub wte: Embedding<B>,
    /// Position embedding, `[max_position_embeddings, hidden_size]`.
    pub wpe: Embedding<B>,
    /// Dropout of the embeddings.
    pub drop: Dropout,
    /// Transformer blocks.
    pub h: Vec<Block<B>>,
    /// Final layer norm.
    pub ln_f: LayerNorm<B>,
    /// Output layer, `[vocab_size, hidden_size]`; `None` if it is tied to the token embedding.
    pub lm_head: Option<Embedding<B>>,
    /// Configuration.
    #[tree(static)]
    pub config: GptNeoConfig,
}

impl<B: Backend> CausalLm<B> for GptNeo<B> {
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
        let dtype = self.ln_f.weight.dtype();
        let positions = self.wpe.forward(pass.positions()).cast(dtype);
        let x = self.wte.forward(ids).cast(dtype) + positions; // [b, t, hidden_size]
        let mut x = self.drop.forward(x, pass.key("drop"));
        for (i, block) in self.h.iter().enumerate() {
            x = block.forward(x, &mut pass.layer(i));
        }
        self.ln_f.forward(x)
    }

    #[track_caller]
    fn lm_head(&self, hidden: Tensor<B, 3>) -> Tensor<B, 3> {
        self.lm_head.as_ref().unwrap_or(&self.wte).attend(hidden)
    }

    fn new_cache(&self, room: usize) -> Self::Cache {
        self.h.iter().map(|block| KvCache::for_window(block.attn.window, room)).collect()
    }

    fn cache_bytes(&self, positions: usize, dtype: Option<FloatDType>) -> Option<usize> {
        let dtype = dtype.map_or(self.ln_f.weight.dtype(), DType::from);
        let windows = self.h.iter().map(|block| block.attn.window);
        Some(KvCache::<B>::bytes(windows, positions, 2 * self.config.hidden_size, dtype.size()))
    }

    fn with_dropout(mut self, rate: f64) -> Self {
        let (config, dropout) = (&mut self.config, Dropout::new(rate));
        (config.embed_dropout, config.attention_dropout, config.resid_dropout) = (rate, rate, rate);
        self.drop = dropout;
        for Block { attn, mlp, .. } in &mut self.h {
            (attn.attn_dropout, attn.resid_dropout, mlp.dropout) = (dropout, dropout, dropout);
        }
        self
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn context(&self) -> Option<usize> {
        Some(self.config.max_position_embeddings)
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.config.eos_token_id.to_vec()
    }
}

/// Transformer block of GPT-2 with another attention.
pub type Block<B> = gpt2::Block<B, Attention<B>>;

/// Causal multi-head self-attention over all positions or a sliding window. The scores are not scaled.
#[derive(Tree, Clone, Debug)]
pub struct Attention<B: Backend> {
    /// Query projection, `[hidden_size, hidden_size]`.
    pub q_proj: Linear<B>,
    /// Key projection, `[hidden_size, hidden_size]`.
    pub k_proj: Linear<B>,
    /// Value projection, `[hidden_size, hidden_size]`.
    pub v_proj: Linear<B>,
    /// Output projection, `[hidden_size, hidden_size]`.
    pub out_proj: Linear<B>,
    /// Number of heads.
    pub num_heads: usize,
    /// Attention window: the number of positions that a query attends to, including its own; `None` for all.
    pub window: Option<usize>,
    /// Dropout of the attention weights.
    pub attn_dropout: Dropout,
    /// Dropout of the output.
    pub resid_dropout: Dropout,
}

impl<B: Backend> SelfAttention<B> for Attention<B> {
    /// Scores are computed in f32: they are not scaled and would exceed the precision of 16-bit floats.
    #[track_caller]
    fn forward(&self, x: Tensor<B, 3>, pass: &mut LayerPass<'_, B>) -> Tensor<B, 3> {
        let dtype = x.dtype();
        let [q, k, v] = [&self.q_proj, &self.k_proj, &self.v_proj]
            .map(|projection| at_least_f32(to_heads(projection.forward(x.clone()), self.num_heads))); // [b, num_heads, t, head_dim]
        let y = pass.attend_within(self.window, q, k, v, 1.0, self.attn_dropout); // [b, num_heads, t, head_dim]
        let y = to_dtype(y, dtype);
        self.resid_dropout.forward(self.out_proj.forward(join_heads(y)), pass.key("attn"))
    }
}

impl<B: Backend> Pretrained<B> for GptNeo<B> {
    type Config = GptNeoConfig;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// zero biases.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &GptNeoConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let activation = config.activation()?;
        let (size, std, eps) = (config.hidden_size, config.initializer_range, config.layer_norm_epsilon);
        let resid_dropout = Dropout::new(config.resid_dropout);
        let block = |(i, kind): (usize, AttentionKind)| {
            let init = init.named("h").fold_in(i as u32);
            let (attn, mlp) = (init.named("attn"), init.named("mlp"));
            let plain = |name: &str| Linear { bias: None, ..Linear::normal(size, size, std, attn.named(name)) };
            Block {
                ln_1: LayerNorm::new(size, eps, &init),
                attn: Attention {
                    q_proj: plain("q_proj"),
                    k_proj: plain("k_proj"),
                    v_proj: plain("v_proj"),
                    out_proj: Linear::normal(size, size, std, attn.named("out_proj")),
                    num_heads: config.num_heads,
                    window: (kind == AttentionKind::Local).then_some(config.window_size),
                    attn_dropout: Dropout::new(config.attention_dropout),
                    resid_dropout,
                },
                ln_2: LayerNorm::new(size, eps, &init),
                mlp: Mlp {
                    c_fc: Linear::normal(size, config.inner(), std, mlp.named("c_fc")),
                    c_proj: Linear::normal(config.inner(), size, std, mlp.named("c_proj")),
                    activation,
                    dropout: resid_dropout,
                },
            }
        };
        Ok(Self {
            wte: Embedding::normal(config.vocab_size, size, std, init.named("wte")),
            wpe: Embedding::normal(config.max_position_embeddings, size, std, init.named("wpe")),
            drop: Dropout::new(config.embed_dropout),
            h: config.kinds().take(config.num_layers).enumerate().map(block).collect(),
            ln_f: LayerNorm::new(size, eps, init),
            lm_head: (!config.tie_word_embeddings)
                .then(|| Embedding::normal(config.vocab_size, size, std, init.named("lm_head"))),
            config: config.clone(),
        })
    }

    fn config(&self) -> &GptNeoConfig {
        &self.config
    }

    fn published_names(config: &GptNeoConfig) -> NameMap {
        published_names(config)
    }

    /// Returns the model without weights. Matrices are stored in `dtype`, or if that is `None` in the dtype of the
    /// file. CPU backends compute in f32 nevertheless and widen 16-bit weights on the fly.
    fn skeleton_for(checkpoint: &TensorFiles, config: &GptNeoConfig, dtype: Option<DType>) -> Result<Self> {
        Ok(computing_in::<B, _>(Self::skeleton(config)?, checkpoint, &published_names(config), dtype))
    }
}
