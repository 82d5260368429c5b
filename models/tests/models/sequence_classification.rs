//! Decoders that classify texts against transformers: logits, losses and gradients on padded batches, names in files, and
//! heads for new labels. Fixtures: tools/fixtures/sequence_classification.py.

use burn::tensor::{DType, Tensor};
use grove_backend::{Autodiff, Backend, Flex};
use grove_layers::loss;
use grove_models::{
    AutoModel, Gpt2, GptNeo, Llama, Pretrained, TextClassifier,
    bert::ProblemType,
    sequence_classification::{
        BaseDecoder, DecoderForSequenceClassification, Gpt2ForSequenceClassification, GptNeoForSequenceClassification,
        LlamaForSequenceClassification,
    },
};
use grove_text::TextIds;
use grove_transform::value_and_grad;
use grove_tree::{Key, Tree, eq, leaves};
use grove_weights::TensorFiles;
use std::path::Path;

use crate::{arrays::same_arrays, reference::Reference};

type Classifier<B, M> = DecoderForSequenceClassification<B, M>;

const LLAMAS: [&str; 5] = ["llama", "mistral", "qwen2", "qwen3", "llama_dynamic"];

fn load<B: Backend, M: BaseDecoder<B>>(name: &str, device: &B::Device) -> (Reference, Classifier<B, M>) {
    let reference = Reference::of("sequence_classification", name);
    let (model, report) = Classifier::<B, M>::from_path(&reference.directory, device, None).unwrap();
    assert!(report.is_complete(), "{name}: {report}");
    (reference, model)
}

/// Returns the texts without padding.
fn texts(reference: &Reference) -> Vec<TextIds> {
    let (ids, lengths) = (reference.ids("ids"), reference.ids("lengths"));
    let t = ids.len() / lengths.len();
    ids.chunks(t).zip(lengths).map(|(row, length)| row[..length as usize].to_vec().into()).collect()
}

fn check<B: Backend, M>(name: &str, device: &B::Device)
where
    M: BaseDecoder<B> + Tree<B, On<Autodiff<B>>: BaseDecoder<Autodiff<B>>>,
{
    let (reference, model) = load::<B, M>(name, device);
    let texts = texts(&reference);
    let logits = model.forward(&model.batch(&texts).unwrap(), None);
    reference.close("logits", logits.clone().into_data(), 1e-4);
    // The same with the fixed sizes of traced programs.
    let bucketed = model.logits(&model.bucketed_texts(&texts).unwrap(), None);
    reference.close("logits", bucketed.into_data(), 1e-4);
    let problem = model.problem().unwrap();
    let (value, grads) = value_and_grad(&model, |model| {
        let logits = model.forward(&model.batch(&texts).unwrap(), None);
        let values = || Tensor::<Autodiff<B>, 2>::from_data(reference.data("labels"), device);
        match problem {
            ProblemType::SingleLabel => loss::cross_entropy(logits, reference.labels(device)),
            ProblemType::MultiLabel => loss::sigmoid_binary_cross_entropy(logits, values()).mean(),
            ProblemType::Regression => loss::squared_error(logits, values()).mean(),
        }
    });
    reference.close("loss", value.into_data(), 1e-4);
    reference.gradients("grad.", &grads, &Classifier::<B, M>::published_names(model.config()));
}

fn gpt<B: Backend>(device: B::Device) {
    check::<B, Gpt2<B>>("gpt2", &device);
    check::<B, GptNeo<B>>("gpt_neo", &device);
}

fn llamas<B: Backend>(device: B::Device) {
    for name in LLAMAS {
        check::<B, Llama<B>>(name, &device);
    }
}

on_each_backend!(gpt, llamas);

