//! The BERT encoder. Paper: "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (Devlin
//! et al., 2019). Reference: transformers' `models/bert/modeling_bert.py`, and the counterparts in `roberta` and
//! `distilbert`.

use burn::tensor::{DType, Int, Tensor, activation::tanh};
use grove_backend::Backend;
use grove_layers::{
    Activation, AttentionMask, Embedding, LayerNorm, Linear, attend, dropout, feed_forward, join_heads, named_key,
    part_key, to_heads,
};
use grove_transform::eval_shape;
use grove_tree::{Init, Key, Tree, cast};
use grove_weights::{NameMap, TensorFiles};
use serde_json::{Map, Value};

use super::{
    BertConfig, TextBatch,
    input::{bucketed_len, longest},
    names::published_names,
    pretrained::has_pooler,
};
use crate::{Pretrained, PretrainedConfig, error::Result};

/// BERT, RoBERTa or DistilBERT without a head. Computes the hidden states of all tokens.
#[derive(Tree, Clone, Debug)]
pub struct Bert<B: Backend> {
    /// Embeddings of the tokens.
    pub embeddings: BertEmbeddings<B>,
    /// Stack of layers.
    pub encoder: BertEncoder<B>,
    /// Pooler over the first token's state; `None` if the model has no pooler.
    pub pooler: Option<BertPooler<B>>,
    /// Configuration.
    #[tree(static)]
    pub config: BertConfig,
}

/// Embeddings: the sum of word, position and token-type embeddings, with a layer norm.
#[derive(Tree, Clone, Debug)]
pub struct BertEmbeddings<B: Backend> {
    /// Word embedding, `[vocab_size, hidden_size]`.
    pub word_embeddings: Embedding<B>,
    /// Position embedding, `[max_position_embeddings, hidden_size]`.
    pub position_embeddings: Embedding<B>,
    /// Token-type (segment) embedding, `[type_vocab_size, hidden_size]`; `None` for DistilBERT.
    pub token_type_embeddings: Option<Embedding<B>>,
    /// Layer norm of the sum.
    pub layer_norm: LayerNorm<B>,
}

/// Stack of encoder layers.
#[derive(Tree, Clone, Debug)]
pub struct BertEncoder<B: Backend> {
    /// Layers, from first to last.
    pub layer: Vec<BertLayer<B>>,
}

/// Post-norm encoder layer: attention and a feed-forward layer, each with a residual connection followed by a layer
/// norm.
#[derive(Tree, Clone, Debug)]
pub struct BertLayer<B: Backend> {
    /// Self-attention with its residual connection and layer norm.
    pub attention: BertAttention<B>,
    /// First linear layer of the feed-forward layer, `[hidden_size, intermediate_size]`.
    pub intermediate: Linear<B>,
    /// Second linear layer of the feed-forward layer, `[intermediate_size, hidden_size]`.
    pub output: Linear<B>,
    /// Layer norm after the feed-forward layer's residual connection.
    pub layer_norm: LayerNorm<B>,
    /// Activation between the two linear layers.
    #[tree(static)]
    pub activation: Activation,
}

/// Multi-head self-attention without a causal mask, with its residual connection and layer norm.
#[derive(Tree, Clone, Debug)]
pub struct BertAttention<B: Backend> {
    /// Query projection, `[hidden_size, hidden_size]`.
    pub query: Linear<B>,
    /// Key projection, `[hidden_size, hidden_size]`.
    pub key: Linear<B>,
    /// Value projection, `[hidden_size, hidden_size]`.
    pub value: Linear<B>,
    /// Output projection, `[hidden_size, hidden_size]`.
    pub output: Linear<B>,
    /// Layer norm after the residual connection.
    pub layer_norm: LayerNorm<B>,
    /// Number of heads.
    pub n_head: usize,
}

/// Pooler: a linear layer and tanh over the first token's state.
#[derive(Tree, Clone, Debug)]
pub struct BertPooler<B: Backend> {
    /// Linear layer, `[hidden_size, hidden_size]`.
    pub dense: Linear<B>,
}

