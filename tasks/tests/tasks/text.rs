//! BERT tasks from texts to results: tokenizer from a vocabulary, truncation, windows, and the tasks on tiny models.

use grove_models::{
    ModelError, Pretrained,
    bert::{
        BertForMaskedLm, BertForQuestionAnswering, BertForSequenceClassification, BertForTokenClassification,
        ProblemType, SentenceEncoder,
    },
    sequence_classification::Gpt2ForSequenceClassification,
};
use grove_tasks::text::{AnswerOptions, BatchOptions, answer, classify, embed, entities, fill_mask};
use grove_text::{EncodedText, TextError, Tokenizer, Truncation};
use grove_tree::{Tree, leaves, map_with_path};
use std::path::{Path, PathBuf};

type Flex = grove_backend::Flex;

/// Vocabulary of at most as many tokens as the tiny models have.
const VOCABULARY: &str =
    "[PAD] [UNK] [CLS] [SEP] [MASK] the cat sat on a mat dog ran ##s away . , who where did it go wal ##k ##ed";

fn tokenizer(directory: &Path) -> Tokenizer {
    std::fs::write(directory.join("vocab.txt"), VOCABULARY.replace(' ', "\n") + "\n").unwrap();
    Tokenizer::from_path(directory).unwrap()
}

fn model(name: &str) -> PathBuf {
    Path::new("../models/tests/fixtures/bert").join(name)
}

fn tokens(tokenizer: &Tokenizer, encoded: &EncodedText) -> Vec<String> {
    encoded.text.ids.iter().map(|&id| tokenizer.id_to_token(id).unwrap()).collect()
}

#[test]
fn texts_and_pairs_are_cut_to_length() {
    let directory = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(directory.path());
    let text = "The cat walked on a mat.";
    let whole = tokenizer.encode_text(text, None, None, Truncation::default()).unwrap();
    let expected = ["[CLS]", "the", "cat", "wal", "##k", "##ed", "on", "a", "mat", ".", "[SEP]"];
    assert_eq!(tokens(&tokenizer, &whole), expected);
    assert!(!whole.truncated);
    assert_eq!((&text[whole.offsets[3].clone()], whole.words[3], whole.words[5]), ("wal", Some(2), Some(2)));
    assert_eq!((whole.sources[0], whole.sources[1], whole.sources[10]), (None, Some(0), None));

    let cut = tokenizer.encode_text(text, None, Some(5), Truncation::default()).unwrap();
    assert_eq!(tokens(&tokenizer, &cut), ["[CLS]", "the", "cat", "wal", "[SEP]"]);
    assert!(cut.truncated);

    let pair = |most, truncation| {
        let pair = tokenizer.encode_text("the dog", Some("a cat sat on it"), Some(most), truncation).unwrap();
        (tokens(&tokenizer, &pair).join(" "), pair.text.token_types)
    };
    let all = "[CLS] the dog [SEP] a cat sat on it [SEP]";
    assert_eq!(pair(20, Truncation::LongestFirst), (all.into(), vec![0, 0, 0, 0, 1, 1, 1, 1, 1, 1]));
    assert_eq!(pair(7, Truncation::LongestFirst).0, "[CLS] the dog [SEP] a cat [SEP]");
    assert_eq!(pair(7, Truncation::OnlySecond).0, "[CLS] the dog [SEP] a cat [SEP]");
    assert_eq!(pair(9, Truncation::OnlyFirst).0, "[CLS] the [SEP] a cat sat on it [SEP]");

    let error = tokenizer.encode_text(text, Some("the dog"), Some(4), Truncation::OnlyFirst).unwrap_err();
    assert!(matches!(error, TextError::Option { option: "the longest text", .. }));
}

#[test]
fn long_texts_are_read_in_windows() {
    let directory = tempfile::tempdir().unwrap();
    let tokenizer = tokenizer(directory.path());
    let windows = tokenizer.encode_windows("who sat", Some("the cat sat on a mat , the dog ran away"), 10, 2).unwrap();
    let texts: Vec<String> = windows.iter().map(|window| tokens(&tokenizer, window).join(" ")).collect();
    assert_eq!(texts[0], "[CLS] who sat [SEP] the cat sat on a [SEP]");
    assert_eq!(texts[1], "[CLS] who sat [SEP] on a mat , the [SEP]");
    assert!(texts.last().unwrap().ends_with("ran away [SEP]"), "{texts:?}");
    assert!(windows.iter().all(|window| window.truncated && window.sources[4] == Some(1)));
    assert!(tokenizer.encode_windows("who sat", Some("the cat"), 10, 2).unwrap().len() == 1);
    // Windows that only overlap would never advance.
    assert!(tokenizer.encode_windows("the cat sat on a mat", None, 5, 3).is_err());
    let long = "the cat ".repeat(50_000);
    assert_eq!(tokenizer.encode_text(&long, None, Some(128), Truncation::default()).unwrap().text.ids.len(), 128);
}