#[test]
fn settings_come_from_the_configuration() {
    let device = Default::default();
    let (_, gpt2) = load::<Flex, Gpt2<Flex>>("gpt2", &device);
    assert_eq!(gpt2.labels, ["sad", "merry", "neither"]);
    assert_eq!((gpt2.pad_token_id, gpt2.problem().unwrap()), (Some(60), ProblemType::SingleLabel));
    let (_, neo) = load::<Flex, GptNeo<Flex>>("gpt_neo", &device);
    assert_eq!((neo.labels.len(), neo.pad_token_id), (4, None));
    let mut config = neo.config().clone();
    config.other.insert("num_labels".into(), 2.into());
    // As in transformers, another number of labels counts more than the names.
    let two = GptNeoForSequenceClassification::<Flex>::skeleton(&config).unwrap();
    assert_eq!((two.labels.len(), two.score.weight.shape()), (2, [15, 2]));
    let (_, mistral) = load::<Flex, Llama<Flex>>("mistral", &device);
    // A single label is trained as regression and scored as a probability, as in transformers.
    assert_eq!(mistral.problem().unwrap(), ProblemType::Regression);
    assert_eq!(mistral.scored_as().unwrap(), ProblemType::MultiLabel);
    assert_eq!(load::<Flex, Llama<Flex>>("llama", &device).1.problem().unwrap(), ProblemType::MultiLabel);
}

/// Files that grove saves have the names, tensors and class of those that it read.
#[test]
fn saved_files_match_transformers() {
    for name in ["gpt2", "gpt_neo"].iter().chain(&LLAMAS) {
        let (directory, again) =
            (Reference::of("sequence_classification", name).directory, tempfile::tempdir().unwrap());
        let model = AutoModel::<Flex>::from_path(&directory, &Default::default(), None).unwrap();
        model.save_pretrained(again.path()).unwrap();
        let [original, saved] =
            [&*directory, again.path()].map(|path| TensorFiles::open(path.join("model.safetensors")).unwrap());
        let names = |files: &TensorFiles| files.names().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(names(&saved), names(&original), "{name}");
        for tensor in original.names() {
            assert_eq!(saved.tensor(tensor).unwrap(), original.tensor(tensor).unwrap(), "{name}: {tensor}");
        }
        let config = |path: &Path| grove_files::read_json::<serde_json::Value>(&path.join("config.json")).unwrap();
        let (before, after) = (config(&directory), config(again.path()));
        // transformers does not write the names of two classes without names.
        let id2label = before.get("id2label").or_else(|| after.get("id2label"));
        assert_eq!(after.get("id2label"), id2label, "{name}");
        for key in ["architectures", "problem_type", "pad_token_id", "model_type", "tie_word_embeddings"] {
            assert_eq!(after.get(key), before.get(key), "{name}: {key}");
        }
    }
}

#[test]
fn the_class_chooses_the_head() {
    let load = |name: &str| {
        let directory = Reference::of("sequence_classification", name).directory;
        AutoModel::<Flex>::from_path(directory, &Default::default(), None).unwrap()
    };
    assert!(matches!(load("gpt2"), AutoModel::Gpt2ForSequenceClassification(_)));
    assert!(matches!(load("gpt_neo"), AutoModel::GptNeoForSequenceClassification(_)));
    for name in LLAMAS {
        assert!(matches!(load(name), AutoModel::LlamaForSequenceClassification(_)), "{name}");
    }
}

/// Files in f16 compute as f32, and a language-modelling head in the file changes nothing.
#[test]
fn published_files_load() {
    let (of, device) = (Path::new("tests/fixtures/sequence_classification"), Default::default());
    let texts = [TextIds::from(vec![5, 17, 80]), vec![9].into()];
    let logits = |name: &str, dtype| {
        let model = Gpt2ForSequenceClassification::<Flex>::from_path(of.join(name), &device, dtype).unwrap().0;
        let logits = model.forward(&model.batch(&texts).unwrap(), None);
        logits.into_data().iter::<f64>().collect::<Vec<_>>()
    };
    let right = logits("text", None);
    for dtype in [None, Some(DType::F32), Some(DType::F16)] {
        let (apart, largest) = crate::common::distance(&logits("text_f16", dtype), &right);
        assert!(apart < 1e-2 * largest, "{dtype:?}: apart by {apart} of {largest}");
    }
    let llama = Reference::of("sequence_classification", "llama");
    let half =
        LlamaForSequenceClassification::<Flex>::from_path(&llama.directory, &device, Some(DType::F16)).unwrap().0;
    let dtype = |path: &str| leaves(&half).into_iter().find(|(own, _)| own == path).unwrap().1.dtype();
    assert_eq!(dtype("decoder.layers.0.mlp.up_proj.weight"), DType::F16);
    assert_eq!(dtype("score.weight"), DType::F32, "that of the norms");
    llama.close("logits", half.forward(&half.batch(&self::texts(&llama)).unwrap(), None).into_data(), 1e-2);
}

