//! Recurrent classifier: embedding, recurrent layers, and a linear layer over the final states.

use burn::tensor::{DType, Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::{
    Embedding, Linear, dropout, loss, named_key,
    rnn::{PackedSequence, Packing},
};
use grove_tree::{Array, Init, Key, Tree};
use grove_weights::NameMap;

use super::{RnnClassifierConfig, RnnLayers, classifier_names, layers::embed};
use crate::{
    Pretrained, PretrainedConfig,
    error::{ModelError, Result},
    prediction::{Prediction, predictions},
};

/// A recurrent text classifier.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_models::{Pretrained, RnnClassifier, RnnClassifierConfig};
/// use grove_transform::value_and_grad;
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let sizes = RnnClassifierConfig { vocab_size: 50, embedding_size: 8, ..RnnClassifierConfig::default() };
/// let config = RnnClassifierConfig { labels: vec!["bad".into(), "good".into()], hidden_size: 6, ..sizes };
/// let model = RnnClassifier::<B>::init(&config, Key::new(0), &device)?;
/// let texts = [vec![3, 14, 15], vec![9], vec![2, 6]];
/// let (loss, grads) = value_and_grad(&model, |model| {
///     let labels = Tensor::<_, 1, Int>::from_ints([0, 1, 1], &device);
///     model.loss(&model.pack(&texts).expect("tokens of the vocabulary"), labels, Some(Key::new(1)))
/// });
/// assert!(loss.into_scalar() > 0.0);
/// assert_eq!(grads.classifier.weight.shape(), [12, 2]);           // both directions
///
/// let predictions = model.predict(&model.pack(&texts)?);
/// assert!(["bad", "good"].contains(&&*predictions[1].label) && predictions[1].score >= 0.5);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
#[derive(Tree, Clone, Debug)]
pub struct RnnClassifier<B: Backend> {
    /// Token embedding, `[vocab_size, embedding_size]`.
    pub embedding: Embedding<B>,
    /// Recurrent layers, from `embedding_size` to `hidden_size` per direction.
    pub rnn: RnnLayers<B>,
    /// Output layer over the final states, `[directions * hidden_size, classes]`.
    pub classifier: Linear<B>,
    /// Configuration.
    #[tree(static)]
    pub config: RnnClassifierConfig,
}

impl<B: Backend> Pretrained<B> for RnnClassifier<B> {
    type Config = RnnClassifierConfig;

    /// Creates a model with PyTorch's initialisation: a normal embedding, and a uniform output layer with bound
    /// `1 / sqrt(inputs)`.
    ///
    /// # Errors
    /// [`ModelError::Config`] if the configuration is invalid.
    fn new(config: &RnnClassifierConfig, init: &Init<B>) -> Result<Self> {
        config.validate()?;
        let (embedding_size, n, classes) = (config.embedding_size, config.hidden_size, config.labels.len());
        let inputs = config.directions() * n;
        let (bound, head) = (1.0 / (inputs as f32).sqrt(), init.named("classifier"));
        Ok(Self {
            embedding: Embedding::normal(config.vocab_size, embedding_size, 1.0, init.named("embedding")),
            rnn: RnnLayers::new(config.cell, embedding_size, n, &config.options(), &init.named("rnn")),
            classifier: Linear::from_arrays(
                head.named("weight").uniform([inputs, classes], -bound, bound),
                Some(head.named("bias").uniform([classes], -bound, bound)),
            ),
            config: config.clone(),
        })
    }

    fn config(&self) -> &RnnClassifierConfig {
        &self.config
    }

    fn published_names(_: &RnnClassifierConfig) -> NameMap {
        classifier_names()
    }
}

impl<B: Backend> RnnClassifier<B> {
    /// Packs texts of different lengths, in any order, on the model's device.
    ///
    /// # Errors
    /// There are no texts, a text is empty, or a token is outside the vocabulary.
    pub fn pack(&self, texts: &[Vec<u32>]) -> Result<PackedSequence<Array<B, 1, Int>>> {
        let lengths: Vec<usize> = texts.iter().map(Vec::len).collect();
        let packing = Packing::new(&lengths, false)?;
        let vocab_size = self.config.vocab_size;
        if let Some(&id) = texts.iter().flatten().find(|&&id| id as usize >= vocab_size) {
            return Err(ModelError::TokenOutside { id, vocab_size });
        }
        let ids: Vec<i64> = packing.positions().map(|(i, step)| i64::from(texts[i][step])).collect();
        let (rows, device) = (ids.len(), self.embedding.weight.val().device());
        let ids = Tensor::from_data(TensorData::new(ids, [rows]), &device);
        Ok(PackedSequence { data: Array::new(ids), packing })
    }

    /// Computes the logits of the classes, in the order of the texts before packing. Dropout is applied if a `key` is
    /// given.
    ///
    /// # Shapes
    /// - ids `[rows]`, packed, each in `0..vocab_size`
    /// - output `[b, classes]`
    #[track_caller]
    pub fn forward(&self, ids: &PackedSequence<Array<B, 1, Int>>, key: Option<Key>) -> Tensor<B, 2> {
        let x = dropout(embed(&self.embedding, ids.data.val()), self.config.dropout, named_key(key, "embedding")); // [rows, embedding_size]
        let x = PackedSequence { data: Array::new(x), packing: ids.packing.clone() };
        let (_, state) = self.rnn.forward_packed(&x, None, named_key(key, "layers"));
        let (b, n, d) = (ids.packing.batch(), self.config.hidden_size, self.config.directions());
        let last = state.h.val().narrow(0, (self.config.num_layers - 1) * d, d); // [d, b, n]
        let last = last.swap_dims(0, 1).reshape([b, d * n]);
        self.classifier.forward(dropout(last, self.config.dropout, named_key(key, "output")))
    }

    /// Computes the mean negative log-likelihood, in nats, of the texts' classes.
    ///
    /// # Shapes
    /// - ids `[rows]`, packed
    /// - labels `[b]`, each in `0..classes`, or -100 to ignore the text
    /// - output `[1]`
    #[track_caller]
    pub fn loss(
        &self,
        ids: &PackedSequence<Array<B, 1, Int>>,
        labels: Tensor<B, 1, Int>,
        key: Option<Key>,
    ) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(ids, key), labels)
    }

    /// Returns the most probable class of each text.
    #[track_caller]
    pub fn predict(&self, ids: &PackedSequence<Array<B, 1, Int>>) -> Vec<Prediction> {
        self.predict_top(ids, 1).into_iter().flatten().collect()
    }

    /// The `k` most probable classes of each text, the most probable first.
    #[track_caller]
    pub fn predict_top(&self, ids: &PackedSequence<Array<B, 1, Int>>, k: usize) -> Vec<Vec<Prediction>> {
        predictions(self.forward(ids, None).cast(DType::F32), &self.config.labels, k)
    }
}
