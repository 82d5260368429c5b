use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{Linear, dropout, loss};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{Bert, BertConfig, BertHead, Family, WithHead, dense, keys, linear};
use crate::bert::TextBatch;

/// Extractive question-answering head: scores each token as the first and as the last of the answer.
#[derive(Tree, Clone, Debug)]
pub struct AnswerHead<B: Backend> {
    /// Output layer, `[hidden_size, 2]`.
    pub qa_outputs: Linear<B>,
}

impl<B: Backend> BertHead<B> for AnswerHead<B> {
    const CLASS: &'static str = "ForQuestionAnswering";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        Self { qa_outputs: dense(2, config, "qa_outputs", init) }
    }

    fn pooled(_: Family) -> bool {
        false
    }

    fn names(map: NameMap, _: &BertConfig) -> NameMap {
        linear(map, "qa_outputs", "head.qa_outputs")
    }
}

impl<B: Backend> WithHead<Bert<B>, AnswerHead<B>> {
    /// Computes the logits of each token as the answer's first and as its last token. Dropout is applied if a `key` is
    /// given.
    ///
    /// # Shapes
    /// - texts: a batch of question-text pairs of `[b, t]` tokens
    /// - output: two of `[b, t]`; minus infinity at padding
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> [Tensor<B, 2>; 2] {
        let [key, key_head] = keys(key);
        let [b, t] = texts.dims();
        // Only DistilBERT has dropout here.
        let config = &self.bert.config;
        let distilbert = config.model_type == Family::DistilBert;
        let rate = config.other.get("qa_dropout").and_then(|rate| rate.as_f64()).unwrap_or(0.1);
        let states = dropout(self.bert.forward(texts, key), rate, key_head.filter(|_| distilbert));
        let logits = self.head.qa_outputs.forward(states); // [b, t, 2]
        let padding = texts.mask.val().equal_elem(0);
        [0, 1].map(|i| logits.clone().narrow(2, i, 1).reshape([b, t]).mask_fill(padding.clone(), f32::NEG_INFINITY))
    }

    /// Computes the mean negative log-likelihood, in nats, of the answer's first and last token. `starts` and `ends`
    /// are `[b]`; -100, for an answer that is not in the text, is ignored. Unlike in transformers, padding is excluded
    /// from the softmax.
    pub fn loss(
        &self,
        texts: &TextBatch<B>,
        starts: Tensor<B, 1, Int>,
        ends: Tensor<B, 1, Int>,
        key: Option<Key>,
    ) -> Tensor<B, 1> {
        let [first, last] = self.forward(texts, key);
        (loss::cross_entropy(first, starts) + loss::cross_entropy(last, ends)).mul_scalar(0.5)
    }
}
