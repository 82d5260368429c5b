//! Generation and scoring with a model's published options, and with NaN or infinite weights. Fixture:
//! tools/fixtures/generation.py.

use burn::tensor::{DType, TensorData};
use grove_backend::Flex;
use grove_models::{CausalLm, Gpt2, Gpt2Config, ModelError, Pretrained, first_not_finite};
use grove_tasks::{
    GenerateOptions, JitGenerate, generate,
    generation::{
        DecodeSession, Finish, Sampling, TokenRules, generate_with_cache, generate_with_draft, score, score_text,
    },
};
use grove_tree::{AnyArray, Key, Path as TreePath, Tree};
use serde::Deserialize;
use std::path::Path;

#[derive(Deserialize)]
struct Fixture {
    windows: Vec<Text>,
    published: Vec<Case>,
    rules: Vec<Case>,
    of_config: Vec<Case>,
}

#[derive(Deserialize)]
struct Text {
    ids: Vec<u32>,
    stride: usize,
    loss: f64,
    windows: usize,
}

#[derive(Deserialize)]
struct Case {
    config: serde_json::Value,
    prompt: Vec<u32>,
    ids: Vec<u32>,
    without_penalty: Vec<u32>,
}

fn fixture() -> Fixture {
    serde_json::from_slice(&std::fs::read("../models/tests/fixtures/gpt2/generation.json").unwrap()).unwrap()
}

fn tiny(dtype: Option<DType>) -> Gpt2<Flex> {
    let directory = Path::new("../models/tests/fixtures/gpt2/tiny_a");
    Gpt2::from_path(directory, &Default::default(), dtype).unwrap().0
}

#[test]
fn long_texts_are_scored_as_in_transformers_guide() {
    let model = tiny(None);
    for Text { ids, stride, loss, windows } in fixture().windows {
        let scored = score_text(&model, &ids, Some(stride)).unwrap();
        assert!((scored.loss / loss - 1.0).abs() < 1e-5, "{} tokens by {stride}: {scored:?}, not {loss}", ids.len());
        assert_eq!(scored.windows, windows);
        // Half of the context of 37.
        if stride == 18 {
            let usual = score_text(&model, &ids, None).unwrap();
            assert_eq!(usual, scored);
        }
    }
}

#[test]
fn rejects_texts_and_strides_that_cannot_be_scored() {
    let model = tiny(None);
    let error = |ids: &[u32], stride| score_text(&model, ids, stride).unwrap_err();
    assert!(matches!(error(&[3], None), ModelError::TooShortToScore { len: 1 }));
    assert!(matches!(error(&[], None), ModelError::TooShortToScore { len: 0 }));
    assert!(matches!(error(&[3, 67], None), ModelError::TokenOutside { id: 67, .. }));
    for stride in [0, 37, 100] {
        let error = error(&[1; 50], Some(stride)).to_string();
        assert!(error.contains(&format!("the stride is {stride}")), "{error}");
    }
}

#[test]
fn generation_config_is_followed_as_by_transformers() {
    let model = tiny(None);
    let directory = tempfile::tempdir().unwrap();
    for Case { config, prompt, ids, without_penalty } in fixture().published {
        std::fs::write(directory.path().join("generation_config.json"), config.to_string()).unwrap();
        let published = GenerateOptions::published(directory.path(), Sampling::default()).unwrap();
        let options = GenerateOptions { max_new_tokens: 20, ..published };
        let generated = generate(&model, std::slice::from_ref(&prompt), &options, |_, _| true).unwrap().remove(0);
        // transformers includes the end token, grove does not.
        let ends = options.end_tokens.clone().unwrap_or_default();
        let (finish, expected) = match ids.split_last() {
            Some((last, before)) if ends.contains(last) => (Finish::Stop, before),
            _ => (Finish::Length, &ids[..]),
        };
        assert_eq!((&generated.ids[..], generated.finish), (expected, finish), "{config}");
        let (again, _) =
            generate_with_cache(&model, DecodeSession::new(&model, 0), &prompt, &options, |_| true).unwrap();
        assert_eq!(again, generated);
        let greedy = GenerateOptions { sampling: Sampling::greedy(), end_tokens: Some(vec![]), ..options };
        let plain = generate(&model, &[prompt], &greedy, |_, _| true).unwrap().remove(0);
        assert_eq!(plain.ids, without_penalty);
    }
}

