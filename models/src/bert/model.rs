//! The BERT encoder. Paper: "BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding" (Devlin
//! et al., 2019). Reference: transformers' `models/bert/modeling_bert.py`, and the counterparts in `roberta` and
//! `distilbert`.

use burn::tensor::{DType, Int, Tensor, activation::tanh};
use grove_backend::Backend;
use grove_layers::{
    Activation, AttentionMask, Dropout, Embedding, LayerNorm, Linear, attend, feed_forward, join_heads, named_key,
    part_key, to_heads,
};
use grove_text::TextIds;
use grove_transform::eval_shape;
use grove_tree::{Init, Key, Tree, cast};
use grove_weights::{NameMap, TensorFiles};
use serde_json::{Map, Value};

use super::{BertConfig, TextBatch, input::bucketed_len, names::published_names};
use crate::{Pretrained, PretrainedConfig, error::Result, texts::longest};

/// BERT, RoBERTa or DistilBERT without a head. Computes the hidden states of all tokens.
///
/// ```
/// use grove_models::{Bert, BertConfig, Pretrained};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let sizes = BertConfig { vocab_size: 50, hidden_size: 8, num_hidden_layers: 2, ..BertConfig::default() };
/// # let config = BertConfig { num_attention_heads: 2, intermediate_size: 16, ..sizes };
/// let bert = Bert::<B>::init(&config, Key::new(0), &Default::default())?;
/// let texts = bert.batch(&[vec![1, 2, 3].into(), vec![4].into()])?; // padded, with a mask
/// assert_eq!(bert.forward(&texts, None).dims(), [2, 3, 8]); // [b, t, hidden_size]
/// # Ok::<(), grove_models::ModelError>(())
/// ```
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

impl<B: Backend> Bert<B> {
    /// Computes the last hidden states of all tokens. Dropout is applied if a `key` is given. The states of padding are
    /// meaningless.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 3> {
        let mask = texts.attention_mask();
        let mut x = self.embeddings.forward(texts, named_key(key, "embeddings"));
        for (i, layer) in self.encoder.layer.iter().enumerate() {
            x = layer.forward(x, &mask, part_key(named_key(key, "layer"), i));
        }
        x
    }

    /// Returns the embeddings and the output of each layer, each `[b, t, hidden_size]`. The last one is the output of
    /// [`forward`](Self::forward).
    #[track_caller]
    pub fn hidden_states(&self, texts: &TextBatch<B>, key: Option<Key>) -> Vec<Tensor<B, 3>> {
        let mask = texts.attention_mask();
        let mut states = vec![self.embeddings.forward(texts, named_key(key, "embeddings"))];
        for (i, layer) in self.encoder.layer.iter().enumerate() {
            states.push(layer.forward(states[i].clone(), &mask, part_key(named_key(key, "layer"), i)));
        }
        states
    }

    /// Applies the pooler to the first token's state: `[b, t, hidden_size]` to `[b, hidden_size]`. Returns `None` if
    /// the model has no pooler.
    #[track_caller]
    pub fn pool(&self, states: Tensor<B, 3>) -> Option<Tensor<B, 2>> {
        self.pooler.as_ref().map(|pooler| pooler.forward(states))
    }

    /// Creates a batch of sequences on the model's device.
    ///
    /// # Errors
    /// As [`TextBatch::new`].
    pub fn batch(&self, texts: &[TextIds]) -> Result<TextBatch<B>> {
        TextBatch::new(texts, &self.config, &self.device())
    }

    /// Creates a batch of sequences on the model's device, padded to one of a few lengths; see [`TextBatch::with_len`].
    ///
    /// # Errors
    /// As [`TextBatch::new`].
    pub fn bucketed_batch(&self, texts: &[TextIds]) -> Result<TextBatch<B>> {
        let len = bucketed_len(longest(texts)).min(self.config.positions());
        TextBatch::with_len(texts, len, &self.config, &self.device())
    }

    fn device(&self) -> B::Device {
        self.embeddings.word_embeddings.weight.val().device()
    }

    /// Returns the model with this dropout rate in the embeddings and all layers. A head keeps its rate.
    #[must_use]
    pub fn with_dropout(mut self, rate: f64) -> Self {
        let dropout = Dropout::new(rate);
        (self.config.hidden_dropout_prob, self.config.attention_probs_dropout_prob) = (rate, rate);
        self.embeddings.dropout = dropout;
        for BertLayer { attention, dropout: output, .. } in &mut self.encoder.layer {
            (attention.attention_dropout, attention.dropout, *output) = (dropout, dropout, dropout);
        }
        self
    }
}

/// Embeddings: the sum of word, position and token-type embeddings, with a layer norm and dropout.
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
    /// Position of the first token. RoBERTa's positions begin after the padding token's.
    pub first_position: usize,
    /// Dropout of the output.
    pub dropout: Dropout,
}

impl<B: Backend> BertEmbeddings<B> {
    /// Computes the embeddings. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 3> {
        let [b, t] = texts.dims();
        let positions = match &texts.positions {
            Some(positions) => positions.val(),
            None => {
                let first = self.first_position as i64;
                Tensor::<B, 1, Int>::arange(first..first + t as i64, &texts.ids.val().device()).reshape([1, t])
            }
        };
        let words = self.word_embeddings.forward(texts.ids.val()); // [b, t, hidden_size]
        let positions = self.position_embeddings.forward(positions); // [b or 1, t, hidden_size]
        let [rows, _, n] = positions.dims();
        // Reshaped to matrices, for which broadcasting is fast on all backends.
        let sum = words.reshape([b, t * n]) + positions.reshape([rows, t * n]);
        let mut x = sum.reshape([b, t, n]);
        if let Some(types) = &self.token_type_embeddings {
            x = x + types.forward(texts.token_types.val());
        }
        self.dropout.forward(self.layer_norm.forward(x), key)
    }
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
    /// Dropout of the feed-forward layer's output.
    pub dropout: Dropout,
}