#[test]
fn impossible_files_are_refused() {
    let (_, model) = load::<Flex, GptNeo<Flex>>("gpt_neo", &Default::default());
    let directory = tempfile::tempdir().unwrap();
    model.save_pretrained(directory.path()).unwrap();
    let file = directory.path().join("config.json");
    let config: serde_json::Value = grove_files::read_json(&file).unwrap();
    let refused = |key: &str, value: serde_json::Value| {
        let mut config = config.clone();
        config[key] = value;
        std::fs::write(&file, config.to_string()).unwrap();
        let loaded = GptNeoForSequenceClassification::<Flex>::from_path(directory.path(), &Default::default(), None);
        loaded.unwrap_err().to_string()
    };
    for (key, value) in [
        ("problem_type", "ranking".into()),
        ("id2label", serde_json::json!({"0": "a", "5": "b"})),
        ("id2label", serde_json::json!({})),
        ("pad_token_id", "end".into()),
    ] {
        let message = refused(key, value);
        let name = if message.contains("number of labels") { "labels" } else { key };
        assert!(message.contains("config.json") && message.contains(name), "{message}");
    }
    // Four labels in the weights.
    assert!(refused("id2label", serde_json::json!({"0": "a"})).contains("score.weight"));
    let texts = |ids: Vec<u32>| model.batch(&[vec![1].into(), ids.into()]).unwrap_err().to_string();
    assert!(texts(vec![]).contains("empty"));
    assert!(texts(vec![47]).contains("47 is outside the vocabulary"));
    assert!(texts(vec![1; 32]).contains("32 tokens"));
    assert!(model.batch(&[]).is_err());
}

#[test]
fn models_of_other_tasks_are_named() {
    let (decoder, device) = (Path::new("tests/fixtures/gpt2/tiny_a"), Default::default());
    let error = Gpt2ForSequenceClassification::<Flex>::from_path(decoder, &device, None).unwrap_err().to_string();
    assert!(error.contains("tiny_a: the model has no head for this task (score.weight is missing)"), "{error}");
    let classifier = Reference::of("sequence_classification", "gpt2").directory;
    let error = Gpt2::<Flex>::from_path(classifier, &device, None).unwrap_err().to_string();
    assert!(error.contains("the model has the head of another task (score.weight)"), "{error}");
}

/// A decoder gets a new head; a classifier keeps the weights of the labels that it has.
#[test]
fn new_labels_get_a_new_head() {
    let (device, key) = (Default::default(), Key::new(3));
    let labels = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let with_head = |path: &Path, names: &[&str]| {
        Gpt2ForSequenceClassification::<Flex>::with_new_head(path.to_str().unwrap(), labels(names), key, &device)
            .unwrap()
    };
    let decoder = Path::new("tests/fixtures/gpt2/tiny_a");
    let model = with_head(decoder, &["good", "bad"]);
    let original = Gpt2::<Flex>::from_path(decoder, &device, None).unwrap().0;
    assert!(same_arrays(&model.decoder, &original) && model.labels == ["good", "bad"]);
    assert_eq!(model.score.weight.shape(), [original.config.n_embd, 2]);

    let (_, old) = load::<Flex, Gpt2<Flex>>("gpt2", &device);
    let new = with_head(&Reference::of("sequence_classification", "gpt2").directory, &["new", "merry"]);
    let column = |model: &Gpt2ForSequenceClassification<Flex>, i| {
        model.score.weight.val().narrow(1, i, 1).into_data().iter::<f32>().collect::<Vec<_>>()
    };
    assert_eq!(column(&new, 1), column(&old, 1));
    assert!((0..3).all(|i| column(&new, 0) != column(&old, i)));
    let directory = tempfile::tempdir().unwrap();
    new.save_pretrained(directory.path()).unwrap();
    let (again, _) = Gpt2ForSequenceClassification::<Flex>::from_path(directory.path(), &device, None).unwrap();
    assert!(eq(&again, &new) && again.labels == new.labels && again.problem_type == Some(ProblemType::SingleLabel));
}
