//! Encoders from texts to results, configured by the files beside their weights: sentence-transformers' modules and
//! settings, classifiers with one label, pairs, and answers. Fixtures: tools/fixtures/encoders.py.

use grove_models::{
    ModelError, Pretrained, PretrainedConfig,
    bert::{Bert, BertConfig, BertForQuestionAnswering, BertForSequenceClassification, SentenceEncoder, Similarity},
};
use grove_tasks::text::{AnswerOptions, BatchOptions, answer, classify, embed, embed_after};
use grove_text::{EncodedText, Tokenizer};
use grove_tree::Key;
use grove_weights::transformer_directory;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

type Flex = grove_backend::Flex;

fn fixtures() -> PathBuf {
    Path::new("../models/tests/fixtures/encoders").into()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_path(fixtures().join("tokenizer")).unwrap()
}

fn bert(name: &str) -> PathBuf {
    Path::new("../models/tests/fixtures/bert").join(name)
}

/// Reads an entry of `tasks.json`.
fn expected<T: DeserializeOwned>(task: &str) -> T {
    let all: BTreeMap<String, Value> =
        serde_json::from_slice(&fs::read(fixtures().join("tasks.json")).unwrap()).unwrap();
    serde_json::from_value(all[task].clone()).unwrap()
}

fn close(name: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{name}");
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() < 1e-5 * b.abs().max(1.0), "{name}: {found:?} {expected:?}");
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap().path();
        let target = to.join(entry.file_name().unwrap());
        if entry.is_dir() {
            copy(&entry, &target);
        } else {
            fs::copy(&entry, target).unwrap();
        }
    }
}

/// Creates a sentence-transformers folder: the tokenizer, the weights of a tiny BERT, and the files of a case.
fn folder(case: Option<&str>, inner: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixtures().join("tokenizer"), &folder.path().join(inner));
    for file in ["config.json", "model.safetensors"] {
        fs::copy(bert("bert_model").join(file), folder.path().join(inner).join(file)).unwrap();
    }
    if let Some(case) = case {
        copy(&fixtures().join("sentence").join(case), folder.path());
    }
    folder
}

#[derive(Deserialize)]
struct Sentences {
    folder: String,
    texts: Vec<String>,
    embeddings: Vec<Vec<f32>>,
    prompt_name: Option<String>,
}

#[test]
fn sentence_folders_give_the_vectors_of_sentence_transformers() {
    let cases = fs::read_dir(fixtures().join("sentence")).unwrap().map(|case| case.unwrap().path());
    let mut count = 0;
    for case in cases {
        let name = case.file_name().unwrap().to_str().unwrap().to_owned();
        let expected: Sentences = serde_json::from_slice(&fs::read(case.join("expected.json")).unwrap()).unwrap();
        let folder = folder(Some(&name), &expected.folder);
        let (encoder, _) = SentenceEncoder::<Flex>::from_path(folder.path(), &Default::default(), None).unwrap();
        let tokenizer = Tokenizer::from_path(transformer_directory(folder.path()).unwrap()).unwrap();
        let batching = BatchOptions { batch_size: 2, ..BatchOptions::new(&tokenizer, encoder.max_len) };
        let prompt = encoder.prompt(expected.prompt_name.as_deref()).unwrap();
        let vectors = embed_after(&encoder, batching, prompt, &expected.texts).unwrap();
        for (found, expected) in vectors.iter().zip(&expected.embeddings) {
            close(&name, found, expected);
        }
        if expected.prompt_name.is_none() {
            assert_eq!(embed(&encoder, batching, &expected.texts).unwrap(), vectors);
        }
        count += 1;
    }
    assert!(count >= 35, "{count}");
}

