//! Models chosen by their files.

use burn::tensor::TensorData;
use grove_backend::Flex;
use grove_models::{AutoModel, Bert, Gpt2, GptNeo, Llama, ModelKind, Pretrained, ResNet, Vit};
use grove_tree::{count_params, leaves, paths};
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> PathBuf {
    Path::new("tests/fixtures").join(name)
}

fn load(path: impl AsRef<Path>) -> AutoModel<Flex> {
    let path = path.as_ref();
    AutoModel::from_path(path, &Default::default(), None).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn values(model: &AutoModel<Flex>) -> Vec<(String, Option<TensorData>)> {
    leaves(model).into_iter().map(|(path, leaf)| (path, leaf.into_data())).collect()
}

#[test]
fn files_of_each_family_give_its_model() {
    for (name, expected) in [
        ("gpt2/tiny_a", ModelKind::Gpt2),
        ("gpt_neo/tiny", ModelKind::GptNeo),
        ("llama/gqa", ModelKind::Llama),
        ("llama/mistral", ModelKind::Llama),
        ("llama/qwen2", ModelKind::Llama),
        ("llama/qwen3", ModelKind::Llama),
        ("llama/gguf/q8_0.gguf", ModelKind::Llama),
        ("rnn/lm_gru", ModelKind::RnnLm),
        ("rnn/classifier_lstm", ModelKind::RnnClassifier),
        ("bert/roberta_model", ModelKind::Bert),
        ("bert/distilbert_tokens", ModelKind::Bert),
        ("resnet/transformers_basic", ModelKind::ResNet),
        ("resnet/torchvision_wide", ModelKind::ResNet),
        ("resnet/timm_basic", ModelKind::ResNet),
        ("vit/dinov2_registers", ModelKind::Vit),
        ("vit/timm_avg", ModelKind::Vit),
    ] {
        assert_eq!(ModelKind::of(fixture(name)).expect(name), expected, "{name}");
        assert_eq!(load(fixture(name)).kind(), expected, "{name}");
    }
}

#[test]
fn the_architecture_chooses_the_head() {
    assert!(matches!(load(fixture("bert/bert_model")), AutoModel::Bert(_)));
    assert!(matches!(load(fixture("bert/bert_classify")), AutoModel::BertForSequenceClassification(_)));
    assert!(matches!(load(fixture("bert/distilbert_tokens")), AutoModel::BertForTokenClassification(_)));
}

#[test]
fn saves_and_counts_like_the_family() {
    for name in ["gpt2/tiny_a", "rnn/lm_gru", "bert/bert_classify", "resnet/torchvision_wide"] {
        let (model, directory) = (load(fixture(name)), tempfile::tempdir().unwrap());
        model.save_pretrained(&directory).expect(name);
        assert_eq!(values(&load(&directory)), values(&model), "{name}");
    }
    let auto = load(fixture("gpt2/tiny_a"));
    let (model, _) = Gpt2::<Flex>::from_path(fixture("gpt2/tiny_a"), &Default::default(), None).unwrap();
    assert_eq!(paths(&auto), paths(&model));
    assert_eq!(auto.num_parameters(), count_params(&model));
    assert_eq!(auto.config().unwrap()["model_type"], "gpt2");
}

#[test]
fn refuses_an_unknown_type() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("config.json");
    std::fs::write(&file, r#"{"model_type": "mamba"}"#).unwrap();
    let error = ModelKind::of(directory.path()).unwrap_err().to_string();
    assert!(error.contains("config.json: model_type is 'mamba'") && error.contains("gpt2, gpt_neo, llama"), "{error}");

    // Without a config.json the tensors must identify the family, which these do not.
    std::fs::remove_file(file).unwrap();
    std::fs::copy(fixture("gpt2/tiny_a/reference.safetensors"), directory.path().join("model.safetensors")).unwrap();
    let error = ModelKind::of(directory.path()).unwrap_err().to_string();
    assert!(error.contains("match no model of grove"), "{error}");
}

#[test]
fn finds_the_family_of_a_size() {
    let names =
        ["gpt2-xl", "gpt-neo-1.3B", "llama-3.1-8b", "bert-base-uncased", "resnet50", "vit-base-patch16", "gpt3"];
    let kinds =
        [ModelKind::Gpt2, ModelKind::GptNeo, ModelKind::Llama, ModelKind::Bert, ModelKind::ResNet, ModelKind::Vit];
    let found = names.map(ModelKind::of_preset);
    assert_eq!(found[..6], kinds.map(Some));
    assert_eq!(found[6], None);
}

/// The report of loading shows the reasons.
#[test]
fn ignored_names_have_reasons() {
    fn check<M: Pretrained<Flex, Config: Default>>() {
        let names = M::published_names(&M::Config::default());
        assert!(names.ignored().count() > 0);
        for (pattern, reason) in names.ignored() {
            assert!(reason.len() > 10 && reason != "not part of the model", "{pattern}: {reason}");
        }
    }
    check::<Bert<Flex>>();
    check::<Gpt2<Flex>>();
    check::<GptNeo<Flex>>();
    check::<Llama<Flex>>();
    check::<ResNet<Flex>>();
    check::<Vit<Flex>>();
    let directory = fixture("gpt2/variants/with_masked_bias");
    let (_, report) = Gpt2::<Flex>::from_path(directory, &Default::default(), None).unwrap();
    assert!(report.to_string().contains("tensors ignored (causal masks, which are computed)"), "{report}");
}
