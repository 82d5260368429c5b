//! BERT, RoBERTa and DistilBERT against transformers: outputs, loss and gradients of every head on padded batches and
//! pairs, all variants of the published names, and sentence embeddings. Fixtures: tools/fixtures/bert.py.

use crate::common;
use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Autodiff, Backend};
use grove_layers::lora;
use grove_models::{
    ModelError, ModelFiles, Pretrained, PretrainedConfig,
    bert::{
        Bert, BertConfig, BertForMaskedLm, BertForMultipleChoice, BertForNextSentence, BertForQuestionAnswering,
        BertForSequenceClassification, BertForTokenClassification, BertHead, LORA_TARGETS, ProblemType,
        SentenceEncoder, WithHead,
    },
};
use grove_text::TextIds;
use grove_transform::{GradOptions, from_inner, value_and_grad};
use grove_tree::{AnyArray, Key, all_close, eq, leaves, map_with_path};
use grove_weights::{SaveOptions, TensorFiles, save_model};
use std::path::{Path, PathBuf};

use crate::arrays::same_arrays;

fn fixtures() -> PathBuf {
    Path::new("tests/fixtures/bert").into()
}

/// Reference values from transformers.
struct Reference {
    name: &'static str,
    checkpoint: TensorFiles,
}

impl Reference {
    fn of(name: &'static str) -> Self {
        let checkpoint = TensorFiles::open(fixtures().join(name).join("reference.safetensors")).unwrap();
        Self { name, checkpoint }
    }

    fn directory(&self) -> PathBuf {
        fixtures().join(self.name)
    }

