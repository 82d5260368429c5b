//! Heads on the states of the tokens: token classification and question answering.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{Dropout, Linear, loss, named_key};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{BertForQuestionAnswering, BertForTokenClassification, BertHead, new_linear, token_loss};
use crate::{
    bert::{BertConfig, TextBatch},
    labels::keep_classes,
    names::linear_names,
};

/// Token-classification head.
#[derive(Tree, Clone, Debug)]
pub struct TokenHead<B: Backend> {
    /// Output layer, `[hidden_size, labels]`.
    pub classifier: Linear<B>,
    /// Dropout of the encoder's states.
    pub dropout: Dropout,
}

impl<B: Backend> BertForTokenClassification<B> {
    /// Computes the logits of each token's labels. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, t, labels]`
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 3> {
        let states = self.bert.forward(texts, named_key(key, "bert"));
        self.head.classifier.forward(self.head.dropout.forward(states, named_key(key, "head")))
    }

    /// Computes the mean negative log-likelihood, in nats, of labels `[b, t]`; -100 is ignored.
    #[track_caller]
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        token_loss(self.forward(texts, key), labels)
    }
}

impl<B: Backend> BertHead<B> for TokenHead<B> {
    const CLASS: &'static str = "ForTokenClassification";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        let classifier = new_linear("classifier", config.labels.len(), config, init);
        Self { classifier, dropout: Dropout::new(config.token_head_dropout()) }
    }

    fn names(map: NameMap, _: &BertConfig) -> NameMap {
        linear_names(map, "classifier", "head.classifier")
    }

    fn keep_classes(self, new: Self, old_labels: &[String], new_labels: &[String]) -> Self {
        Self { classifier: keep_classes(&self.classifier, new.classifier, old_labels, new_labels), ..self }
    }
}

/// Extractive question-answering head: scores each token as the first and as the last of the answer.
#[derive(Tree, Clone, Debug)]
pub struct AnswerHead<B: Backend> {
    /// Output layer, `[hidden_size, 2]`.
    pub qa_outputs: Linear<B>,
    /// Dropout of the encoder's states; only DistilBERT has it.
    pub dropout: Dropout,
}

impl<B: Backend> BertForQuestionAnswering<B> {
    /// Computes the logits of each token as the answer's first and as its last token. Dropout is applied if a `key` is
    /// given.
    ///
    /// # Shapes
    /// - texts: a batch of question-text pairs of `[b, t]` tokens
    /// - output: two of `[b, t]`; minus infinity at padding
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> [Tensor<B, 2>; 2] {
        let [b, t] = texts.dims();
        let states = self.bert.forward(texts, named_key(key, "bert"));
        let states = self.head.dropout.forward(states, named_key(key, "head"));
        let logits = self.head.qa_outputs.forward(states); // [b, t, 2]
        let padding = texts.mask.val().equal_elem(0);
        [0, 1].map(|i| logits.clone().narrow(2, i, 1).reshape([b, t]).mask_fill(padding.clone(), f32::NEG_INFINITY))
    }

    /// Computes the mean negative log-likelihood, in nats, of the answer's first and last token. `starts` and `ends`
    /// are `[b]`; -100, for an answer that is not in the text, is ignored. Unlike in transformers, padding is excluded
    /// from the softmax.
    #[track_caller]
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

impl<B: Backend> BertHead<B> for AnswerHead<B> {
    const CLASS: &'static str = "ForQuestionAnswering";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        let qa_outputs = new_linear("qa_outputs", 2, config, init);
        Self { qa_outputs, dropout: Dropout::new(config.answer_head_dropout()) }
    }

    fn names(map: NameMap, _: &BertConfig) -> NameMap {
        linear_names(map, "qa_outputs", "head.qa_outputs")
    }
}