#[test]
fn rejects_files_that_are_not_vocabularies() {
    let directory = tempfile::tempdir().unwrap();
    let says = |text: &str| {
        std::fs::write(directory.path().join("vocab.txt"), text).unwrap();
        Tokenizer::from_path(directory.path()).unwrap_err().to_string()
    };
    assert!(says("the\ncat\n").contains("[CLS] is not among the word pieces"));
    assert!(says("").contains("vocab.txt"));
}

#[test]
fn tasks_answer_in_the_order_of_their_texts() {
    let (device, directory) = (Default::default(), tempfile::tempdir().unwrap());
    let tokenizer = tokenizer(directory.path());
    let batching = BatchOptions { batch_size: 2, ..BatchOptions::new(&tokenizer, 17) };
    let texts = ["the cat sat on [MASK] mat", "[MASK] ran [MASK]", "a [MASK]"];

    let (masked, _) = BertForMaskedLm::<Flex>::from_path(model("bert_masked"), &device, None).unwrap();
    let filled = fill_mask(&masked, batching, &texts, 4).unwrap();
    assert_eq!(filled.iter().map(Vec::len).collect::<Vec<_>>(), [1, 2, 1]);
    assert_eq!((filled[0][0].position, filled[1][1].position), (5, 3));
    for (text, filled) in texts.iter().zip(&filled) {
        let alone = &fill_mask(&masked, batching, &[text], 4).unwrap()[0];
        for (a, b) in alone.iter().zip(filled) {
            assert_eq!(a.candidates.len(), 4);
            assert!(
                a.candidates.iter().zip(&b.candidates).all(|(a, b)| a.id == b.id && (a.score - b.score).abs() < 1e-5)
            );
            assert!(a.candidates.is_sorted_by(|a, b| a.score >= b.score));
        }
    }
    assert!(matches!(fill_mask(&masked, batching, &["the cat"], 4), Err(ModelError::NoMask { .. })));
    assert!(matches!(fill_mask(&masked, batching, &[" "], 4), Err(ModelError::EmptyText)));
    // The error names the text at fault.
    let message = |texts: &[&str]| fill_mask(&masked, batching, texts, 4).unwrap_err().to_string();
    assert!(message(&["a [MASK]", "the cat", "[MASK]"]).starts_with("text 2: the text has no [MASK]"));
    assert_eq!(message(&["a [MASK]", "[MASK]", " "]), "text 3: the text is empty");

    let (classifier, _) =
        BertForSequenceClassification::<Flex>::from_path(model("bert_classify"), &device, None).unwrap();
    let pairs = [("the cat sat", None), ("who ran", Some("the dog ran away")), ("a mat", None)];
    let labelled = classify(&classifier, batching, &pairs).unwrap();
    for (pair, labels) in pairs.iter().zip(&labelled) {
        let sum: f32 = labels.iter().map(|label| label.score).sum();
        assert!((sum - 1.0).abs() < 1e-5 && labels[0].score >= labels[1].score);
        let alone = &classify(&classifier, batching, &[*pair]).unwrap()[0];
        assert_eq!(alone[0].label, labels[0].label);
    }

    let (encoder, _) = SentenceEncoder::<Flex>::from_path(model("sentence/mean_tokens"), &device, None).unwrap();
    let vectors = embed(&encoder, batching, &["the cat sat on a mat", "a dog", "the cat sat on a mat"]).unwrap();
    assert!(vectors[0].iter().zip(&vectors[2]).all(|(a, b)| (a - b).abs() < 1e-5) && vectors[0] != vectors[1]);

    let (reader, _) = BertForQuestionAnswering::<Flex>::from_path(model("bert_answer"), &device, None).unwrap();
    let text = "the cat sat on a mat , the dog ran away . it did walk on the mat";
    let options = AnswerOptions { top_k: 5, max_answer_len: 3, stride: 4, ..AnswerOptions::default() };
    let answers = answer(&reader, batching, "who ran", text, &options).unwrap();
    assert_eq!(answers.len(), 5);
    for found in &answers {
        assert_eq!(&text[found.range.clone()], found.text);
        assert!(found.score > 0.0 && found.score <= 1.0 && found.text.split(' ').count() <= 3);
    }
    assert!(answers.is_sorted_by(|a, b| a.score >= b.score));

    let (labeller, _) = BertForTokenClassification::<Flex>::from_path(model("bert_tokens"), &device, None).unwrap();
    let parts = entities(&labeller, batching, text, 4).unwrap();
    // No label of the tiny model is O, so the spans cover the text.
    let words: Vec<&str> = parts.iter().flat_map(|part| part.text.split(' ')).collect();
    assert_eq!(words.join(" "), text);
}