    fn data(&self, name: &str) -> TensorData {
        self.checkpoint.tensor(name).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn lengths(&self) -> Vec<usize> {
        let mask = self.data("mask");
        let t = mask.shape.as_slice()[1];
        let mask: Vec<i64> = mask.iter().collect();
        mask.chunks(t).map(|row| row.iter().sum::<i64>() as usize).collect()
    }

    /// Returns the texts without padding.
    fn texts(&self) -> Vec<TextIds> {
        let rows = |name: &str| {
            let data = self.checkpoint.contains(name).then(|| self.data(name))?;
            let t = data.shape.as_slice()[1];
            let all: Vec<u32> = data.iter::<i64>().map(|id| id as u32).collect();
            Some(all.chunks(t).map(<[u32]>::to_vec).collect::<Vec<_>>())
        };
        let (ids, types) = (rows("ids").unwrap(), rows("types"));
        let text = |(i, &length): (usize, &usize)| TextIds {
            ids: ids[i][..length].to_vec(),
            token_types: types.as_ref().map_or(vec![], |types| types[i][..length].to_vec()),
        };
        self.lengths().iter().enumerate().map(text).collect()
    }

    fn labels<A: Backend, const D: usize>(&self, name: &str, device: &A::Device) -> Tensor<A, D, Int> {
        Tensor::from_data(self.data(name), device)
    }

    /// Asserts that values are close: all values, or if `padded` those of positions without padding.
    fn close(&self, part: &str, found: TensorData, tolerance: f64, padded: bool) {
        let expected = self.data(part);
        assert_eq!(found.shape, expected.shape, "{} {part}", self.name);
        let (mut a, mut b): (Vec<f64>, Vec<f64>) = (found.iter().collect(), expected.iter().collect());
        if padded {
            let t = found.shape.as_slice()[1];
            let width: usize = found.shape.as_slice()[2..].iter().product();
            let lengths = self.lengths();
            let counts = |i: &usize| (i / width) % t < lengths[i / (width * t)];
            (a, b) = (0..a.len()).filter(counts).map(|i| (a[i], b[i])).unzip();
        }
        let (apart, largest) = common::distance(&a, &b);
        assert!(apart <= tolerance * largest, "{} {part}: apart by {apart}, the largest is {largest}", self.name);
    }

    /// Compares a loss and its gradients.
    fn loss<B: Backend, H: BertHead<B>>(
        &self,
        model: &WithHead<B, H>,
        f: impl FnOnce(WithHead<Autodiff<B>, H::On<Autodiff<B>>>) -> Tensor<Autodiff<B>, 1>,
    ) {
        let (loss, grads) = value_and_grad(model, f);
        self.close("loss", loss.into_data(), 1e-4, false);
        self.gradients(&grads);
    }

    /// Compares the gradients of a loss under their published names.
    fn gradients<B: Backend, H: BertHead<B>>(&self, grads: &WithHead<B, H>) {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("grads.safetensors");
        let names = WithHead::<B, H>::published_names(&grads.bert.config);
        save_model(grads, &names, &file, &SaveOptions::default()).unwrap();
        let found = TensorFiles::open(&file).unwrap();
        let expected: Vec<&str> = self.checkpoint.names().filter_map(|name| name.strip_prefix("grad.")).collect();
        assert_eq!(expected.len(), leaves(grads).len(), "{}", self.name);
        let largest = |data: &TensorData| data.iter::<f64>().map(f64::abs).fold(0.0, f64::max);
        let overall = expected.iter().map(|name| largest(&self.data(&format!("grad.{name}")))).fold(0.0, f64::max);
        for name in expected {
            let grad = found.tensor(name).unwrap();
            // Some exact gradients are 0, such as that of a common shift of all scores; the computed ones are rounding
            // errors.
            if largest(&self.data(&format!("grad.{name}"))) < 1e-9 * overall {
                assert!(largest(&grad) <= 1e-6 * overall, "{} {name}", self.name);
                continue;
            }
            self.close(&format!("grad.{name}"), grad, 1e-3, false);
        }
    }
}

fn load<B: Backend, H: BertHead<B>>(reference: &Reference, device: &B::Device) -> WithHead<B, H> {
    let (model, report) = WithHead::from_path(reference.directory(), device, None).unwrap();
    assert!(report.is_complete(), "{}: {report}", reference.name);
    model
}

fn encoders<B: Backend>(device: B::Device) {
    for name in ["bert_model", "roberta_model", "distilbert_model"] {
        let reference = Reference::of(name);
        let (model, report) = Bert::<B>::from_path(reference.directory(), &device, None).unwrap();
        assert!(report.is_complete());
        let texts = model.batch(&reference.texts()).unwrap();
        for (i, state) in model.hidden_states(&texts, None).into_iter().enumerate() {
            reference.close(&format!("hidden.{i}"), state.into_data(), 1e-4, true);
        }
        let pooled = model.pool(model.forward(&texts, None));
        assert_eq!(pooled.is_some(), name != "distilbert_model");
        if let Some(pooled) = pooled {
            reference.close("pooled", pooled.into_data(), 1e-4, false);
        }
    }
}

fn masked<B: Backend>(device: B::Device) {
    for name in ["bert_masked", "roberta_masked", "distilbert_masked", "bert_untied", "xlm_roberta_masked"] {
        let reference = Reference::of(name);
        let model: BertForMaskedLm<B> = load(&reference, &device);
        let texts = model.bert.batch(&reference.texts()).unwrap();
        reference.close("logits", model.forward(&texts, None).into_data(), 1e-4, true);
        let texts = || from_inner(texts.clone());
        reference.loss(&model, |model| model.loss(&texts(), reference.labels("labels", &device), None));
    }
}

/// The file says that the output layer is tied, but its weights differ from the embedding.
fn untied_by_its_weights<B: Backend>(device: B::Device) {
    let reference = Reference::of("variants/decoder_differs");
    let model: BertForMaskedLm<B> = load(&reference, &device);
    assert!(!model.bert.config.tie_word_embeddings && model.head.decoder.is_some());
    let texts = model.bert.batch(&reference.texts()).unwrap();
    reference.close("logits", model.forward(&texts, None).into_data(), 1e-4, true);
}

fn next_sentence<B: Backend>(device: B::Device) {
    let reference = Reference::of("bert_next");
    let model: BertForNextSentence<B> = load(&reference, &device);
    let texts = model.bert.batch(&reference.texts()).unwrap();
    reference.close("logits", model.forward(&texts, None).into_data(), 1e-4, false);
    let texts = || from_inner(texts.clone());
    reference.loss(&model, |model| model.loss(&texts(), reference.labels("labels", &device), None));
}

fn classes<B: Backend>(device: B::Device) {
    let names = [
        "bert_classify",
        "roberta_classify",
        "distilbert_classify",
        "bert_multi",
        "bert_regress",
        "camembert_classify",
    ];
    for name in names {
        let reference = Reference::of(name);
        let model: BertForSequenceClassification<B> = load(&reference, &device);
        assert_eq!(model.bert.config.labels, ["sad", "merry", "neither"]);
        let texts = model.bert.batch(&reference.texts()).unwrap();
        reference.close("logits", model.forward(&texts, None).into_data(), 1e-4, false);
        let problem = model.bert.config.problem().unwrap();
        let texts = || from_inner(texts.clone());
        reference.loss(&model, |model| {
            let texts = texts();
            let numbers = || Tensor::<Autodiff<B>, 2>::from_data(reference.data("labels"), &device);
            match problem {
                ProblemType::SingleLabel => model.loss(&texts, reference.labels("labels", &device), None),
                ProblemType::MultiLabel => model.multi_label_loss(&texts, numbers(), None),
                ProblemType::Regression => model.regression_loss(&texts, numbers(), None),
            }
        });
    }
}

fn tokens<B: Backend>(device: B::Device) {
    for name in ["bert_tokens", "roberta_tokens", "distilbert_tokens"] {
        let reference = Reference::of(name);
        let model: BertForTokenClassification<B> = load(&reference, &device);
        let texts = model.bert.batch(&reference.texts()).unwrap();
        reference.close("logits", model.forward(&texts, None).into_data(), 1e-4, true);
        let texts = || from_inner(texts.clone());
        reference.loss(&model, |model| model.loss(&texts(), reference.labels("labels", &device), None));
    }
}

fn answers<B: Backend>(device: B::Device) {
    for name in ["bert_answer", "roberta_answer", "distilbert_answer"] {
        let reference = Reference::of(name);
        let model: BertForQuestionAnswering<B> = load(&reference, &device);
        let texts = model.bert.batch(&reference.texts()).unwrap();
        let [starts, ends] = model.forward(&texts, None);
        reference.close("starts", starts.into_data(), 1e-4, true);
        reference.close("ends", ends.into_data(), 1e-4, true);
        let texts = || from_inner(texts.clone());
        reference.loss(&model, |model| {
            let [starts, ends] = ["start_positions", "end_positions"].map(|part| reference.labels(part, &device));
            model.loss(&texts(), starts, ends, None)
        });
    }
}

fn choices<B: Backend>(device: B::Device) {
    for name in ["bert_choice", "roberta_choice", "distilbert_choice"] {
        let reference = Reference::of(name);
        let model: BertForMultipleChoice<B> = load(&reference, &device);
        let texts = model.bert.batch(&reference.texts()).unwrap();
        reference.close("logits", model.forward(&texts, 2, None).into_data(), 1e-4, false);
        let texts = || from_inner(texts.clone());
        reference.loss(&model, |model| model.loss(&texts(), 2, reference.labels("labels", &device), None));
    }
}

/// The states of a text do not depend on longer texts in its batch.
fn padding_changes_nothing<B: Backend>(device: B::Device) {
    for name in ["bert_model", "roberta_model", "distilbert_model"] {
        let reference = Reference::of(name);
        let (model, _) = Bert::<B>::from_path(reference.directory(), &device, None).unwrap();
        let texts = reference.texts();
        let together = model.forward(&model.batch(&texts).unwrap(), None);
        for (i, text) in texts.iter().enumerate() {
            let alone = model.forward(&model.batch(std::slice::from_ref(text)).unwrap(), None);
            let beside = together.clone().slice([i..i + 1, 0..text.ids.len()]);
            let (apart, largest) = common::distance(
                &alone.into_data().iter::<f64>().collect::<Vec<_>>(),
                &beside.into_data().iter::<f64>().collect::<Vec<_>>(),
            );
            assert!(apart <= 1e-5 * largest, "{name}, text {i}: apart by {apart} of {largest}");
        }
    }
}

fn sentences<B: Backend>(device: B::Device) {
    for name in ["sentence/mean_tokens", "sentence/cls_token", "sentence/max_tokens"] {
        let reference = Reference::of(name);
        let (encoder, _) = SentenceEncoder::<B>::from_path(reference.directory(), &device, None).unwrap();
        assert_eq!(encoder.modules.len(), usize::from(name != "sentence/max_tokens"));
        let texts = encoder.bert.batch(&reference.texts()).unwrap();
        reference.close("embeddings", encoder.forward(&texts).into_data(), 1e-4, false);
    }
}

/// LoRA adapters against peft: outputs, loss and gradients. Merging does not change the outputs.
fn adapters<B: Backend>(device: B::Device) {
    let reference = Reference::of("bert_classify");
    let expected = Reference {
        name: "lora",
        checkpoint: TensorFiles::open(reference.directory().join("lora.safetensors")).unwrap(),
    };
    let model: BertForSequenceClassification<B> = load(&reference, &device);
    let before = model.clone();
    let adapt = |bert: Bert<B>| lora::add(bert, &LORA_TARGETS, 3, 5.0, Key::new(0)).unwrap();
    let model = BertForSequenceClassification { bert: adapt(model.bert), head: model.head };
    let texts = model.bert.batch(&reference.texts()).unwrap();
    // New adapters do not change the output.
    assert_eq!(model.forward(&texts, None).into_data(), before.forward(&texts, None).into_data());
    let published = |path: &grove_tree::Path| {
        let (linear, part) = path.as_str().strip_prefix("bert.")?.split_once(".low_rank.")?;
        Some(format!("{part}.{linear}"))
    };
    let model = map_with_path(model, |path, leaf| match published(path) {
        Some(name) => AnyArray::from_data(expected.data(&name), &device),
        None => leaf,
    });
    let logits = model.forward(&texts, None);
    expected.close("logits", logits.into_data(), 1e-4, false);
    // Other libraries cannot read unmerged adapters in this format.
    let directory = tempfile::tempdir().unwrap();
    let message = model.save_pretrained(directory.path()).unwrap_err().to_string();
    assert!(
        message.contains("bert.encoder.layer.0.attention.query.low_rank.a") && message.contains("`lora::merge`"),
        "{message}"
    );
    assert!(std::fs::read_dir(directory.path()).unwrap().next().is_none());
    let merged = lora::merge(model.clone());
    merged.save_pretrained(directory.path()).unwrap();
    expected.close("logits", merged.forward(&texts, None).into_data(), 1e-4, false);
    assert_eq!(leaves(&merged).len(), leaves(&before).len());

    let texts = from_inner(texts);
    let only = GradOptions::new().only(lora::trainable());
    let (loss, grads, ()) =
        only.value_and_grad_aux(&model, |model| (model.loss(&texts, reference.labels("labels", &device), None), ()));
    expected.close("loss", loss.into_data(), 1e-4, false);
    let mut compared = 0;
    map_with_path(grads, |path, leaf| {
        let name = published(path);
        assert_eq!(leaf.is_present(), name.is_some(), "{path}");
        if let Some(name) = name {
            expected.close(&format!("grad.{name}"), leaf.clone().into_data().unwrap(), 1e-3, false);
            compared += 1;
        }
        leaf
    });
    assert_eq!(compared, 8);
}

/// The loss at given positions equals the loss of all positions with the others ignored.
fn loss_at_positions<B: Backend>(device: B::Device) {
    let reference = Reference::of("bert_masked");
    let model: BertForMaskedLm<B> = load(&reference, &device);
    let texts = model.bert.batch(&reference.texts()).unwrap();
    let labels: Vec<i64> = reference.data("labels").iter().collect();
    let (positions, labels): (Vec<i64>, Vec<i64>) = (0..).zip(labels).filter(|(_, label)| *label >= 0).unzip();
    let count = labels.len();
    let numbers = |values: Vec<i64>| Tensor::from_data(TensorData::new(values, [count]), &device);
    let loss = model.loss_at(&texts, numbers(positions), numbers(labels), None);
    reference.close("loss", loss.into_data(), 1e-4, false);
}

on_each_backend!(
    next_sentence,
    adapters,
    loss_at_positions,
    encoders,
    masked,
    untied_by_its_weights,
    classes,
    tokens,
    answers,
    choices,
    padding_changes_nothing,
    sentences
);

type Flex = grove_backend::Flex;

#[test]
fn every_published_naming_loads() {
    let device = Default::default();
    let original: BertForMaskedLm<Flex> = load(&Reference::of("bert_masked"), &device);
    for variant in ["gamma_beta", "pretraining_bin", "decoder_present", "no_prefix"] {
        let directory = fixtures().join("variants").join(variant);
        let (model, _) = BertForMaskedLm::<Flex>::from_path(&directory, &device, None).unwrap();
        assert!(all_close(&model, &original, 0.0, 0.0), "{variant}");
        let (encoder, _) = Bert::<Flex>::from_path(&directory, &device, None).unwrap();
        assert_eq!(encoder.pooler.is_some(), variant == "pretraining_bin");
        assert!(all_close(&encoder.encoder, &original.bert.encoder, 0.0, 0.0), "{variant}");
    }
}

#[test]
fn saved_models_come_back() {
    let (device, directory) = (Default::default(), tempfile::tempdir().unwrap());
    for name in ["bert_classify", "roberta_classify", "distilbert_classify"] {
        let reference = Reference::of(name);
        let model: BertForSequenceClassification<Flex> = load(&reference, &device);
        model.save_pretrained(directory.path()).unwrap();
        let (again, report) =
            BertForSequenceClassification::<Flex>::from_path(directory.path(), &device, None).unwrap();
        assert!(same_arrays(&again, &model) && report.is_complete(), "{name}");
        // The saved names equal transformers'.
        let names = |directory: &Path| -> Vec<String> {
            let mut names: Vec<_> =
                TensorFiles::open(directory.join("model.safetensors")).unwrap().names().map(str::to_owned).collect();
            names.sort();
            names
        };
        assert_eq!(names(directory.path()), names(&reference.directory()), "{name}");
    }
}

#[test]
fn a_new_head_goes_on_a_published_encoder() {
    let device = Default::default();
    let reference = Reference::of("bert_masked");
    let masked: BertForMaskedLm<Flex> = load(&reference, &device);
    let labels = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    let with_new_head = |path: &Path| {
        let source = path.to_str().unwrap();
        BertForSequenceClassification::<Flex>::with_new_head(source, labels.clone(), Key::new(1), &device)
    };
    let config = BertConfig { labels: labels.clone(), ..BertConfig::beside(reference.directory()).unwrap() };
    let files = ModelFiles::at(reference.directory()).unwrap();
    let (model, report) =
        BertForSequenceClassification::<Flex>::with_new_head_of(&files, &config, Key::new(1), &device, None).unwrap();
    assert!(eq(&model, &with_new_head(&reference.directory()).unwrap()));
    assert!(eq(&model.bert.encoder, &masked.bert.encoder) && !report.is_complete());
    assert_eq!(model.head.classifier.weight.shape(), [18, 4]);
    assert!(model.bert.pooler.is_some());

    // The number of labels differs, so the classifier is initialised anew.
    let classify = Reference::of("bert_classify").directory();
    let model = with_new_head(&classify).unwrap();
    assert_eq!(model.head.classifier.weight.shape(), [18, 4]);

    // The head of token classification has the same names and is not taken.
    let tokens = Reference::of("bert_tokens").directory();
    let (files, config) = (ModelFiles::at(tokens.clone()).unwrap(), BertConfig::beside(&tokens).unwrap());
    let (model, report) =
        BertForSequenceClassification::<Flex>::with_new_head_of(&files, &config, Key::new(1), &device, None).unwrap();
    assert!(report.missing.iter().any(|missing| missing.path == "head.classifier.weight"), "{report}");
    let own = TensorFiles::open(&tokens).unwrap().tensor("classifier.weight").unwrap();
    let own = Tensor::<Flex, 2>::from_data(own, &device).transpose();
    assert!(
        own.dims() == model.head.classifier.weight.shape()
            && own.into_data() != model.head.classifier.weight.val().into_data()
    );

    // A file without the encoder's tensors is refused.
    let other = Reference::of("distilbert_masked").directory().join("model.safetensors");
    let (other, config) = (ModelFiles::at(other).unwrap(), BertConfig::beside(reference.directory()).unwrap());
    let error = BertForSequenceClassification::<Flex>::with_new_head_of(&other, &config, Key::new(1), &device, None);
    let error = error.unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
}

/// Labels that the model has keep their weights, at any index; other labels get new weights.
#[test]
fn labels_of_a_new_head_go_by_their_names() {
    let device = Default::default();
    for name in ["bert_classify", "roberta_classify", "distilbert_classify"] {
        let reference = Reference::of(name);
        let model: BertForSequenceClassification<Flex> = load(&reference, &device);
        let own = model.bert.config.labels.clone();
        let labels: Vec<String> = own.iter().rev().cloned().chain(["new".into()]).collect();
        let config = BertConfig { labels: labels.clone(), ..BertConfig::beside(reference.directory()).unwrap() };
        let files = ModelFiles::at(reference.directory()).unwrap();
        let (other, report) =
            BertForSequenceClassification::<Flex>::with_new_head_of(&files, &config, Key::new(1), &device, None)
                .unwrap();
        assert!(report.is_complete(), "{name}: {report}");
        assert_eq!(other.bert.config.labels, labels);
        let rows = |model: &BertForSequenceClassification<Flex>| -> Vec<Vec<f32>> {
            let weight = model.head.classifier.weight.val().transpose();
            let columns = weight.dims()[1];
            let numbers: Vec<f32> = weight.into_data().iter().collect();
            numbers.chunks(columns).map(<[f32]>::to_vec).collect()
        };
        let (old, new) = (rows(&model), rows(&other));
        assert_eq!(new.len(), own.len() + 1);
        assert!(old.iter().rev().eq(&new[..own.len()]), "{name}");
        assert!(!old.contains(&new[own.len()]) && new[own.len()].iter().any(|x| *x != 0.0));
        let bias = |model: &BertForSequenceClassification<Flex>| -> Vec<f32> {
            model.head.classifier.bias.as_ref().unwrap().val().into_data().iter().collect()
        };
        let reversed: Vec<f32> = bias(&model).into_iter().rev().chain([0.0]).collect();
        assert_eq!(bias(&other), reversed);
    }
}

#[test]
fn texts_that_the_model_cannot_read() {
    let model = Bert::<Flex>::from_path(Reference::of("bert_model").directory(), &Default::default(), None).unwrap().0;
    let error = |texts: &[TextIds]| model.batch(texts).unwrap_err();
    assert!(matches!(error(&[]), ModelError::EmptyText));
    assert!(matches!(error(&[vec![3].into(), vec![].into()]), ModelError::EmptyText));
    assert!(matches!(error(&[vec![61].into()]), ModelError::TokenOutside { id: 61, .. }));
    assert!(matches!(error(&[vec![1; 18].into()]), ModelError::TextTooLong { len: 18, most: 17 }));
    assert!(matches!(error(&[TextIds { ids: vec![1, 2], token_types: vec![0, 3] }]), ModelError::Option { .. }));
    assert!(matches!(error(&[TextIds { ids: vec![1, 2], token_types: vec![0] }]), ModelError::Option { .. }));
}

#[test]
fn sentence_files_that_are_wrong() {
    let (device, directory) = (Default::default(), tempfile::tempdir().unwrap());
    let source = Reference::of("sentence/mean_tokens").directory();
    for file in ["config.json", "model.safetensors"] {
        std::fs::copy(source.join(file), directory.path().join(file)).unwrap();
    }
    let says = |modules: &str, pooling: &str| {
        std::fs::write(directory.path().join("modules.json"), modules).unwrap();
        std::fs::create_dir_all(directory.path().join("1_Pooling")).unwrap();
        std::fs::write(directory.path().join("1_Pooling/config.json"), pooling).unwrap();
        SentenceEncoder::<Flex>::from_path(directory.path(), &device, None).unwrap_err().to_string()
    };
    let modules = |path: &str, kind: &str| {
        let module =
            |path: &str, kind: &str| format!(r#"{{"path": "{path}", "type": "sentence_transformers.models.{kind}"}}"#);
        format!("[{}, {}, {}]", module("", "Transformer"), module("1_Pooling", "Pooling"), module(path, kind))
    };
    assert!(says(&modules("2_CNN", "CNN"), "{}").contains("'sentence_transformers.models.CNN'"));
    assert!(says(&modules("../2_Normalize", "Normalize"), "{}").contains("leads out of the directory"));
    let median = r#"{"pooling_mode_median": true}"#;
    assert!(says(&modules("2_Normalize", "Normalize"), median).contains("pooling_mode_median is not known"));
    assert!(says("{}", "{}").contains("modules.json"));
}

/// Copies a model and prepends a prefix to all tensor names.
fn with_prefix(from: &Path, prefix: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(from.join("config.json"), folder.path().join("config.json")).unwrap();
    let bytes = std::fs::read(from.join("model.safetensors")).unwrap();
    let (length, rest) = bytes.split_first_chunk().unwrap();
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let fields: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(header).unwrap();
    let renamed = |(name, value)| (if name == "__metadata__" { name } else { format!("{prefix}{name}") }, value);
    let header = serde_json::to_vec(&fields.into_iter().map(renamed).collect::<serde_json::Map<_, _>>()).unwrap();
    let whole = [&(header.len() as u64).to_le_bytes()[..], &header, tensors].concat();
    std::fs::write(folder.path().join("model.safetensors"), whole).unwrap();
    folder
}

/// The pooler is found under each prefix that sentence encoders use.
#[test]
fn accepts_any_prefix_of_a_pooler() {
    let from = fixtures().join("bert_model");
    let read = |path: &Path| Bert::<burn_flex::Flex>::from_path(path, &Default::default(), None).unwrap().0;
    let plain = read(&from);
    assert!(plain.pooler.is_some());
    for prefix in ["model.", "bert.", "_orig_mod.model."] {
        assert!(eq(&read(with_prefix(&from, prefix).path()), &plain), "{prefix}");
    }
}
