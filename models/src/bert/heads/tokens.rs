use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{Linear, dropout, loss};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{Bert, BertConfig, BertHead, Family, WithHead, dense, keys, linear};
use crate::{bert::TextBatch, labels::keep_classes};

/// Token-classification head.
#[derive(Tree, Clone, Debug)]
pub struct TokenHead<B: Backend> {
    /// Output layer, `[hidden_size, labels]`.
    pub classifier: Linear<B>,
}

impl<B: Backend> BertHead<B> for TokenHead<B> {
    const CLASS: &'static str = "ForTokenClassification";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        Self { classifier: dense(config.labels.len(), config, "classifier", init) }
    }

    fn pooled(_: Family) -> bool {
        false
    }

    fn keep_classes(self, new: Self, old_labels: &[String], new_labels: &[String]) -> Self {
        Self { classifier: keep_classes(&self.classifier, new.classifier, old_labels, new_labels) }
    }

    fn names(map: NameMap, _: &BertConfig) -> NameMap {
        linear(map, "classifier", "head.classifier")
    }
}

impl<B: Backend> WithHead<Bert<B>, TokenHead<B>> {
    /// Computes the logits of each token's labels. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, t, labels]`
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 3> {
        let [key, key_head] = keys(key);
        let config = &self.bert.config;
        // DistilBERT's `classifier_dropout` (`seq_classif_dropout`) applies to sequence classifiers only.
        let rate = match config.model_type {
            Family::DistilBert => config.hidden_dropout_prob,
            _ => config.classifier_dropout(),
        };
        self.head.classifier.forward(dropout(self.bert.forward(texts, key), rate, key_head))
    }

    /// Computes the mean negative log-likelihood, in nats, of labels `[b, t]`; -100 is ignored.
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        let logits = self.forward(texts, key);
        let [b, t, classes] = logits.dims();
        loss::cross_entropy(logits.reshape([b * t, classes]), labels.reshape([b * t]))
    }
}
