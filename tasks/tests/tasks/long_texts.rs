//! Sequences beyond the length of training, with each scaling of rotary embeddings.

use burn::tensor::{Tensor, TensorData};
use grove_backend::Flex;
use grove_models::{CausalLm, Llama, LlamaConfig, ModelError, Pretrained};
use grove_tasks::{
    GenerateOptions, JitGenerate, generate,
    generation::{DecodeSession, Sampling, check_prompt, generate_with_cache, generate_with_draft, score_text},
};
use grove_tree::{AnyArray, Key};
use serde_json::{Value, json};

/// Configuration of a small model with a context of 16 tokens before scaling.
pub fn config(rope: Value) -> LlamaConfig {
    serde_json::from_value(json!({
        "vocab_size": 23, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 16, "rope_scaling": rope,
    }))
    .unwrap()
}

/// Rotary embeddings have no maximum length: a model processes and generates positions beyond its context. The jitted
/// decoder's fixed-size cache rotates positions like a growing cache.
#[test]
fn texts_go_on_beyond_the_length_of_training() {
    let long = json!({"type": "longrope", "original_max_position_embeddings": 16, "factor": 2.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 2.0, 3.0, 4.0]});
    for rope in [json!({}), json!({"type": "dynamic", "factor": 2.0}), long] {
        let model = Llama::<Flex>::init(&config(rope), Key::new(3), &Default::default()).unwrap();
        for length in [10, 16, 28] {
            let prompt: Vec<u32> = (0..length).map(|i| (i * 7 + 3) % 23).collect();
            check_prompt(&model, &prompt).unwrap();
            let options = greedy(12);
            let eager = generate(&model, std::slice::from_ref(&prompt), &options, |_, _| true).unwrap();
            assert_eq!(eager[0].ids.len(), 12);
            let jitted = model.jitted().generate(std::slice::from_ref(&prompt), &options).unwrap();
            assert_eq!(jitted[0].ids, eager[0].ids, "{length}");
        }
    }
}

/// Models whose rotary angles depend on the sequence length.
pub fn models_of_lengths() -> [Llama<Flex>; 2] {
    let long = json!({"type": "longrope", "original_max_position_embeddings": 16, "factor": 2.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3], "long_factor": [1.0, 2.0, 3.0, 4.0]});
    [json!({"type": "dynamic", "factor": 4.0}), long].map(|rope| {
        let config = LlamaConfig { vocab_size: 512, ..config(rope) };
        let model = Llama::<Flex>::init(&config, Key::new(3), &Default::default()).unwrap();
        // Attention that is concentrated on one position makes the results sensitive to the angles.
        grove_tree::map(model, |x: AnyArray<Flex>| {
            let shape = x.shape().to_vec();
            let numbers: Vec<f32> = x.into_data().unwrap().iter::<f32>().map(|x| x * 12.0).collect();
            AnyArray::from_data(TensorData::new(numbers, shape), &Default::default())
        })
    })
}

pub fn greedy(most: usize) -> GenerateOptions {
    GenerateOptions { max_new_tokens: most, ignore_eos: true, sampling: Sampling::greedy(), ..Default::default() }
}

/// Expected: transformers' results with `"use_cache": false`.
#[test]
fn without_a_cache_the_whole_text_is_read_for_each_token() {
    for model in models_of_lengths() {
        let prompt: Vec<u32> = (0..11).map(|i| (i * 37 + 3) % 512).collect();
        let mut expected = prompt.clone();
        for _ in 0..20 {
            let ids = expected.iter().map(|&id| i64::from(id)).collect::<Vec<_>>();
            let ids = Tensor::from_data(TensorData::new(ids, [1, expected.len()]), &Default::default());
            let last = model.forward(ids, None).into_data().iter::<f32>().collect::<Vec<_>>();
            let last = &last[512 * (expected.len() - 1)..];
            expected.push((0..512).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap() as u32);
        }
        let expected = &expected[11..];
        let options = GenerateOptions { use_cache: false, ..greedy(20) };
        let prompts = std::slice::from_ref(&prompt);
        let found = generate(&model, prompts, &options, |_, _| true).unwrap();
        assert_eq!(found[0].ids, expected);
        assert_eq!(model.jitted().generate(prompts, &options).unwrap()[0].ids, expected);
        let session = DecodeSession::new(&model, 0);
        assert_eq!(generate_with_cache(&model, session, &prompt, &options, |_| true).unwrap().0.ids, expected);
        let cached = generate(&model, prompts, &greedy(20), |_, _| true).unwrap();
        let (drafted, _) = generate_with_draft(&model, &model, &prompt, 4, &greedy(20), |_| true).unwrap();
        assert_eq!(drafted, cached[0], "a draft changes no text");
        assert_ne!(cached[0].ids, expected, "the test tells nothing");
    }
}

/// A sequence within the scaled context is scored at once, a longer one in windows.
#[test]
fn scores_have_the_context_of_the_scaling() {
    let model =
        Llama::<Flex>::init(&config(json!({"type": "linear", "factor": 2.0})), Key::new(3), &Default::default());
    let (model, ids): (_, Vec<u32>) = (model.unwrap(), (0..40).map(|i| i % 23).collect());
    assert_eq!(score_text(&model, &ids[..32], None).unwrap().windows, 1);
    assert!(score_text(&model, &ids, None).unwrap().windows > 1);
    assert_eq!((model.context(), model.position_limit()), (Some(32), None));
    assert!(matches!(score_text(&model, &ids, Some(32)), Err(ModelError::Option { .. })));
}