/// Without a generation_config.json, its keys are read from config.json.
#[test]
fn generation_keys_of_config_are_followed_as_by_transformers() {
    let own = std::fs::read("../models/tests/fixtures/gpt2/tiny_a/config.json").unwrap();
    let directory = tempfile::tempdir().unwrap();
    for Case { config, prompt, ids, without_penalty } in fixture().of_config {
        let mut fields: serde_json::Value = serde_json::from_slice(&own).unwrap();
        fields.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        std::fs::write(directory.path().join("config.json"), fields.to_string()).unwrap();
        std::fs::copy(
            "../models/tests/fixtures/gpt2/tiny_a/model.safetensors",
            directory.path().join("model.safetensors"),
        )
        .unwrap();
        let model = Gpt2::<Flex>::from_path(directory.path(), &Default::default(), None).unwrap().0;
        let published = GenerateOptions::published(directory.path(), Sampling::greedy()).unwrap();
        let options = match published.max_length {
            Some(_) => published,
            None => GenerateOptions { max_new_tokens: 20, ..published },
        };
        let generated = generate(&model, &[prompt], &options, |_, _| true).unwrap().remove(0);
        let ends = model.end_tokens();
        let expected = ids.split_last().filter(|(last, _)| ends.contains(last)).map_or(&ids[..], |(_, before)| before);
        assert_eq!(generated.ids, expected, "{config}");
        assert_ne!(ids, without_penalty);
    }
    let refused = serde_json::json!({"model_type": "gpt2", "num_beams": 4});
    std::fs::write(directory.path().join("config.json"), refused.to_string()).unwrap();
    let error = GenerateOptions::published(directory.path(), Sampling::greedy()).unwrap_err().to_string();
    assert!(error.contains("config.json") && error.contains("num_beams is 4"), "{error}");
}

#[test]
fn rules_match_transformers() {
    let model = tiny(None);
    let directory = tempfile::tempdir().unwrap();
    let cases = fixture().rules;
    assert!(cases.len() > 30);
    for Case { config, prompt, ids, without_penalty } in cases {
        std::fs::write(directory.path().join("generation_config.json"), config.to_string()).unwrap();
        let published = GenerateOptions::published(directory.path(), Sampling::default()).unwrap();
        let options = match published.max_length {
            Some(_) => published,
            None => GenerateOptions { max_new_tokens: 20, ..published },
        };
        let ends = options.end_tokens.clone().unwrap_or_default();
        let (finish, expected) = match ids.split_last() {
            Some((last, before)) if ends.contains(last) => (Finish::Stop, before),
            _ => (Finish::Length, &ids[..]),
        };
        assert_ne!(ids, without_penalty);
        let prompts = [prompt.clone()];
        let rows = generate(&model, &prompts, &options, |_, _| true).unwrap();
        assert_eq!((&rows[0].ids[..], rows[0].finish), (expected, finish), "{config}");
        // In a batch, with a cache, jitted, and with a draft.
        let batch = generate(&model, &[prompt.clone(), prompt[2..].to_vec()], &options, |_, _| true).unwrap();
        assert_eq!(batch[0], rows[0], "{config}");
        let session = DecodeSession::new(&model, 0);
        assert_eq!(generate_with_cache(&model, session, &prompt, &options, |_| true).unwrap().0, rows[0]);
        assert_eq!(model.jitted().generate(&prompts, &options).unwrap(), rows);
        assert_eq!(generate_with_draft(&model, &model, &prompt, 3, &options, |_| true).unwrap().0, rows[0]);
    }
}

