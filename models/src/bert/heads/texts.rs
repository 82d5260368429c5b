//! Heads on the features of a text: next-sentence prediction, sequence classification and multiple choice.

use burn::tensor::{
    Int, Tensor,
    activation::{relu, tanh},
};
use grove_backend::Backend;
use grove_layers::{Dropout, Linear, loss, named_key};
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;

use super::{BertForMultipleChoice, BertForNextSentence, BertForSequenceClassification, BertHead, new_linear};
use crate::{
    bert::{Bert, BertConfig, Family, TextBatch, model::first_token, names::classifier_names},
    labels::keep_classes,
    names::linear_names,
};

/// Computes the features of each text for a classifier, `[b, hidden_size]`: those of the pooler, or of the head's layer
/// `dense` if it has one.
#[track_caller]
fn text_features<B: Backend>(
    bert: &Bert<B>,
    texts: &TextBatch<B>,
    dense: Option<&Linear<B>>,
    dropout: Dropout,
    key: Option<Key>,
) -> Tensor<B, 2> {
    let states = bert.forward(texts, named_key(key, "bert"));
    let key = named_key(key, "head");
    let x = match dense {
        None => bert.pool(states).expect("heads that need a pooler have one"),
        Some(dense) if bert.config.model_type.is_distilbert() => relu(dense.forward(first_token(states))),
        Some(dense) => tanh(dense.forward(dropout.forward(first_token(states), named_key(key, "input")))),
    };
    dropout.forward(x, named_key(key, "output"))
}

/// Next-sentence-prediction head.
#[derive(Tree, Clone, Debug)]
pub struct NextSentenceHead<B: Backend> {
    /// Output layer, `[hidden_size, 2]`.
    pub seq_relationship: Linear<B>,
}

impl<B: Backend> BertForNextSentence<B> {
    /// Computes the logits of "follows" (0) and "does not follow" (1). Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of text pairs, `[b, t]` tokens
    /// - output `[b, 2]`
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 2> {
        let features = text_features(&self.bert, texts, None, Dropout::new(0.0), key);
        self.head.seq_relationship.forward(features)
    }

    /// Computes the mean negative log-likelihood, in nats, of labels `[b]`: 0 if the second text follows the first,
    /// else 1.
    #[track_caller]
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 1, Int>, key: Option<Key>) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(texts, key), labels)
    }
}

impl<B: Backend> BertHead<B> for NextSentenceHead<B> {
    const CLASS: &'static str = "ForNextSentencePrediction";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        Self { seq_relationship: new_linear("seq_relationship", 2, config, init) }
    }

    fn names(map: NameMap, _: &BertConfig) -> NameMap {
        let map = linear_names(map, "cls.seq_relationship", "head.seq_relationship");
        map.ignore_each(&[(
            "cls.predictions.**",
            "the head of masked language modelling, which this model does not have",
        )])
    }

    fn pooled(_: Family) -> bool {
        true
    }
}

/// Sequence-classification head.
#[derive(Tree, Clone, Debug)]
pub struct SequenceHead<B: Backend> {
    /// RoBERTa's `classifier.dense` or DistilBERT's `pre_classifier`, `[hidden_size, hidden_size]`, instead of a
    /// pooler; `None` for BERT.
    pub dense: Option<Linear<B>>,
    /// Output layer, `[hidden_size, labels]`.
    pub classifier: Linear<B>,
    /// Dropout of the features, and of RoBERTa's first token.
    pub dropout: Dropout,
}

impl<B: Backend> BertForSequenceClassification<B> {
    /// Computes the logits of the labels or, for regression, the predicted values. Dropout is applied if a `key` is
    /// given.
    ///
    /// # Shapes
    /// - texts: a batch of texts or pairs, `[b, t]` tokens
    /// - output `[b, labels]`
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 2> {
        let SequenceHead { dense, classifier, dropout } = &self.head;
        classifier.forward(text_features(&self.bert, texts, dense.as_ref(), *dropout, key))
    }

    /// Computes the mean negative log-likelihood, in nats, of one label per text, `[b]`; -100 is ignored.
    #[track_caller]
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 1, Int>, key: Option<Key>) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(texts, key), labels)
    }

    /// Computes the mean binary cross-entropy, in nats, of any number of labels per text, `[b, labels]`: 1 if the text
    /// has the label.
    #[track_caller]
    pub fn multi_label_loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2>, key: Option<Key>) -> Tensor<B, 1> {
        loss::sigmoid_binary_cross_entropy(self.forward(texts, key), labels).mean()
    }

    /// Computes the mean squared error of the predicted values, `[b, labels]`.
    #[track_caller]
    pub fn regression_loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2>, key: Option<Key>) -> Tensor<B, 1> {
        loss::squared_error(self.forward(texts, key), labels).mean()
    }
}

impl<B: Backend> BertHead<B> for SequenceHead<B> {
    const CLASS: &'static str = "ForSequenceClassification";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        Self {
            dense: (!Self::pooled(config.model_type)).then(|| new_linear("dense", config.hidden_size, config, init)),
            classifier: new_linear("classifier", config.labels.len(), config, init),
            dropout: Dropout::new(config.classifier_dropout()),
        }
    }

    fn names(map: NameMap, config: &BertConfig) -> NameMap {
        classifier_names(map, config.model_type.sequence_head_names())
    }

    fn pooled(family: Family) -> bool {
        family.sequence_head_names().0.is_none()
    }

    fn keep_classes(self, new: Self, old_labels: &[String], new_labels: &[String]) -> Self {
        Self { classifier: keep_classes(&self.classifier, new.classifier, old_labels, new_labels), ..self }
    }
}

/// Multiple-choice head.
#[derive(Tree, Clone, Debug)]
pub struct ChoiceHead<B: Backend> {
    /// DistilBERT's `pre_classifier`, `[hidden_size, hidden_size]`, instead of a pooler; `None` for the other families.
    pub dense: Option<Linear<B>>,
    /// Output layer, `[hidden_size, 1]`.
    pub classifier: Linear<B>,
    /// Dropout of the features.
    pub dropout: Dropout,
}

impl<B: Backend> BertForMultipleChoice<B> {
    /// Computes the logits of each question's choices. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b * choices, t]` tokens: all choices of the first question, then those of the second, and
    ///   so on
    /// - output `[b, choices]`
    ///
    /// # Panics
    /// If `choices` does not divide the number of pairs.
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, choices: usize, key: Option<Key>) -> Tensor<B, 2> {
        let pairs = texts.dims()[0];
        assert!(choices > 0 && pairs.is_multiple_of(choices), "{pairs} pairs are not some times {choices} choices");
        let ChoiceHead { dense, classifier, dropout } = &self.head;
        let features = text_features(&self.bert, texts, dense.as_ref(), *dropout, key);
        classifier.forward(features).reshape([pairs / choices, choices])
    }

    /// Computes the mean negative log-likelihood, in nats, of the right choices `labels`, `[b]`.
    #[track_caller]
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

impl<B: Backend> BertHead<B> for ChoiceHead<B> {
    const CLASS: &'static str = "ForMultipleChoice";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        Self {
            dense: (!Self::pooled(config.model_type)).then(|| new_linear("dense", config.hidden_size, config, init)),
            classifier: new_linear("classifier", 1, config, init),
            dropout: Dropout::new(config.classifier_dropout()),
        }
    }

    fn names(map: NameMap, config: &BertConfig) -> NameMap {
        classifier_names(map, config.model_type.choice_head_names())
    }

    fn pooled(family: Family) -> bool {
        family.choice_head_names().0.is_none()
    }
}
