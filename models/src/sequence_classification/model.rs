use burn::tensor::{DType, Int, Tensor};
use grove_backend::Backend;
use grove_layers::{Linear, loss, part_key};
use grove_text::TextIds;
use grove_tree::{Init, Key, Tree, cast, leaves};
use grove_weights::{LoadOptions, NameMap, Step, TensorFiles, load};
use serde_json::{Map, Value};

use super::{
    BaseDecoder, DecoderFacts, DecoderTexts,
    fields::{CLASS, Fields},
};
use crate::{
    Pretrained, PretrainedConfig, TextClassifier,
    bert::bucketed_len,
    error::Result,
    labels::keep_classes,
    model_files::ModelFiles,
    pretrained::{adapted, fields_of},
    problem_type::ProblemType,
    texts::longest,
};

/// Name of the head's weight in files, and its path.
const SCORE: &str = "score.weight";

/// A decoder with a head that classifies texts by the hidden state of their last token.
#[derive(Tree, Clone, Debug)]
pub struct DecoderForSequenceClassification<B: Backend, M> {
    /// Decoder without an output layer.
    pub decoder: M,
    /// Output layer, `[hidden_size, labels]`, without a bias.
    pub score: Linear<B>,
    /// Class names.
    #[tree(static)]
    pub labels: Vec<String>,
    /// Problem type that the configuration names; `None` means regression if there is one label, else single-label
    /// classification.
    #[tree(static)]
    pub problem_type: Option<ProblemType>,
    /// Padding token. A text is classified by its last token that is not this one; `None` for its last token.
    #[tree(static)]
    pub pad_token_id: Option<u32>,
}

impl<B: Backend, M: BaseDecoder<B>> DecoderForSequenceClassification<B, M> {
    /// Creates a batch of texts on the model's device. Token types are ignored: decoders have none.
    ///
    /// # Errors
    /// There are no texts, or a text is empty, is too long, or has a token outside the vocabulary.
    pub fn batch(&self, texts: &[TextIds]) -> Result<DecoderTexts<B>> {
        DecoderTexts::new(&self.decoder, texts, longest(texts), self.pad_token_id)
    }

    /// Computes the logits of the labels or, for regression, the predicted values. Dropout is applied if a `key` is
    /// given.
    ///
    /// # Shapes
    /// - texts: a batch of `[b, t]` tokens
    /// - output `[b, labels]`
    #[track_caller]
    pub fn forward(&self, texts: &DecoderTexts<B>, key: Option<Key>) -> Tensor<B, 2> {
        let states = self.states(texts, key);
        let [b, t, n] = states.dims();
        self.score.forward(states.reshape([b * t, n]).select(0, texts.last.val()))
    }

    /// Computes the mean negative log-likelihood, in nats, of one label per text, `[b]`; -100 is ignored.
    #[track_caller]
    pub fn loss(&self, texts: &DecoderTexts<B>, labels: Tensor<B, 1, Int>, key: Option<Key>) -> Tensor<B, 1> {
        loss::cross_entropy(self.forward(texts, key), labels)
    }

    /// Computes the hidden states, `[b, t, hidden_size]`; those of padding are meaningless.
    #[track_caller]
    fn states(&self, texts: &DecoderTexts<B>, key: Option<Key>) -> Tensor<B, 3> {
        let (ids, [_, t]) = (texts.ids.val(), texts.dims());
        let lengths = match &texts.lengths {
            Some(lengths) if self.decoder.reads_prompts_whole() && lengths.iter().any(|&length| length < t) => lengths,
            _ => return self.decoder.features(ids, key),
        };
        // All states depend on the sequence length, to which padding would count.
        let row = |(i, &length): (usize, &usize)| {
            let states = self.decoder.features(ids.clone().slice([i..i + 1, 0..length]), part_key(key, i));
            let [_, _, n] = states.dims();
            let place = [0..1, 0..length, 0..n];
            Tensor::zeros([1, t, n], (&states.device(), states.dtype())).slice_assign(place, states)
        };
        Tensor::cat(lengths.iter().enumerate().map(row).collect(), 0)
    }

    /// Loads a published decoder from a directory, a weights file or a hub id for fine-tuning, with a head for `labels`; see
    /// [`with_new_head_of`](Self::with_new_head_of).
    ///
    /// # Errors
    /// As [`ModelFiles::load`].
    pub fn with_new_head(source: &str, labels: Vec<String>, key: Key, device: &B::Device) -> Result<Self> {
        let (files, problem) = (ModelFiles::from_pretrained(source)?, ProblemType::trained(None, labels.len()));
        Self::with_new_head_of(&files, labels, problem, key, device, None)
    }

