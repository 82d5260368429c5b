use burn::tensor::{
    Int, Tensor,
    activation::{relu, tanh},
};
use grove_backend::Backend;
use grove_layers::{Linear, dropout, loss};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{Bert, BertConfig, BertHead, Family, WithHead, dense, keys, linear, pooled};
use crate::{
    bert::{TextBatch, model::first},
    labels::keep_classes,
};

/// Sequence-classification head.
#[derive(Tree, Clone, Debug)]
pub struct SequenceHead<B: Backend> {
    /// RoBERTa's `classifier.dense` or DistilBERT's `pre_classifier`, `[hidden_size, hidden_size]`, instead of a
    /// pooler; `None` for BERT.
    pub dense: Option<Linear<B>>,
    /// Output layer, `[hidden_size, labels]`.
    pub classifier: Linear<B>,
}

impl<B: Backend> BertHead<B> for SequenceHead<B> {
    const CLASS: &'static str = "ForSequenceClassification";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        Self {
            dense: (config.model_type != Family::Bert).then(|| dense(config.hidden_size, config, "dense", init)),
            classifier: dense(config.labels.len(), config, "classifier", init),
        }
    }

    fn pooled(family: Family) -> bool {
        family == Family::Bert
    }

    fn keep_classes(self, new: Self, old_labels: &[String], new_labels: &[String]) -> Self {
        let classifier = keep_classes(&self.classifier, new.classifier, old_labels, new_labels);
        Self { classifier, ..self }
    }

    fn names(map: NameMap, config: &BertConfig) -> NameMap {
        match config.model_type {
            Family::Bert => linear(map, "classifier", "head.classifier"),
            Family::Roberta | Family::XlmRoberta | Family::Camembert => {
                linear(linear(map, "classifier.dense", "head.dense"), "classifier.out_proj", "head.classifier")
            }
            Family::DistilBert => linear(linear(map, "pre_classifier", "head.dense"), "classifier", "head.classifier"),
        }
    }
}

impl<B: Backend> WithHead<Bert<B>, SequenceHead<B>> {
    /// Computes the logits of the labels or, for regression, the predicted values. Dropout is applied if a `key` is
    /// given.
    ///
    /// # Shapes
    /// - texts: a batch of texts or pairs, `[b, t]` tokens
    /// - output `[b, labels]`
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 2> {
        let [key, key_head] = keys(key);
        let states = self.bert.forward(texts, key);
        let rate = self.bert.config.classifier_dropout();
        let x = match (&self.head.dense, self.bert.config.model_type) {
            (None, _) => pooled(&self.bert, states, key_head),
            (Some(dense), Family::DistilBert) => dropout(relu(dense.forward(first(states))), rate, key_head),
            (Some(dense), _) => {
                let [key_in, key_out] = keys(key_head);
                dropout(tanh(dense.forward(dropout(first(states), rate, key_in))), rate, key_out)
            }
        };
        self.head.classifier.forward(x)
    }

    /// Computes the mean negative log-likelihood, in nats, of one label per text, `[b]`; -100 is ignored.
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 1, Int>, key: Option<Key>) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(texts, key), labels)
    }

    /// Computes the mean binary cross-entropy, in nats, of any number of labels per text, `[b, labels]`: 1 if the text
    /// has the label.
    pub fn multi_label_loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2>, key: Option<Key>) -> Tensor<B, 1> {
        loss::sigmoid_binary_cross_entropy(self.forward(texts, key), labels).mean()
    }

    /// Computes the mean squared error of the predicted values, `[b, labels]`.
    pub fn regression_loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2>, key: Option<Key>) -> Tensor<B, 1> {
        loss::squared_error(self.forward(texts, key), labels).mean()
    }
}
