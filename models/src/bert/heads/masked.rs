use burn::tensor::{Int, Tensor};
use grove_backend::{Backend, matmul};
use grove_layers::{LayerNorm, Linear, loss};
use grove_tree::{Array, Init, Key, Tree};
use grove_weights::{NameMap, TensorFiles};

use super::{Bert, BertConfig, BertHead, Family, WithHead, dense, linear};
use crate::{
    bert::{
        TextBatch,
        names::{encoder_below_head, norm},
    },
    error::Result,
    tied::is_tied,
};

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

impl<B: Backend> BertHead<B> for MaskedLmHead<B> {
    const CLASS: &'static str = "ForMaskedLM";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        let (vocab, n) = (config.vocab_size, config.hidden_size);
        Self {
            dense: dense(n, config, "dense", init),
            layer_norm: LayerNorm::new(n, config.layer_norm_eps, init),
            decoder: (!config.tie_word_embeddings)
                .then(|| init.named("decoder").normal([vocab, n], config.initializer_range)),
            bias: init.zeros([vocab]),
        }
    }

    fn pooled(_: Family) -> bool {
        false
    }

    fn names(map: NameMap, config: &BertConfig) -> NameMap {
        head_names(map, config)
    }
}

/// Returns true if the output layer is tied to the token embedding; see [`is_tied`].
pub(in crate::bert) fn tied(config: &BertConfig, checkpoint: &TensorFiles) -> Result<bool> {
    let own = BertConfig { tie_word_embeddings: false, ..config.clone() };
    let names = head_names(encoder_below_head(&own, false), &own);
    let places = ["bert.embeddings.word_embeddings.weight", "head.decoder"];
    is_tied(config.tie_word_embeddings, checkpoint, &names, places)
}

/// Adds the published names of the head.
fn head_names(map: NameMap, config: &BertConfig) -> NameMap {
    let [transform, layer_norm, decoder, bias] = match config.model_type {
        Family::Bert => [
            "cls.predictions.transform.dense",
            "cls.predictions.transform.LayerNorm",
            "cls.predictions.decoder",
            "cls.predictions.bias",
        ],
        Family::Roberta | Family::XlmRoberta | Family::Camembert => {
            ["lm_head.dense", "lm_head.layer_norm", "lm_head.decoder", "lm_head.bias"]
        }
        Family::DistilBert => ["vocab_transform", "vocab_layer_norm", "vocab_projector", "vocab_projector.bias"],
    };
    let map = norm(linear(map, transform, "head.dense"), layer_norm, "head.layer_norm");
    // Both names are the same bias, except in an untied model that transformers 5 wrote: it uses the decoder's bias.
    let decoder_bias = format!("{decoder}.bias");
    let [first, second] = if config.tie_word_embeddings { [bias, &*decoder_bias] } else { [&*decoder_bias, bias] };
    let map = map.rule(first, "head.bias").alias(second, "head.bias");
    let weight = format!("{decoder}.weight");
    if config.tie_word_embeddings {
        map.alias(&weight, "bert.embeddings.word_embeddings.weight")
    } else {
        map.rule(&weight, "head.decoder")
    }
    // Next-sentence head of pre-training, which is not loaded.
    .ignore("cls.seq_relationship.*")
}

impl<B: Backend> WithHead<Bert<B>, MaskedLmHead<B>> {
    /// Computes the logits of the vocabulary at each position. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, t, vocab_size]`
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 3> {
        let states = self.bert.forward(texts, key);
        let [b, t, n] = states.dims();
        self.logits(states.reshape([b * t, n])).reshape([b, t, self.bert.config.vocab_size])
    }

    /// Computes the logits of the vocabulary for given states: `[rows, hidden_size]` to `[rows, vocab_size]`.
    pub fn logits(&self, states: Tensor<B, 2>) -> Tensor<B, 2> {
        // RoBERTa's activation is always GELU; the other families use the activation of the layers.
        let activation = match self.bert.config.model_type {
            family if family.is_roberta() => grove_layers::Activation::Gelu,
            _ => self.bert.encoder.layer[0].activation,
        };
        let x = self.head.layer_norm.forward(activation.forward(self.head.dense.forward(states)));
        let weight = self.head.decoder.as_ref().unwrap_or(&self.bert.embeddings.word_embeddings.weight);
        matmul(x, weight.val().transpose()) + self.head.bias.val().unsqueeze()
    }

    /// Computes the mean negative log-likelihood of the masked tokens, in nats; labels of -100 are ignored.
    ///
    /// # Shapes
    /// - labels `[b, t]`
    /// - output `[1]`
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        let logits = self.forward(texts, key);
        let [b, t, vocab] = logits.dims();
        loss::cross_entropy(logits.reshape([b * t, vocab]), labels.reshape([b * t]))
    }

    /// Computes the same mean over the tokens at the given positions. Skips the logits of the other positions, which
    /// are the majority.
    ///
    /// # Shapes
    /// - positions `[m]`, each `row * t + column` of a token in the batch
    /// - labels `[m]`
    /// - output `[1]`
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