#[test]
fn similarity_is_the_one_of_the_file() {
    let folder = folder(Some("truncate_dim"), "");
    let encoder = || SentenceEncoder::<Flex>::from_path(folder.path(), &Default::default(), None).map(|(x, _)| x);
    assert_eq!(encoder().unwrap().similarity, Similarity::Dot);
    let file = folder.path().join("config_sentence_transformers.json");
    fs::write(&file, r#"{"similarity_fn_name": "maxsim"}"#).unwrap();
    let error = encoder().unwrap_err().to_string();
    assert!(error.contains("config_sentence_transformers.json: similarity_fn_name is 'maxsim'"), "{error}");
}

/// Unsupported keys that change results are refused with file, key and value. Keys that the reference does not read are
/// accepted.
#[test]
fn settings_that_change_vectors_are_not_ignored() {
    let folder = folder(Some("pooling_mean"), "");
    let pooling = json!({"embedding_dimension": 18, "pooling_mode": "mean"});
    let says = |file: &str, content: Value| {
        let file = folder.path().join(file);
        let before = fs::read(&file).ok();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, content.to_string()).unwrap();
        let loaded = SentenceEncoder::<Flex>::from_path(folder.path(), &Default::default(), None);
        match before {
            Some(before) => fs::write(&file, before).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        loaded.map_or_else(|error| error.to_string(), |_| String::new())
    };
    let refused = [
        ("sentence_bert_config.json", json!({"transformer_task": "fill-mask"}), "transformer_task is \"fill-mask\""),
        ("sentence_bert_config.json", json!({"module_output_name": "scores"}), "module_output_name is \"scores\""),
        ("sentence_bert_config.json", json!({"config_args": {"num_hidden_layers": 1}}), "num_hidden_layers is 1"),
        ("sentence_bert_config.json", json!({"model_kwargs": {"subfolder": "x"}}), "model_kwargs.subfolder is \"x\""),
        (
            "sentence_bert_config.json",
            json!({"processing_kwargs": {"text": {"add_special_tokens": false}}}),
            "processing_kwargs.text.add_special_tokens is false",
        ),
        (
            "sentence_bert_config.json",
            json!({"tokenizer_name_or_path": "other"}),
            "tokenizer_name_or_path is \"other\"",
        ),
        ("sentence_bert_config.json", json!({"do_lower_case": "yes"}), "do_lower_case is \"yes\""),
        (
            "config_sentence_transformers.json",
            json!({"model_type": "SparseEncoder"}),
            "model_type is \"SparseEncoder\"",
        ),
        ("config_sentence_transformers.json", json!({"default_prompt_name": "x"}), "default_prompt_name is 'x'"),
        ("1_Pooling/config.json", json!({"pooling_mode": "median"}), "pooling_mode is \"median\"; known are cls, max"),
        ("1_Pooling/config.json", json!({"pooling_mode_median": true}), "pooling_mode_median is not known"),
    ];
    for (file, content, reason) in refused {
        let error = says(file, content);
        assert!(error.contains(file) && error.contains(reason), "{reason}: {error}");
    }
    let mut extended = pooling;
    extended["comment"] = "made for us".into();
    assert_eq!(says("1_Pooling/config.json", extended), "");
    assert_eq!(says("sentence_bert_config.json", json!({"model_args": {"torch_dtype": "float16"}, "ours": 1})), "");
    let modules = |kinds: &[&str]| -> Value {
        kinds.iter().map(|kind| json!({"path": "", "type": format!("sentence_transformers.models.{kind}")})).collect()
    };
    for wrong in
        [&["Transformer"][..], &["Transformer", "Normalize"], &["Pooling"], &["Transformer", "Transformer"], &[]]
    {
        assert!(says("modules.json", modules(wrong)).contains("its modules are"), "{wrong:?}");
    }
    assert!(says("modules.json", modules(&["Transformer", "WordWeights", "Pooling"])).contains("WordWeights"));
}

#[test]
fn unknown_prompts_are_refused() {
    let folder = folder(Some("default_prompt"), "");
    let (encoder, _) = SentenceEncoder::<Flex>::from_path(folder.path(), &Default::default(), None).unwrap();
    assert_eq!((encoder.prompt(None).unwrap(), encoder.prompt(Some("plain")).unwrap()), ("ask : ", ""));
    assert_eq!(encoder.prompt(Some("document")).unwrap(), "");
    assert!(matches!(encoder.prompt(Some("other")), Err(ModelError::Option { .. })));
}

const TEXTS: [&str; 4] = ["the cat sat on a mat", "a dog", "the dogs walked away , it did go", "The CAT sat ."];

/// The score of a single label is a probability, unless `problem_type` is regression.
#[test]
fn a_single_label_has_the_score_of_the_pipeline() {
    let tokenizer = tokenizer();
    let scores: BTreeMap<String, Vec<f32>> = expected("one_label");
    let config = BertConfig::from_file(bert("bert_classify")).unwrap();
    let (three, _) =
        BertForSequenceClassification::<Flex>::from_path(bert("bert_classify"), &Default::default(), None).unwrap();
    assert_eq!(scores.len(), 4);
    for (problem, scores) in scores {
        let problem_type = (problem != "none").then(|| problem.clone());
        let config = BertConfig { problem_type, labels: vec!["relevant".into()], ..config.clone() };
        let mut model = BertForSequenceClassification::<Flex>::init(&config, Key::new(0), &Default::default()).unwrap();
        model.bert = Bert { config, ..three.bert.clone() };
        let head = &three.head.classifier;
        model.head.classifier.weight = grove_tree::Array::new(head.weight.val().narrow(1, 0, 1));
        model.head.classifier.bias = head.bias.as_ref().map(|bias| grove_tree::Array::new(bias.val().narrow(0, 0, 1)));
        let texts = TEXTS.map(|text| (text, None::<&str>));
        let found = classify(&model, BatchOptions::new(&tokenizer, 17), &texts).unwrap();
        let found: Vec<f32> = found.iter().map(|labels| labels[0].score).collect();
        close(&problem, &found, &scores);
    }
}

#[derive(Deserialize)]
struct Pair {
    texts: (String, String),
    scores: Vec<f32>,
}

#[test]
fn distilbert_reads_pairs_of_a_tokenizer_with_types() {
    let tokenizer = Tokenizer::from_path(typed_tokenizer().path()).unwrap();
    let (model, _) =
        BertForSequenceClassification::<Flex>::from_path(bert("distilbert_classify"), &Default::default(), None)
            .unwrap();
    for Pair { texts: (a, b), scores } in expected::<Vec<Pair>>("distilbert_pairs") {
        let encoded: EncodedText = tokenizer.encode_text(&a, Some(&b), None, Default::default()).unwrap();
        assert!(encoded.text.token_types.contains(&1));
        let mut found = classify(&model, BatchOptions::new(&tokenizer, 15), &[(a, Some(b))]).unwrap();
        found[0].sort_by_key(|label| label.class);
        close("pair", &found[0].iter().map(|label| label.score).collect::<Vec<_>>(), &scores);
    }
}

/// The tokenizer with the class `BertTokenizer`, which has token types.
fn typed_tokenizer() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    copy(&fixtures().join("tokenizer"), folder.path());
    let config = json!({"tokenizer_class": "BertTokenizer", "do_lower_case": false});
    fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
    folder
}

