use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{Linear, loss};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{Bert, BertConfig, BertHead, Family, WithHead, dense, linear};
use crate::bert::TextBatch;

/// Next-sentence-prediction head.
#[derive(Tree, Clone, Debug)]
pub struct NextSentenceHead<B: Backend> {
    /// Output layer, `[hidden_size, 2]`.
    pub seq_relationship: Linear<B>,
}

impl<B: Backend> BertHead<B> for NextSentenceHead<B> {
    const CLASS: &'static str = "ForNextSentencePrediction";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        Self { seq_relationship: dense(2, config, "seq_relationship", init) }
    }

    fn pooled(_: Family) -> bool {
        true
    }

    fn names(map: NameMap, _: &BertConfig) -> NameMap {
        linear(map, "cls.seq_relationship", "head.seq_relationship").ignore("cls.predictions.**")
    }
}

impl<B: Backend> WithHead<Bert<B>, NextSentenceHead<B>> {
    /// Computes the logits of "follows" (0) and "does not follow" (1). Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of text pairs, `[b, t]` tokens
    /// - output `[b, 2]`
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 2> {
        let states = self.bert.forward(texts, key);
        self.head.seq_relationship.forward(self.bert.pool(states).expect("heads that need a pooler have one"))
    }

    /// Computes the mean negative log-likelihood, in nats, of labels `[b]`: 0 if the second text follows the first,
    /// else 1.
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 1, Int>, key: Option<Key>) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(texts, key), labels)
    }
}
