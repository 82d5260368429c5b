//! Task heads on the encoder.

mod answer;
mod choice;
mod classify;
pub(super) mod masked;
mod next;
mod tokens;

pub use answer::AnswerHead;
pub use choice::ChoiceHead;
pub use classify::SequenceHead;
pub use masked::MaskedLmHead;
pub use next::NextSentenceHead;
pub use tokens::TokenHead;

use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_layers::Linear;
use grove_tree::{Init, Key, Tree};
use grove_weights::NameMap;
use serde_json::{Map, Value};

use super::{
    Bert, BertConfig, Family,
    names::{encoder_below_head, linear},
};
use crate::{Pretrained, error::Result};

/// An encoder with a task head.
#[derive(Tree, Clone, Debug)]
pub struct WithHead<E, H> {
    /// Encoder.
    pub bert: E,
    /// Task head.
    pub head: H,
}

/// BERT that fills in masked tokens.
pub type BertForMaskedLm<B> = WithHead<Bert<B>, MaskedLmHead<B>>;
/// BERT that predicts if the second text follows the first.
pub type BertForNextSentence<B> = WithHead<Bert<B>, NextSentenceHead<B>>;
/// BERT that classifies texts.
pub type BertForSequenceClassification<B> = WithHead<Bert<B>, SequenceHead<B>>;
/// BERT that classifies tokens.
pub type BertForTokenClassification<B> = WithHead<Bert<B>, TokenHead<B>>;
/// BERT that finds the answer to a question in a text.
pub type BertForQuestionAnswering<B> = WithHead<Bert<B>, AnswerHead<B>>;
/// BERT that chooses one of several continuations.
pub type BertForMultipleChoice<B> = WithHead<Bert<B>, ChoiceHead<B>>;

/// A task head of an encoder.
pub trait BertHead<B: Backend>: Tree<B> {
    /// Creates a head with initial weights.
    fn new(config: &BertConfig, init: &Init<B>) -> Self;

    /// Returns true if the head needs the pooler.
    fn pooled(family: Family) -> bool;

    /// Returns a head for new labels. Weights of labels that both heads have come from this head, the others from
    /// `new`. A head without labels is returned unchanged.
    #[must_use]
    fn keep_classes(self, _new: Self, _old_labels: &[String], _new_labels: &[String]) -> Self {
        self
    }

    /// Adds the head's published names. Its own paths begin with `head.`.
    fn names(map: NameMap, config: &BertConfig) -> NameMap;

    /// Suffix of the name of transformers' class, such as `ForMaskedLM`.
    const CLASS: &'static str;
}

impl<B: Backend, H: BertHead<B>> Pretrained<B> for WithHead<Bert<B>, H> {
    type Config = BertConfig;

    /// Creates a model with the published initialisation: normal weights with standard deviation `initializer_range`,
    /// zero biases.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &BertConfig, init: &Init<B>) -> Result<Self> {
        let bert = Bert::with_pooler(config, H::pooled(config.model_type), &init.named("bert"))?;
        Ok(Self { bert, head: H::new(config, &init.named("head")) })
    }

    fn config(&self) -> &BertConfig {
        &self.bert.config
    }

    fn published_names(config: &BertConfig) -> NameMap {
        H::names(encoder_below_head(config, H::pooled(config.model_type)), config)
    }

    fn published_config(&self) -> Result<Map<String, Value>> {
        Ok(self.bert.config.published(H::CLASS))
    }
}

/// Creates a linear layer from the hidden size to `outputs`.
fn dense<B: Backend>(outputs: usize, config: &BertConfig, name: &str, init: &Init<B>) -> Linear<B> {
    Linear::normal(config.hidden_size, outputs, config.initializer_range, &init.named(name))
}

/// Returns the keys of the encoder and the head.
fn keys(key: Option<Key>) -> [Option<Key>; 2] {
    [0, 1].map(|i| key.map(|key| key.fold_in(i)))
}

/// Returns the pooler's output with dropout, `[b, hidden_size]`.
fn pooled<B: Backend>(bert: &Bert<B>, states: Tensor<B, 3>, key: Option<Key>) -> Tensor<B, 2> {
    let x = bert.pool(states).expect("heads that need a pooler have one");
    grove_layers::dropout(x, bert.config.classifier_dropout(), key)
}
