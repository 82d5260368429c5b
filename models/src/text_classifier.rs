use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_layers::rnn::PackedSequence;
use grove_text::TextIds;
use grove_tree::{Array, Key, Tree};

use crate::{
    Pretrained, RnnClassifier,
    bert::{BertForSequenceClassification, TextBatch},
    error::Result,
    problem_type::ProblemType,
};

/// A text classifier, for programs that classify and train.
pub trait TextClassifier<B: Backend>: Pretrained<B> {
    /// True if the model uses the segment of each token, [`TextIds::token_types`].
    const TOKEN_TYPES: bool;

    /// A batch of texts on a device, in the model's input format.
    type Texts: Tree<B>;

    /// Creates a batch on the model's device.
    ///
    /// # Errors
    /// There are no texts, or a text is empty, is too long, or contains a token that is outside the vocabulary.
    fn texts(&self, texts: &[TextIds]) -> Result<Self::Texts>;

    /// Creates a batch for a traced function. A model that pads sequences rounds the padded length up, so that few
    /// shapes, and therefore few programs, occur. A model that packs sequences needs one program per list of lengths.
    ///
    /// # Errors
    /// As [`texts`](Self::texts).
    fn bucketed_texts(&self, texts: &[TextIds]) -> Result<Self::Texts>;

    /// Computes the logits of a batch, `[b, classes]`. Dropout is applied if a `key` is given.
    fn logits(&self, texts: &Self::Texts, key: Option<Key>) -> Tensor<B, 2>;

    /// Returns the class names.
    fn labels(&self) -> &[String];

    /// Returns the problem type that the model's configuration names; by default single-label classification.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if it is unknown.
    fn problem_type(&self) -> Result<Option<ProblemType>> {
        Ok(Some(ProblemType::SingleLabel))
    }

    /// Returns the problem that the model is trained for. As in transformers, a single label means regression, unless the
    /// configuration says otherwise.
    ///
    /// # Errors
    /// As [`problem_type`](Self::problem_type).
    fn problem(&self) -> Result<ProblemType> {
        Ok(ProblemType::trained(self.problem_type()?, self.labels().len()))
    }

    /// Returns the kind of the model's scores. As in transformers, the score of a single label is a probability, unless
    /// the configuration names regression.
    ///
    /// # Errors
    /// As [`problem_type`](Self::problem_type).
    fn scored_as(&self) -> Result<ProblemType> {
        Ok(ProblemType::scored(self.problem_type()?, self.labels().len()))
    }

    /// Returns the maximum length of a text, in tokens, if there is a limit.
    fn position_limit(&self) -> Option<usize> {
        None
    }

    /// Returns the depth of the leaf at a path: the number of layers between the leaf and the head. The deepest leaves
    /// have the number of layers as their depth.
    fn depth(&self, path: &str) -> usize;
}

impl<B: Backend> TextClassifier<B> for BertForSequenceClassification<B> {
    const TOKEN_TYPES: bool = true;

    type Texts = TextBatch<B>;

    fn texts(&self, texts: &[TextIds]) -> Result<TextBatch<B>> {
        self.bert.batch(texts)
    }

    fn bucketed_texts(&self, texts: &[TextIds]) -> Result<TextBatch<B>> {
        self.bert.bucketed_batch(texts)
    }

    fn logits(&self, texts: &TextBatch<B>, key: Option<Key>) -> Tensor<B, 2> {
        self.forward(texts, key)
    }

    fn labels(&self) -> &[String] {
        &self.bert.config.labels
    }

    fn problem_type(&self) -> Result<Option<ProblemType>> {
        self.bert.config.named_problem()
    }

    fn position_limit(&self) -> Option<usize> {
        Some(self.bert.config.positions())
    }

    /// Counts the encoder's layers, and the embeddings as one more.
    fn depth(&self, path: &str) -> usize {
        let layers = self.bert.config.num_hidden_layers;
        if path.starts_with("bert.embeddings.") {
            return layers + 1;
        }
        let rest = path.strip_prefix("bert.encoder.layer.");
        let layer = rest.and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        layer.map_or(0, |layer| layers - layer)
    }
}

impl<B: Backend> TextClassifier<B> for RnnClassifier<B> {
    const TOKEN_TYPES: bool = false;

    type Texts = PackedSequence<Array<B, 1, Int>>;

    fn texts(&self, texts: &[TextIds]) -> Result<Self::Texts> {
        let texts: Vec<Vec<u32>> = texts.iter().map(|text| text.ids.clone()).collect();
        self.pack(&texts)
    }

    fn bucketed_texts(&self, texts: &[TextIds]) -> Result<Self::Texts> {
        self.texts(texts)
    }

    fn logits(&self, texts: &Self::Texts, key: Option<Key>) -> Tensor<B, 2> {
        self.forward(texts, key)
    }

    fn labels(&self) -> &[String] {
        &self.config.labels
    }

    /// Counts the recurrent layers as one layer, and the embedding as another.
    fn depth(&self, path: &str) -> usize {
        match path.split('.').next() {
            Some("embedding") => 2,
            Some("rnn") => 1,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BertConfig;
    use burn_flex::Flex;

    #[test]
    fn depths_below_the_head() {
        let model = BertForSequenceClassification::<Flex>::skeleton(&BertConfig::default()).unwrap();
        let paths = ["head.classifier.weight", "bert.pooler.dense.bias", "bert.encoder.layer.11.output.bias"];
        assert_eq!(paths.map(|path| model.depth(path)), [0, 0, 1]);
        assert_eq!(model.depth("bert.encoder.layer.0.attention.query.weight"), 12);
        assert_eq!(model.depth("bert.embeddings.layer_norm.weight"), 13);
    }
}
