//! Task heads on the encoder.

use burn::tensor::{
    Int, Tensor,
    activation::{relu, tanh},
};
use grove_backend::{Backend, matmul};
use grove_layers::{Dropout, LayerNorm, Linear, loss, named_key};
use grove_tree::{Array, Init, Key, Tree};
use grove_weights::NameMap;

use super::{
    Bert, BertConfig, Family, TextBatch,
    model::first_token,
    names::{classifier_names, masked_lm_names},
};
use crate::{labels::keep_classes, names::linear_names};

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
pub type BertForSequenceClassification<B> = WithHead<Bert<B>, SequenceHead<B>>;
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
pub type BertForTokenClassification<B> = WithHead<Bert<B>, TokenHead<B>>;
/// BERT that finds the answer to a question in a text.
pub type BertForQuestionAnswering<B> = WithHead<Bert<B>, AnswerHead<B>>;
/// BERT that chooses one of several continuations.
pub type BertForMultipleChoice<B> = WithHead<Bert<B>, ChoiceHead<B>>;

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

/// Computes the mean cross-entropy of logits `[b, t, classes]` of tokens with labels `[b, t]`.
#[track_caller]
fn token_loss<B: Backend>(logits: Tensor<B, 3>, labels: Tensor<B, 2, Int>) -> Tensor<B, 1> {
    let [b, t, classes] = logits.dims();
    loss::cross_entropy(logits.reshape([b * t, classes]), labels.reshape([b * t]))
}

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

impl<B: Backend> WithHead<Bert<B>, MaskedLmHead<B>> {
    /// Computes the logits of the vocabulary at each position. Dropout is applied if a `key` is given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, t, vocab_size]`
    #[track_caller]
    pub fn forward(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 3> {
        let states = self.bert.forward(texts, key);
        let [b, t, n] = states.dims();
        self.logits(states.reshape([b * t, n])).reshape([b, t, self.bert.config.vocab_size])
    }

    /// Computes the logits of the vocabulary for given states: `[rows, hidden_size]` to `[rows, vocab_size]`.
    #[track_caller]
    pub fn logits(&self, states: Tensor<B, 2>) -> Tensor<B, 2> {
        let activation = self.bert.config.model_type.masked_lm_activation(self.bert.encoder.layer[0].activation);
        let x = self.head.layer_norm.forward(activation.forward(self.head.dense.forward(states)));
        let weight = self.head.decoder.as_ref().unwrap_or(&self.bert.embeddings.word_embeddings.weight);
        matmul(x, weight.val().transpose()) + self.head.bias.val().unsqueeze()
    }

    /// Computes the mean negative log-likelihood of the masked tokens, in nats; labels of -100 are ignored.
    ///
    /// # Shapes
    /// - labels `[b, t]`
    /// - output `[1]`
    #[track_caller]
    pub fn loss(&self, texts: &TextBatch<B>, labels: Tensor<B, 2, Int>, key: Option<Key>) -> Tensor<B, 1> {
        token_loss(self.forward(texts, key), labels)
    }

    /// Computes the same mean over the tokens at the given positions. Skips the logits of the other positions, which
    /// are the majority.
    ///
    /// # Shapes
    /// - positions `[m]`, each `row * t + column` of a token in the batch
    /// - labels `[m]`
    /// - output `[1]`
    #[track_caller]
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

impl<B: Backend> BertHead<B> for MaskedLmHead<B> {
    const CLASS: &'static str = "ForMaskedLM";

    fn new(config: &BertConfig, init: &Init<B>) -> Self {
        let (vocab, n) = (config.vocab_size, config.hidden_size);
        Self {
            dense: new_linear("dense", n, config, init),
            layer_norm: LayerNorm::new(n, config.layer_norm_eps, init),
            decoder: (!config.tie_word_embeddings)
                .then(|| init.named("decoder").normal([vocab, n], config.initializer_range)),
            bias: init.zeros([vocab]),
        }
    }

    fn names(map: NameMap, config: &BertConfig) -> NameMap {
        masked_lm_names(map, config)
    }
}

/// Next-sentence-prediction head.
#[derive(Tree, Clone, Debug)]
pub struct NextSentenceHead<B: Backend> {
    /// Output layer, `[hidden_size, 2]`.
    pub seq_relationship: Linear<B>,
}

impl<B: Backend> WithHead<Bert<B>, NextSentenceHead<B>> {
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

impl<B: Backend> WithHead<Bert<B>, SequenceHead<B>> {
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

/// Token-classification head.
#[derive(Tree, Clone, Debug)]
pub struct TokenHead<B: Backend> {
    /// Output layer, `[hidden_size, labels]`.
    pub classifier: Linear<B>,
    /// Dropout of the encoder's states.
    pub dropout: Dropout,
}

impl<B: Backend> WithHead<Bert<B>, TokenHead<B>> {
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

impl<B: Backend> WithHead<Bert<B>, AnswerHead<B>> {
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