#[derive(Deserialize)]
struct Answers {
    top_k: usize,
    max_len: usize,
    stride: usize,
    max_answer_len: usize,
    handle_impossible_answer: bool,
    align_to_words: bool,
    question: String,
    context: String,
    answers: Vec<Found>,
}

#[derive(Deserialize)]
struct Found {
    score: f32,
    start: usize,
    end: usize,
    answer: String,
}

#[test]
fn answers_match_the_pipeline() {
    let tokenizer = Tokenizer::from_path(typed_tokenizer().path()).unwrap();
    let (model, _) =
        BertForQuestionAnswering::<Flex>::from_path(bert("bert_answer"), &Default::default(), None).unwrap();
    let cases: Vec<Answers> = expected("answers");
    assert!(cases.iter().any(|case| case.answers.iter().any(|answer| answer.answer.is_empty())));
    for case in cases {
        let options = AnswerOptions {
            top_k: case.top_k,
            max_answer_len: case.max_answer_len,
            stride: case.stride,
            handle_impossible_answer: case.handle_impossible_answer,
            align_to_words: case.align_to_words,
        };
        let batching = BatchOptions::new(&tokenizer, case.max_len);
        let found = answer(&model, batching, &case.question, &case.context, &options).unwrap();
        assert_eq!(found.len(), case.answers.len());
        for (found, expected) in found.iter().zip(&case.answers) {
            let place = (expected.answer.as_str(), expected.start..expected.end);
            assert_eq!((found.text.as_str(), found.range.clone()), place);
            close(&found.text, &[found.score], &[expected.score]);
        }
    }
}

#[derive(Deserialize)]
struct PaddingInside {
    ids: Vec<Vec<u32>>,
    states: Vec<Vec<Vec<f32>>>,
}

/// RoBERTa's positions skip padding tokens, also inside a text.
#[test]
fn padding_inside_of_a_text_has_no_position_in_roberta() {
    let (model, _) = Bert::<Flex>::from_path(bert("roberta_model"), &Default::default(), None).unwrap();
    let PaddingInside { ids, states } = expected("padding_inside");
    let texts: Vec<_> = ids.iter().map(|ids| ids.clone().into()).collect();
    for (texts, first) in [(&texts[..1], 0), (&texts[1..], 1), (&texts[..], 0)] {
        let found = model.forward(&model.batch(texts).unwrap(), None);
        for (row, expected) in states[first..first + texts.len()].iter().enumerate() {
            let found = found.clone().narrow(0, row, 1).narrow(1, 0, expected.len());
            close("states", &found.into_data().iter::<f32>().collect::<Vec<_>>(), &expected.concat());
        }
    }
}