#[test]
fn rules_that_leave_no_token_are_an_error() {
    let model = tiny(None);
    let all = (0..model.config.vocab_size as u32).collect();
    let rules = TokenRules { suppress_tokens: all, ..TokenRules::default() };
    let options = GenerateOptions { rules, ..GenerateOptions::default() };
    let error = generate(&model, &[vec![1]], &options, |_, _| true).unwrap_err().to_string();
    assert!(error.contains("suppress_tokens"), "{error}");

    // The last token is to be one that must not be the first: each rule is named.
    let rules = TokenRules { forced_eos_token_id: vec![2], begin_suppress_tokens: vec![2, 7], ..TokenRules::default() };
    let options = GenerateOptions { rules, max_new_tokens: 1, ..GenerateOptions::default() };
    let error = generate(&model, &[vec![1]], &options, |_, _| true).unwrap_err().to_string();
    assert!(error.contains("loosen one of forced_eos_token_id, begin_suppress_tokens"), "{error}");
}

/// Models of different sizes have embeddings padded to different numbers of rows.
#[test]
fn a_draft_may_have_other_rows() {
    let model = tiny(None);
    let config = |vocab_size| Gpt2Config {
        vocab_size,
        n_embd: 8,
        n_layer: 1,
        n_head: 2,
        n_positions: 37,
        ..Gpt2Config::default()
    };
    let prompt = [5, 17, 40];
    let options = GenerateOptions { max_new_tokens: 20, sampling: Sampling::greedy(), ..GenerateOptions::default() };
    let plain = generate(&model, &[prompt.to_vec()], &options, |_, _| true).unwrap().remove(0);
    let own = model.config.vocab_size;
    for rows in [own - 20, own + 20] {
        let draft = Gpt2::<Flex>::init(&config(rows), Key::new(1), &Default::default()).unwrap();
        let (text, drafted) = generate_with_draft(&model, &draft, &prompt, 3, &options, |_| true).unwrap();
        assert_eq!(text, plain);
        assert!(drafted.proposed > 0 || plain.ids.iter().any(|&id| id as usize >= rows));
    }
}

