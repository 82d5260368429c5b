use burn::tensor::{Int, Tensor, activation::relu};
use grove_backend::Backend;
use grove_layers::{Linear, dropout, loss};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{Bert, BertConfig, BertHead, Family, WithHead, dense, keys, linear, pooled};
use crate::bert::{TextBatch, model::first};

/// Multiple-choice head.
#[derive(Tree, Clone, Debug)]
pub struct ChoiceHead<B: Backend> {
    /// DistilBERT's `pre_classifier`, `[hidden_size, hidden_size]`, instead of a pooler; `None` for the other families.
    pub dense: Option<Linear<B>>,
    /// Output layer, `[hidden_size, 1]`.
    pub classifier: Linear<B>,
}

impl<B: Backend> BertHead<B> for ChoiceHead<B> {
    const CLASS: &'static str = "ForMultipleChoice";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        let distilbert = config.model_type == Family::DistilBert;
        Self {
            dense: distilbert.then(|| dense(config.hidden_size, config, "dense", init)),
            classifier: dense(1, config, "classifier", init),
        }
    }

    fn pooled(family: Family) -> bool {
        family != Family::DistilBert
    }

    fn names(map: NameMap, config: &BertConfig) -> NameMap {
        let map = linear(map, "classifier", "head.classifier");
        if config.model_type == Family::DistilBert { linear(map, "pre_classifier", "head.dense") } else { map }
    }
}

impl<B: Backend> WithHead<Bert<B>, ChoiceHead<B>> {
    /// Computes the logits of each question's choices. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b * choices, t]` tokens: all choices of the first question, then those of the second, and
    ///   so on
    /// - output `[b, choices]`
    ///
    /// # Panics
    /// If `choices` does not divide the number of pairs.
    pub fn forward(&self, texts: &TextBatch<B>, choices: usize, key: Option<Key>) -> Tensor<B, 2> {
        let pairs = texts.dims()[0];
        assert!(choices > 0 && pairs.is_multiple_of(choices), "{pairs} pairs are not some times {choices} choices");
        let [key, key_head] = keys(key);
        let states = self.bert.forward(texts, key);
        let x = match &self.head.dense {
            None => pooled(&self.bert, states, key_head),
            Some(dense) => {
                let rate = self.bert.config.classifier_dropout();
                dropout(relu(dense.forward(first(states))), rate, key_head)
            }
        };
        self.head.classifier.forward(x).reshape([pairs / choices, choices])
    }

    /// Computes the mean negative log-likelihood, in nats, of the right choices `labels`, `[b]`.
    pub fn loss(
        &self,
        texts: &TextBatch<B>,
        choices: usize,
        labels: Tensor<B, 1, Int>,
        key: Option<Key>,
    ) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(texts, choices, key), labels)
    }
}