impl<B: Backend> Pretrained<B> for Bert<B> {
    type Config = BertConfig;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// zero biases. It has a pooler unless it is a DistilBERT.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &BertConfig, init: &Init<B>) -> Result<Self> {
        Self::with_pooler(config, config.type_vocab_size > 0, init)
    }

    fn config(&self) -> &BertConfig {
        &self.config
    }

    fn published_names(config: &BertConfig) -> NameMap {
        published_names(config, true)
    }

    fn published_config(&self) -> Result<Map<String, Value>> {
        Ok(self.config.published("Model"))
    }

    /// Returns the model without weights; all leaves have `dtype`, f32 if `None`. The model has a pooler if the file
    /// has one. Heads are ignored.
    fn skeleton_for(checkpoint: &TensorFiles, config: &BertConfig, dtype: Option<DType>) -> Result<Self> {
        let pooler = has_pooler(checkpoint, config);
        let skeleton = eval_shape(|init| Self::with_pooler(config, pooler, init))?;
        Ok(cast(skeleton, dtype.unwrap_or(DType::F32).into()))
    }
}

impl<B: Backend> Bert<B> {
    /// Creates a model as [`new`](Pretrained::new) does, with or without a pooler.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    pub fn with_pooler(config: &BertConfig, pooler: bool, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let (n, std, eps) = (config.hidden_size, config.initializer_range, config.layer_norm_eps);
        let activation = config.activation()?;
        let embedding =
            |symbols: usize, name: &str| Embedding::normal(symbols, n, std, &init.named("embeddings").named(name));
        let layer = |i: usize| {
            let init = init.named("encoder").named("layer").fold_in(i as u32);
            let attention = init.named("attention");
            let square = |name: &str| Linear::normal(n, n, std, &attention.named(name));
            BertLayer {
                attention: BertAttention {
                    query: square("query"),
                    key: square("key"),
                    value: square("value"),
                    output: square("output"),
                    layer_norm: LayerNorm::new(n, eps, &attention),
                    n_head: config.num_attention_heads,
                },
                intermediate: Linear::normal(n, config.intermediate_size, std, &init.named("intermediate")),
                output: Linear::normal(config.intermediate_size, n, std, &init.named("output")),
                layer_norm: LayerNorm::new(n, eps, &init),
                activation,
            }
        };
        Ok(Self {
            embeddings: BertEmbeddings {
                word_embeddings: embedding(config.vocab_size, "word_embeddings"),
                position_embeddings: embedding(config.max_position_embeddings, "position_embeddings"),
                token_type_embeddings: (config.type_vocab_size > 0)
                    .then(|| embedding(config.type_vocab_size, "token_type_embeddings")),
                layer_norm: LayerNorm::new(n, eps, init),
            },
            encoder: BertEncoder { layer: (0..config.num_hidden_layers).map(layer).collect() },
            pooler: pooler.then(|| BertPooler { dense: Linear::normal(n, n, std, &init.named("pooler")) }),
            config: config.clone(),
        })
    }

    /// Creates a batch of sequences on the model's device.
    ///
    /// # Errors
    /// As [`TextBatch::new`].
    pub fn batch(&self, texts: &[super::TextIds]) -> Result<TextBatch<B>> {
        TextBatch::new(texts, &self.config, &self.device())
    }

    /// Creates a batch of sequences on the model's device, padded to one of a few lengths; see [`TextBatch::with_len`].
    ///
    /// # Errors
    /// As [`TextBatch::new`].
    pub fn bucketed_batch(&self, texts: &[super::TextIds]) -> Result<TextBatch<B>> {
        TextBatch::with_len(
            texts,
            bucketed_len(longest(texts)).min(self.config.positions()),
            &self.config,
            &self.device(),
        )
    }

    fn device(&self) -> B::Device {
        self.embeddings.word_embeddings.weight.val().device()
    }

    /// Computes the last hidden states of all tokens. Dropout is applied if a `key` is given. The states of padding are
    /// meaningless.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, t, hidden_size]`
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 3> {
        let mut states = self.states(texts, key);
        let mut last = states.next().expect("the embeddings");
        for state in states {
            last = state;
        }
        last
    }

    /// Iterates over the hidden states, each `[b, t, hidden_size]`: the embeddings, then the output of each layer.
    /// States are computed lazily.
    pub fn states<'a>(&'a self, texts: &TextBatch<B>, key: Option<Key>) -> impl Iterator<Item = Tensor<B, 3>> + 'a {
        let mask = texts.attention_mask();
        let x = dropout(self.embed(texts), self.config.hidden_dropout_prob, named_key(key, "embeddings"));
        let mut layers = self.encoder.layer.iter().enumerate();
        std::iter::successors(Some(x), move |x| {
            let (i, layer) = layers.next()?;
            Some(layer.forward(x.clone(), &mask, &self.config, part_key(named_key(key, "layer"), i)))
        })
    }

    /// Applies the pooler to the first token's state: `[b, t, hidden_size]` to `[b, hidden_size]`. Returns `None` if
    /// the model has no pooler.
    pub fn pool(&self, states: Tensor<B, 3>) -> Option<Tensor<B, 2>> {
        let pooler = self.pooler.as_ref()?;
        Some(tanh(pooler.dense.forward(first(states))))
    }

    fn embed(&self, texts: &TextBatch<B>) -> Tensor<B, 3> {
        let ids = texts.ids.val();
        let ([b, t], n) = (ids.dims(), self.config.hidden_size);
        let parts = &self.embeddings;
        let positions = match &texts.positions {
            Some(positions) => positions.val(),
            None => {
                let from = self.config.first_position() as i64;
                Tensor::<B, 1, Int>::arange(from..from + t as i64, &ids.device()).reshape([1, t])
            }
        };
        let rows = positions.dims()[0];
        let positions = parts.position_embeddings.forward(positions); // [b or 1, t, hidden_size]
        // Reshaped to matrices, for which broadcasting is fast on all backends.
        let x = parts.word_embeddings.forward(ids).reshape([b, t * n]) + positions.reshape([rows, t * n]);
        let x = x.reshape([b, t, n]);
        let x = match &parts.token_type_embeddings {
            Some(types) => x + types.forward(texts.token_types.val()),
            None => x,
        };
        parts.layer_norm.forward(x)
    }
}