/// Fills the model's first tensor with NaN, and returns its path.
fn spoiled<M: Tree<Flex>>(model: M) -> (M, String) {
    let (first, _) = leaves(&model).swap_remove(0);
    let model = map_with_path(model, |path, leaf| match path.as_str() == first {
        true => leaf.mul_scalar(f64::NAN),
        false => leaf,
    });
    (model, first)
}

#[test]
fn weights_that_are_nan_are_named() {
    let (device, directory) = (Default::default(), tempfile::tempdir().unwrap());
    let tokenizer = tokenizer(directory.path());
    let batching = BatchOptions::new(&tokenizer, 17);
    let refused = |error: ModelError, path: String| {
        assert!(
            matches!(&error, ModelError::NotFinite { tensor: Some(found), .. } if *found == path),
            "{path}: {error}"
        );
    };
    let loaded = BertForMaskedLm::<Flex>::from_path(model("bert_masked"), &device, None).unwrap().0;
    let (masked, path) = spoiled(loaded);
    refused(fill_mask(&masked, batching, &["a [MASK]"], 4).unwrap_err(), path);
    let loaded = BertForSequenceClassification::<Flex>::from_path(model("bert_classify"), &device, None).unwrap().0;
    let (classifier, path) = spoiled(loaded);
    refused(classify(&classifier, batching, &[("a mat", None::<&str>)]).unwrap_err(), path);
    let loaded = SentenceEncoder::<Flex>::from_path(model("sentence/mean_tokens"), &device, None).unwrap().0;
    let (encoder, path) = spoiled(loaded);
    refused(embed(&encoder, batching, &["a mat"]).unwrap_err(), path);
    let loaded = BertForQuestionAnswering::<Flex>::from_path(model("bert_answer"), &device, None).unwrap().0;
    let (reader, path) = spoiled(loaded);
    let options = AnswerOptions::default();
    refused(answer(&reader, batching, "who ran", "the cat ran", &options).unwrap_err(), path);
    let loaded = BertForTokenClassification::<Flex>::from_path(model("bert_tokens"), &device, None).unwrap().0;
    let (labeller, path) = spoiled(loaded);
    refused(entities(&labeller, batching, "the cat ran", 4).unwrap_err(), path);
}

/// The scores are those of transformers' pipeline, one text at a time. Fixture: tools/fixtures/sequence_classification.py.
#[test]
fn decoders_classify_as_the_pipeline() {
    let folder = Path::new("../models/tests/fixtures/sequence_classification/text");
    let (mut model, _) = Gpt2ForSequenceClassification::<Flex>::from_path(folder, &Default::default(), None).unwrap();
    let tokenizer = Tokenizer::from_path(folder).unwrap();
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(folder.join("scores.json")).unwrap()).unwrap();
    let pair = |text: &serde_json::Value| {
        let text = text.as_str().unwrap();
        text.split_once('\t').map_or((text.to_owned(), None), |(a, b)| (a.to_owned(), Some(b.to_owned())))
    };
    let texts: Vec<_> = file["texts"].as_array().unwrap().iter().map(pair).collect();
    for (problem, expected) in file["scores"].as_object().unwrap() {
        model.problem_type = match &**problem {
            "none" => None,
            "single_label_classification" => Some(ProblemType::SingleLabel),
            "multi_label_classification" => Some(ProblemType::MultiLabel),
            _ => Some(ProblemType::Regression),
        };
        let found = classify(&model, BatchOptions::new(&tokenizer, 40), &texts).unwrap();
        for (labels, expected) in found.iter().zip(expected.as_array().unwrap()) {
            for label in expected.as_array().unwrap() {
                let name = label["label"].as_str().unwrap();
                let score = labels.iter().find(|label| label.label == name).unwrap().score;
                assert!(
                    (f64::from(score) - label["score"].as_f64().unwrap()).abs() < 1e-4,
                    "{problem}: {labels:?}, not {expected}"
                );
            }
            assert_eq!(labels.len(), 3);
        }
    }
}
