//! Masked language modelling.

use burn::tensor::{Int, Tensor};
use grove_backend::{Backend, matmul};
use grove_layers::{LayerNorm, Linear, loss};
use grove_tree::{Array, Init, Key, Tree};
use grove_weights::NameMap;

use super::{BertForMaskedLm, BertHead, new_linear, token_loss};
use crate::bert::{BertConfig, TextBatch, names::masked_lm_names};

/// Masked-language-modelling head.
#[derive(Tree, Clone, Debug)]
pub struct MaskedLmHead<B: Backend> {
    /// Linear layer before the activation, `[hidden_size, hidden_size]`.
    pub dense: Linear<B>,
    /// Layer norm after the activation.
    pub layer_norm: LayerNorm<B>,
    /// Output layer, `[vocab_size, hidden_size]`; `None` if it is tied to the token embedding.
    pub decoder: Option<Array<B, 2>>,
    /// Output bias, `[vocab_size]`.
    pub bias: Array<B, 1>,
}

impl<B: Backend> BertForMaskedLm<B> {
    /// Computes the logits of the vocabulary at each position. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, t, vocab_size]`
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 3> {
        let states = self.bert.forward(texts, key);
        let [b, t, n] = states.dims();
        self.logits(states.reshape([b * t, n])).reshape([b, t, self.bert.config.vocab_size])
    }

    /// Computes the logits of the vocabulary for given states: `[rows, hidden_size]` to `[rows, vocab_size]`.
    #[track_caller]
    pub fn logits(&self, states: Tensor<B, 2>) -> Tensor<B, 2> {
        let activation = self.bert.config.model_type.masked_lm_activation(self.bert.encoder.layer[0].activation);
        let x = self.head.layer_norm.forward(activation.forward(self.head.dense.forward(states)));
        let weight = self.head.decoder.as_ref().unwrap_or(&self.bert.embeddings.word_embeddings.weight);
        matmul(x, weight.val().transpose()) + self.head.bias.val().unsqueeze()
    }

    /// Computes the mean negative log-likelihood of the masked tokens, in nats; labels of -100 are ignored.
    ///
    /// # Shapes
    /// - labels `[b, t]`
    /// - output `[1]`
    #[track_caller]
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        token_loss(self.forward(texts, key), labels)
    }

    /// Computes the same mean over the tokens at the given positions. Skips the logits of the other positions, which
    /// are the majority.
    ///
    /// # Shapes
    /// - positions `[m]`, each `row * t + column` of a token in the batch
    /// - labels `[m]`
    /// - output `[1]`
    #[track_caller]
    pub fn loss_at(
        &self,
        texts: &TextBatch<B>,
        positions: Tensor<B, 1, Int>,
        labels: Tensor<B, 1, Int>,
        key: Option<Key>,
    ) -> Tensor<B, 1> {
        let states = self.bert.forward(texts, key);
        let [b, t, n] = states.dims();
        loss::cross_entropy(self.logits(states.reshape([b * t, n]).select(0, positions)), labels)
    }
}

impl<B: Backend> BertHead<B> for MaskedLmHead<B> {
    const CLASS: &'static str = "ForMaskedLM";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        let (vocab, n) = (config.vocab_size, config.hidden_size);
        Self {
            dense: new_linear("dense", n, config, init),
            layer_norm: LayerNorm::new(n, config.layer_norm_eps, init),
            decoder: (!config.tie_word_embeddings)
                .then(|| init.named("decoder").normal([vocab, n], config.initializer_range)),
            bias: init.zeros([vocab]),
        }
    }

    fn names(map: NameMap, config: &BertConfig) -> NameMap {
        masked_lm_names(map, config)
    }
}