#[test]
fn a_full_context_differs_from_enough_tokens() {
    let model = tiny(None);
    let options = |max_new_tokens| GenerateOptions {
        max_new_tokens,
        sampling: Sampling::greedy(),
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    // The context holds 37 tokens, after which one more is predicted.
    for (wanted, got, finish) in [(32, 32, Finish::Length), (33, 33, Finish::Length), (34, 33, Finish::Context)] {
        let prompt = vec![1, 2, 3, 4, 5];
        let row = generate(&model, std::slice::from_ref(&prompt), &options(wanted), |_, _| true).unwrap().remove(0);
        assert_eq!((row.ids.len(), row.finish), (got, finish));
        let (row, _) =
            generate_with_cache(&model, DecodeSession::new(&model, 0), &prompt, &options(wanted), |_| true).unwrap();
        assert_eq!((row.ids.len(), row.finish), (got, finish));
        let (row, _) = generate_with_draft(&model, &model, &prompt, 3, &options(wanted), |_| true).unwrap();
        assert_eq!((row.ids.len(), row.finish), (got, finish));
    }
}

/// A long prompt does not shorten the continuation of a short one.
#[test]
fn each_row_has_the_context_to_itself() {
    let model = tiny(None);
    let prompts: Vec<Vec<u32>> = [30, 3, 36, 12].map(|n| (0..n).map(|i| (i * 7 + n) % 60).collect()).to_vec();
    for sampling in [Sampling::greedy(), Sampling::default()] {
        let options = GenerateOptions { max_new_tokens: 30, sampling, ignore_eos: true, ..GenerateOptions::default() };
        let mut seen = vec![vec![]; prompts.len()];
        let together = generate(&model, &prompts, &options, |row, token| {
            seen[row].push(token);
            true
        })
        .unwrap();
        let lengths: Vec<usize> = together.iter().map(|row| row.ids.len()).collect();
        assert_eq!(lengths, [8, 30, 2, 26]);
        let finish = [Finish::Context, Finish::Length, Finish::Context, Finish::Context];
        assert!(together.iter().zip(finish).all(|(row, finish)| row.finish == finish));
        assert!(together.iter().zip(&seen).all(|(row, seen)| row.ids == *seen));
        // A row's random numbers depend on its index.
        let alone = GenerateOptions { sampling: Sampling::greedy(), ..options.clone() };
        for (prompt, row) in prompts.iter().zip(&together).filter(|_| options.sampling == alone.sampling) {
            let same = generate(&model, std::slice::from_ref(prompt), &alone, |_, _| true).unwrap().remove(0);
            assert_eq!(*row, same);
        }
        assert_eq!(model.jitted().generate(&prompts, &options).unwrap(), together);
    }
}

/// Replaces one value of a tensor.
fn damaged(model: &Gpt2<Flex>, tensor: &str, number: f32) -> Gpt2<Flex> {
    let mut found = false;
    let changed = model.clone().map(&mut TreePath::root(), &mut |path, leaf| {
        if path.as_str() != tensor {
            return leaf;
        }
        found = true;
        let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
        let mut numbers: Vec<f32> = leaf.into_data().unwrap().convert::<f32>().into_vec().unwrap();
        let middle = numbers.len() / 2;
        numbers[middle] = number;
        AnyArray::from_data(TensorData::new(numbers, shape).convert_dtype(dtype), &Default::default())
    });
    assert!(found, "{tensor}");
    changed
}

#[test]
fn damaged_weights_are_named() {
    let whole = tiny(None);
    assert_eq!(first_not_finite(&whole), None);
    let greedy = Sampling::greedy();
    let sampled = Sampling { top_k: Some(5), top_p: Some(0.9), repetition_penalty: 1.2, ..Sampling::default() };
    for (tensor, number) in
        [("h.1.mlp.c_fc.weight", f32::NAN), ("ln_f.bias", f32::INFINITY), ("h.2.ln_1.bias", f32::NAN)]
    {
        let model = damaged(&whole, tensor, number);
        assert_eq!(first_not_finite(&model).as_deref(), Some(tensor));
        let named = |error: ModelError| {
            assert!(matches!(&error, ModelError::NotFinite { tensor: Some(found), .. } if found == tensor), "{error}");
            assert!(error.to_string().contains(tensor));
        };
        for sampling in [greedy.clone(), sampled.clone()] {
            let options = GenerateOptions { max_new_tokens: 5, sampling, ..GenerateOptions::default() };
            named(generate(&model, &[vec![5, 17], vec![40]], &options, |_, _| true).unwrap_err());
            named(
                generate_with_cache(&model, DecodeSession::new(&model, 0), &[5, 17], &options, |_| true)
                    .map(|_| ())
                    .unwrap_err(),
            );
            named(generate_with_draft(&model, &whole, &[5, 17], 2, &options, |_| true).unwrap_err());
            named(generate_with_draft(&whole, &model, &[5, 17], 2, &options, |_| true).unwrap_err());
        }
        named(score_text(&model, &[5, 17, 40], None).unwrap_err());
        let ids = burn::tensor::Tensor::from_ints([[5, 17, 40]], &Default::default());
        let error = score(model.forward(ids, None), &[5, 17, 40]).unwrap_err();
        assert!(matches!(error, ModelError::NotFinite { tensor: None, .. }), "{error}");
    }
}

#[test]
fn an_overflow_in_f16_suggests_another_dtype() {
    // Each weight is finite, but the dot product of two rows overflows.
    let model = tiny(Some(DType::F16)).map(&mut TreePath::root(), &mut |path, leaf| match path.as_str() {
        "ln_f.weight" | "wte.weight" => {
            let shape = leaf.shape().to_vec();
            let data = TensorData::full(shape, 6000.0f32).convert_dtype(DType::F16);
            AnyArray::from_data(data, &Default::default())
        }
        _ => leaf,
    });
    let error = generate(&model, &[vec![5, 17]], &GenerateOptions::default(), |_, _| true).unwrap_err();
    assert!(matches!(&error, ModelError::NotFinite { tensor: None, dtype: DType::F16 }), "{error}");
    assert!(error.to_string().contains("bf16"), "{error}");
}
