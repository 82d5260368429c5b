//! Task heads on the encoder.

mod masked_lm;
mod texts;
mod tokens;

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::{Linear, loss};
use grove_tree::{Init, Tree};
use grove_weights::NameMap;

use super::{Bert, BertConfig, Family};

pub use masked_lm::MaskedLmHead;
pub use texts::{ChoiceHead, NextSentenceHead, SequenceHead};
pub use tokens::{AnswerHead, TokenHead};

/// An encoder with a task head.
#[derive(Tree, Clone, Debug)]
pub struct WithHead<B: Backend, H> {
    /// Encoder.
    pub bert: Bert<B>,
    /// Task head.
    pub head: H,
}

/// BERT that fills in masked tokens.
pub type BertForMaskedLm<B> = WithHead<B, MaskedLmHead<B>>;
/// BERT that predicts if the second text follows the first.
pub type BertForNextSentence<B> = WithHead<B, NextSentenceHead<B>>;
/// BERT that classifies texts.
///
/// ```
/// use grove_models::{BertConfig, Pretrained, bert::BertForSequenceClassification};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let sizes = BertConfig { vocab_size: 50, hidden_size: 8, num_hidden_layers: 2, ..BertConfig::default() };
/// # let config = BertConfig { num_attention_heads: 2, intermediate_size: 16, ..sizes };
/// let model = BertForSequenceClassification::<B>::init(&config, Key::new(0), &Default::default())?;
/// let texts = model.bert.batch(&[vec![1, 2, 3].into(), vec![4].into()])?;
/// assert_eq!(model.forward(&texts, None).dims(), [2, 2]); // logits, [b, labels]
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub type BertForSequenceClassification<B> = WithHead<B, SequenceHead<B>>;
/// BERT that classifies tokens.
///
/// ```
/// use grove_models::{BertConfig, Pretrained, bert::BertForTokenClassification};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let sizes = BertConfig { vocab_size: 50, hidden_size: 8, num_hidden_layers: 2, ..BertConfig::default() };
/// # let config = BertConfig { num_attention_heads: 2, intermediate_size: 16, ..sizes };
/// let model = BertForTokenClassification::<B>::init(&config, Key::new(0), &Default::default())?;
/// let texts = model.bert.batch(&[vec![1, 2, 3].into(), vec![4].into()])?;
/// assert_eq!(model.forward(&texts, None).dims(), [2, 3, 2]); // logits, [b, t, labels]
/// # Ok::<(), grove_models::ModelError>(())
/// ```
pub type BertForTokenClassification<B> = WithHead<B, TokenHead<B>>;
/// BERT that finds the answer to a question in a text.
pub type BertForQuestionAnswering<B> = WithHead<B, AnswerHead<B>>;
/// BERT that chooses one of several continuations.
pub type BertForMultipleChoice<B> = WithHead<B, ChoiceHead<B>>;

/// A task head of an encoder.
pub trait BertHead<B: Backend>: Tree<B> {
    /// Suffix of the name of transformers' class, such as `ForMaskedLM`.
    const CLASS: &'static str;

    /// Creates a head with initial weights.
    fn new(config: &BertConfig, init: &Init<B>) -> Self;

    /// Adds the head's published names. Its own paths begin with `head.`.
    fn names(map: NameMap, config: &BertConfig) -> NameMap;

    /// Returns true if the head needs the pooler. By default it does not.
    fn pooled(_: Family) -> bool {
        false
    }

    /// Returns a head for new labels. Weights of labels that both heads have come from this head, the others from
    /// `new`. A head without labels is returned unchanged.
    #[must_use]
    fn keep_classes(self, _new: Self, _old_labels: &[String], _new_labels: &[String]) -> Self {
        self
    }
}

/// Creates the head's linear layer `name`, `[hidden_size, outputs]`.
fn new_linear<B: Backend>(name: &str, outputs: usize, config: &BertConfig, init: &Init<B>) -> Linear<B> {
    Linear::normal(config.hidden_size, outputs, config.initializer_range, init.named(name))
}
/// Computes the mean cross-entropy of logits `[b, t, classes]` of tokens with labels `[b, t]`.
#[track_caller]
fn token_loss<B: Backend>(logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let [b, t, classes] = logits.dims();
    loss::cross_entropy(logits.reshape([b * t, classes]), labels.reshape([b * t]))
}