    /// Loads a published decoder for fine-tuning, with a head for `labels`. A classifier keeps the weights of the labels
    /// that its own `config.json` names too; the other labels, and those of a decoder without the head, get new weights.
    ///
    /// `dtype` is as in [`Pretrained::from_path`]; f32 is that of training.
    ///
    /// # Errors
    /// As [`ModelFiles::load`].
    pub fn with_new_head_of(
        files: &ModelFiles,
        labels: Vec<String>,
        problem: ProblemType,
        key: Key,
        device: &B::Device,
        dtype: Option<DType>,
    ) -> Result<Self> {
        let (checkpoint, adapters) = files.open()?;
        let old = M::Config::of(files.path(), &checkpoint)?;
        let (mut config, old) = (old.clone(), Fields::of(&fields_of(&old)?)?);
        let fields = Fields { labels, problem_type: Some(problem), ..old };
        fields.write(M::other(&mut config));
        let options = LoadOptions::new(device);
        let names = M::published_names(&config).ignore("lm_head.weight").ignore(SCORE);
        let skeleton = M::skeleton_for(&checkpoint, &config, dtype)?.without_lm_head();
        let (decoder, _) = load(skeleton, &checkpoint, &names, &options)?;
        let new_score = |labels: &[String], init: &Init<B>| {
            cast(new_score::<B, M>(&config, labels.len(), init), computing(&decoder).into())
        };
        let mut score = new_score(&fields.labels, &Init::new(key, device));
        if names.published(&checkpoint, SCORE).is_some() {
            let names = NameMap::new().prefix(M::PREFIX).prefix("model.").rule(SCORE, "weight").then(Step::Transpose);
            let skeleton = new_score(&old.labels, &Init::skeleton());
            let (own, _) = load(skeleton, &checkpoint, &names.ignore("**"), &options)?;
            score = keep_classes(&own, score, &old.labels, &fields.labels);
        }
        let Fields { labels, problem_type, pad_token_id } = fields;
        let model = Self { decoder, score, labels, problem_type, pad_token_id };
        adapted(model, &Self::published_names(&config), adapters.as_ref(), dtype)
    }
}

/// Creates the output layer.
fn new_score<B: Backend, M: BaseDecoder<B>>(config: &M::Config, labels: usize, init: &Init<B>) -> Linear<B> {
    let DecoderFacts { hidden_size, initializer_range, .. } = M::facts(config);
    Linear { bias: None, ..Linear::normal(hidden_size, labels, initializer_range, init.named("score")) }
}

/// Returns the dtype of a decoder's activations: that of its norms.
fn computing<B: Backend>(decoder: &impl Tree<B>) -> DType {
    let mut all = leaves(decoder).into_iter().map(|(_, leaf)| leaf);
    all.find(|leaf| leaf.shape().len() == 1 && leaf.dtype().is_float()).map_or(DType::F32, |leaf| leaf.dtype())
}

impl<B: Backend, M: BaseDecoder<B>> Pretrained<B> for DecoderForSequenceClassification<B, M> {
    type Config = M::Config;

    /// Creates a model with the published initialisation of the decoder, and a normal output layer with standard deviation
    /// `initializer_range`.
    ///
    /// # Errors
    /// [`ModelError::Config`](crate::ModelError::Config) if the configuration is invalid.
    fn new(config: &M::Config, init: &Init<B>) -> Result<Self> {
        let Fields { labels, problem_type, pad_token_id } = Fields::of(&fields_of(config)?)?;
        let decoder = M::new(config, &init.named("decoder"))?.without_lm_head();
        let score = new_score::<B, M>(config, labels.len(), init);
        Ok(Self { decoder, score, labels, problem_type, pad_token_id })
    }

    fn config(&self) -> &M::Config {
        self.decoder.config()
    }

    fn published_names(config: &M::Config) -> NameMap {
        let names = M::published_names(config).within(M::PREFIX, "decoder.");
        // transformers ignores the head of language modelling too.
        names.rule(SCORE, SCORE).then(Step::Transpose).ignore("lm_head.weight")
    }

    fn published_config(&self) -> Result<Map<String, Value>> {
        let mut fields = self.decoder.published_config()?;
        let Self { labels, problem_type, pad_token_id, .. } = self.clone();
        Fields { labels, problem_type, pad_token_id }.write(&mut fields);
        fields.insert("architectures".into(), vec![format!("{}{CLASS}", M::facts(self.config()).class)].into());
        Ok(fields)
    }

    /// Returns the model without weights. The decoder has the dtypes of its family; the head has that of the norms.
    fn skeleton_for(checkpoint: &TensorFiles, config: &M::Config, dtype: Option<DType>) -> Result<Self> {
        let decoder = M::skeleton_for(checkpoint, config, dtype)?.without_lm_head();
        let Self { score, labels, problem_type, pad_token_id, .. } = Self::skeleton(config)?;
        let score = cast(score, computing(&decoder).into());
        Ok(Self { decoder, score, labels, problem_type, pad_token_id })
    }
}

impl<B: Backend, M: BaseDecoder<B>> TextClassifier<B> for DecoderForSequenceClassification<B, M> {
    const TOKEN_TYPES: bool = false;

    type Texts = DecoderTexts<B>;

    fn texts(&self, texts: &[TextIds]) -> Result<DecoderTexts<B>> {
        self.batch(texts)
    }

    fn bucketed_texts(&self, texts: &[TextIds]) -> Result<DecoderTexts<B>> {
        if self.decoder.reads_prompts_whole() {
            return self.batch(texts);
        }
        let t = bucketed_len(longest(texts)).min(self.position_limit().unwrap_or(usize::MAX));
        Ok(DecoderTexts { lengths: None, ..DecoderTexts::new(&self.decoder, texts, t, self.pad_token_id)? })
    }

    #[track_caller]
    fn logits(&self, texts: &DecoderTexts<B>, key: Option<Key>) -> Tensor<B, 2> {
        self.forward(texts, key)
    }

    fn labels(&self) -> &[String] {
        &self.labels
    }

    fn problem_type(&self) -> Result<Option<ProblemType>> {
        Ok(self.problem_type)
    }

    fn position_limit(&self) -> Option<usize> {
        self.decoder.position_limit()
    }

    /// Counts the decoder's layers, and the embeddings as one more.
    fn depth(&self, path: &str) -> usize {
        let layers = M::facts(self.config()).num_layers;
        let mut parts = path.split('.').skip(1);
        match (parts.next(), parts.next().and_then(|part| part.parse::<usize>().ok())) {
            (Some("wte" | "wpe" | "embed_tokens"), _) => layers + 1,
            (_, Some(layer)) => layers - layer,
            _ => 0,
        }
    }
}
