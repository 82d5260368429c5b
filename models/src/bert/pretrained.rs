use burn::tensor::DType;
use grove_backend::Backend;
use grove_transform::eval_shape;
use grove_tree::{Init, Key};
use grove_weights::{LoadOptions, NameMap, Report, load};
use serde_json::{Map, Value};

use super::{
    Bert, BertConfig, BertHead, WithHead,
    names::{encoder_below_head, published_names},
};
use crate::{
    Pretrained, PretrainedConfig, error::Result, families::class_with_head, model_files::ModelFiles,
    pretrained::adapted,
};

impl<B: Backend, H: BertHead<B>> Pretrained<B> for WithHead<B, H> {
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

impl<B: Backend, H: BertHead<B>> WithHead<B, H> {
    /// Loads a published encoder from a directory, a weights file or a hub id for fine-tuning, with a head for `labels`. A
    /// head keeps the weights of labels that the model's own `config.json` names too, and gets new weights for the others.
    ///
    /// # Errors
    /// As [`with_new_head_of`](Self::with_new_head_of).
    pub fn with_new_head(source: &str, labels: Vec<String>, key: Key, device: &B::Device) -> Result<Self> {
        let files = ModelFiles::from_pretrained(source)?;
        let config = BertConfig { labels, problem_type: None, ..BertConfig::beside(files.path())? };
        Ok(Self::with_new_head_of(&files, &config, key, device, None)?.0)
    }

    /// Loads a published encoder for fine-tuning, with a head. Tensors that are absent from the file get initial
    /// weights; the report lists them. The head gets initial weights if the `config.json` names a class with another
    /// head. A classification head keeps the weights of labels that the model's own `config.json` names too, matched by
    /// name, and gets new weights for the other labels.
    ///
    /// # Errors
    /// The error names the file and the remedy. A file without the encoder's tensors is an error too. Also as
    /// [`ModelFiles::load`].
    pub fn with_new_head_of(
        files: &ModelFiles,
        config: &BertConfig,
        key: Key,
        device: &B::Device,
        dtype: Option<DType>,
    ) -> Result<(Self, Report)> {
        let (checkpoint, adapters) = files.open()?;
        // The encoder must be complete, so it is loaded strictly. The head is loaded in a second pass.
        let encoder_names = published_names(config, false);
        let encoder = eval_shape(|init| Bert::with_pooler(config, false, init))?;
        let strict = LoadOptions { dtype, ..LoadOptions::new(device) };
        let (bert, _) = load(encoder, &checkpoint, &encoder_names, &strict)?;
        let labels = match BertConfig::beside(files.path()) {
            Ok(BertConfig { labels, .. }) if !labels.is_empty() => labels,
            _ => config.labels.clone(),
        };
        let own = BertConfig { labels: labels.clone(), ..config.clone() };
        let fresh = Self::init(&own, key, device)?;
        // Heads of several classes have the same names.
        let of_other_head = class_with_head(files.path())?.is_some_and(|class| format!("For{class}") != H::CLASS);
        let names = match of_other_head {
            true => encoder_below_head(config, H::pooled(config.model_type)),
            false => Self::published_names(config),
        };
        let (mut model, report) = load(fresh, &checkpoint, &names, &LoadOptions { strict: false, ..strict })?;
        (model.bert.embeddings, model.bert.encoder) = (bert.embeddings, bert.encoder);
        let mut model = adapted(model, &Self::published_names(config), adapters.as_ref(), dtype)?;
        if labels != config.labels {
            let new = H::new(config, &Init::new(key, device).named("head"));
            model.head = model.head.keep_classes(new, &labels, &config.labels);
            model.bert.config = config.clone();
        }
        Ok((model, report))
    }
}

impl BertConfig {
    /// Returns the fields of the `config.json` of a model with this class suffix, such as `ForMaskedLM`.
    pub(super) fn published(&self, class: &str) -> Map<String, Value> {
        let mut fields = self.to_json();
        fields.insert("architectures".into(), vec![format!("{}{class}", self.model_type.class())].into());
        fields
    }
}