impl<B: Backend> BertLayer<B> {
    /// Computes the layer's output. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, mask: &AttentionMask<B>, key: Option<Key>) -> Tensor<B, 3> {
        let x = self.attention.forward(x, mask, named_key(key, "attention"));
        let y = feed_forward(x.clone(), &self.intermediate, self.activation, &self.output);
        self.layer_norm.forward(x + self.dropout.forward(y, named_key(key, "output")))
    }
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
    /// Dropout of the attention weights.
    pub attention_dropout: Dropout,
    /// Dropout of the output projection.
    pub dropout: Dropout,
}

impl<B: Backend> BertAttention<B> {
    /// Computes the attention with its residual connection and layer norm. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - x, output `[b, t, hidden_size]`
    #[track_caller]
    pub fn forward(&self, x: Tensor<B, 3>, mask: &AttentionMask<B>, key: Option<Key>) -> Tensor<B, 3> {
        let heads = |projection: &Linear<B>| to_heads(projection.forward(x.clone()), self.n_head);
        let [q, k, v] = [&self.query, &self.key, &self.value].map(heads); // each [b, n_head, t, head_dim]
        let scale = 1.0 / (q.dims()[3] as f64).sqrt();
        let y = attend(q, k, v, mask, scale, self.attention_dropout.with_key(named_key(key, "weights")));
        let y = self.output.forward(join_heads(y)); // [b, t, hidden_size]
        self.layer_norm.forward(x + self.dropout.forward(y, named_key(key, "output")))
    }
}

/// Pooler: a linear layer and tanh over the first token's state.
#[derive(Tree, Clone, Debug)]
pub struct BertPooler<B: Backend> {
    /// Linear layer, `[hidden_size, hidden_size]`.
    pub dense: Linear<B>,
}

impl<B: Backend> BertPooler<B> {
    /// Computes the features of texts: `[b, t, hidden_size]` to `[b, hidden_size]`.
    #[track_caller]
    pub fn forward(&self, states: Tensor<B, 3>) -> Tensor<B, 2> {
        tanh(self.dense.forward(first_token(states)))
    }
}

/// Returns the first token's state: `[b, t, n]` to `[b, n]`.
#[track_caller]
pub(super) fn first_token<B: Backend>(states: Tensor<B, 3>) -> Tensor<B, 2> {
    let [b, _, n] = states.dims();
    states.narrow(1, 0, 1).reshape([b, n])
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
        let dropout = Dropout::new(config.hidden_dropout_prob);
        let embedding =
            |symbols: usize, name: &str| Embedding::normal(symbols, n, std, init.named("embeddings").named(name));
        let layer = |i: usize| {
            let init = init.named("encoder").named("layer").fold_in(i as u32);
            let attention = init.named("attention");
            let square = |name: &str| Linear::normal(n, n, std, attention.named(name));
            BertLayer {
                attention: BertAttention {
                    query: square("query"),
                    key: square("key"),
                    value: square("value"),
                    output: square("output"),
                    layer_norm: LayerNorm::new(n, eps, &attention),
                    n_head: config.num_attention_heads,
                    attention_dropout: Dropout::new(config.attention_probs_dropout_prob),
                    dropout,
                },
                intermediate: Linear::normal(n, config.intermediate_size, std, init.named("intermediate")),
                output: Linear::normal(config.intermediate_size, n, std, init.named("output")),
                layer_norm: LayerNorm::new(n, eps, &init),
                activation,
                dropout,
            }
        };
        Ok(Self {
            embeddings: BertEmbeddings {
                word_embeddings: embedding(config.vocab_size, "word_embeddings"),
                position_embeddings: embedding(config.max_position_embeddings, "position_embeddings"),
                token_type_embeddings: (config.type_vocab_size > 0)
                    .then(|| embedding(config.type_vocab_size, "token_type_embeddings")),
                layer_norm: LayerNorm::new(n, eps, init),
                first_position: config.first_position(),
                dropout,
            },
            encoder: BertEncoder { layer: (0..config.num_hidden_layers).map(layer).collect() },
            pooler: pooler.then(|| BertPooler { dense: Linear::normal(n, n, std, init.named("pooler")) }),
            config: config.clone(),
        })
    }
}

impl<B: Backend> Pretrained<B> for Bert<B> {
    type Config = BertConfig;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// zero biases. It has a pooler unless it is a DistilBERT.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &BertConfig, init: &Init<B>) -> Result<Self> {
        Self::with_pooler(config, !config.model_type.is_distilbert(), init)
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
        let names = published_names(config, true);
        let pooler = checkpoint.names().any(|name| names.bare(name) == "pooler.dense.weight");
        let skeleton = eval_shape(|init| Self::with_pooler(config, pooler, init))?;
        Ok(cast(skeleton, dtype.unwrap_or(DType::F32).into()))
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
        let without = model.clone().with_dropout(0.0);
        assert_eq!(without.forward(&texts, Some(Key::new(1))).into_data(), states(None));
    }
}