/// Returns the first token's state: `[b, t, n]` to `[b, n]`.
pub(super) fn first<B: Backend>(states: Tensor<B, 3>) -> Tensor<B, 2> {
    let [b, _, n] = states.dims();
    states.narrow(1, 0, 1).reshape([b, n])
}

impl<B: Backend> BertLayer<B> {
    fn forward(&self, x: Tensor<B, 3>, mask: &AttentionMask<B>, config: &BertConfig, key: Option<Key>) -> Tensor<B, 3> {
        let x = self.attention.forward(x, mask, config, named_key(key, "attention"));
        let y = feed_forward(x.clone(), &self.intermediate, self.activation, &self.output);
        self.layer_norm.forward(x + dropout(y, config.hidden_dropout_prob, named_key(key, "output")))
    }
}

impl<B: Backend> BertAttention<B> {
    fn forward(&self, x: Tensor<B, 3>, mask: &AttentionMask<B>, config: &BertConfig, key: Option<Key>) -> Tensor<B, 3> {
        let heads = |layer: &Linear<B>| to_heads(layer.forward(x.clone()), self.n_head);
        let scale = 1.0 / ((x.dims()[2] / self.n_head) as f64).sqrt();
        let attended = attend(
            heads(&self.query),
            heads(&self.key),
            heads(&self.value),
            mask,
            scale,
            named_key(key, "weights").map(|key| (config.attention_probs_dropout_prob, key)),
        );
        let y = self.output.forward(join_heads(attended));
        self.layer_norm.forward(x + dropout(y, config.hidden_dropout_prob, named_key(key, "output")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;
    use grove_tree::count_params;

    #[test]
    fn published_sizes_have_the_published_numbers_of_parameters() {
        // Counted by transformers: `sum(p.numel() for p in AutoModel.from_config(config).parameters())`.
        let known = [
            ("bert-tiny-uncased", 4_385_920),
            ("bert-base-uncased", 109_482_240),
            ("bert-base-cased", 108_310_272),
            ("bert-large-uncased", 335_141_888),
            ("roberta-base", 124_645_632),
            ("distilbert-base-uncased", 66_362_880),
        ];
        for (name, count) in known {
            let config = BertConfig::preset(name).unwrap();
            let skeleton = Bert::<Flex>::skeleton(&config).unwrap();
            assert_eq!(count_params(&skeleton), count, "{name}");
        }
    }

    #[test]
    fn dropout_follows_its_key() {
        let config = BertConfig { hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, ..Default::default() };
        let config = BertConfig { vocab_size: 11, intermediate_size: 8, max_position_embeddings: 8, ..config };
        let model = Bert::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
        let texts = model.batch(&[vec![1, 2, 3].into(), vec![4].into()]).unwrap();
        let states = |key: Option<u64>| model.forward(&texts, key.map(Key::new)).into_data();
        assert_eq!(states(Some(1)), states(Some(1)));
        assert_ne!(states(Some(1)), states(Some(2)));
        assert_ne!(states(Some(1)), states(None));
    }
}
