//! Rotary embeddings of LLaMA configurations against transformers, and sequences beyond the training length. Fixtures:
//! tools/fixtures/rope.py.

use burn::tensor::{DType, Tensor, TensorData};
use grove_backend::Flex;
use grove_models::{
    CausalLm, GenerateOptions, Llama, LlamaConfig, ModelError, Pretrained, PretrainedConfig, Tokenizer,
    chat::{ChatSession, ChatTemplate},
    generate,
    generation::{
        DecodeSession, Sampling, TraceableLm, check_prompt, generate_with_cache, generate_with_draft, score_text,
    },
};
use grove_tree::{AnyArray, Key};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    name: String,
    config: LlamaConfig,
    length: usize,
    positions: Vec<usize>,
    cos: Vec<Vec<f32>>,
    sin: Vec<Vec<f32>>,
}

#[test]
fn angles_are_those_of_transformers() {
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read("tests/fixtures/rope.json").unwrap()).unwrap();
    assert!(cases.len() > 20);
    for Case { name, config, length, positions, cos, sin } in cases {
        config.validate().unwrap();
        let (rope, device) = (config.rope().unwrap(), Default::default());
        let all: Vec<usize> = (0..length).collect();
        // A head of ones in its first half and zeros in its second rotates to the cosines and the sines.
        let half = config.head_dim() / 2;
        let ones = Tensor::<Flex, 4>::ones([1, length, 1, half], &device);
        let head = Tensor::cat(vec![ones.clone(), ones.zeros_like()], 3);
        for angles in [rope.at::<Flex>(&all, 1, DType::F32, &device), rope.table(length, length, DType::F32, &device)] {
            let turned: Vec<f32> = angles.apply(head.clone()).into_data().iter().collect();
            for (i, &position) in positions.iter().enumerate() {
                let row = &turned[2 * half * position..][..2 * half];
                for (found, expected) in row.iter().zip(cos[i].iter().chain(&sin[i])) {
                    // Sines of large f32 angles differ by the rounding of the angle.
                    assert!((found - expected).abs() < 2e-5, "{name} at {position}: {row:?} {:?} {:?}", cos[i], sin[i]);
                }
            }
        }
    }
}

fn config(rope: Value) -> LlamaConfig {
    serde_json::from_value(json!({
        "vocab_size": 23, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 16, "rope_scaling": rope,
    }))
    .unwrap()
}

#[test]
fn scalings_that_change_angles_are_not_ignored() {
    let says = |rope: Value| config(rope).validate().unwrap_err().to_string();
    let partial = json!({"type": "linear", "factor": 2.0, "partial_rotary_factor": 0.5});
    assert!(says(partial).contains("partial_rotary_factor is 0.5"));
    assert!(says(json!({"full_attention": {"rope_type": "default"}})).contains("full_attention is"));
    assert!(says(json!({"type": "proportional", "factor": 2.0})).contains("proportional"));
    let short = json!({"type": "longrope", "short_factor": [1.0], "long_factor": [2.0, 2.0, 2.0, 2.0]});
    assert!(says(short).contains("short_factor of the rotary angles' scaling must be a list of 4"));
}

#[test]
fn the_context_is_what_scaling_makes_of_it() {
    let context = |rope: Value| config(rope).trained_positions();
    assert_eq!(context(json!({})), 16);
    assert_eq!(context(json!({"type": "linear", "factor": 4.0})), 64);
    assert_eq!(context(json!({"type": "dynamic", "factor": 2.0})), 32);
    assert_eq!(context(json!({"type": "yarn", "factor": 4.0})), 64);
    assert_eq!(context(json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4})), 16);
    assert_eq!(context(json!({"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8})), 32);
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
fn models_of_lengths() -> [Llama<Flex>; 2] {
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

fn greedy(most: usize) -> GenerateOptions {
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

/// Each turn uses the angles of its length, as if the whole conversation were one prompt.
#[test]
fn turns_of_a_conversation_have_the_angles_of_their_length() {
    let tokenizer = Tokenizer::from_path("tests/fixtures/gpt2/tokenizer").unwrap();
    let template = "{% for message in messages %}{{ message.content }}.{% endfor %}";
    let template = ChatTemplate::new(template, [("bos_token", "")]).unwrap();
    for model in models_of_lengths() {
        let mut chat = ChatSession::new(&model, &tokenizer, &template, None);
        for message in ["A grove", " of trees", " and so on"] {
            chat.say(message).unwrap();
            let prompt = tokenizer.encode(&template.render(chat.messages(), true).unwrap()).unwrap();
            let expected = generate(&model, &[prompt], &greedy(6), |_, _| true).unwrap();
            let reply = chat.reply(&greedy(6), &[], |_| true).unwrap();
            assert_eq!(reply.generated.ids, expected[0].ids);
        }
    }
}

#[test]
fn a_full_context_drops_the_oldest_turns() {
    let tokenizer = Tokenizer::from_path("tests/fixtures/gpt2/tokenizer").unwrap();
    let template = "{% for message in messages %}{{ message.content }}.{% endfor %}";
    let template = ChatTemplate::new(template, [("bos_token", "")]).unwrap();
    let config = LlamaConfig { max_position_embeddings: 24, vocab_size: 512, ..config(Value::Null) };
    let model = Llama::<Flex>::init(&config, Key::new(3), &Default::default()).unwrap();
    let mut chat = ChatSession::new(&model, &tokenizer, &template, Some("Be brief"));
    let mut dropped = vec![];
    for message in ["A grove", " of trees", " and so on", " for ever"] {
        dropped.push(chat.say_within(message, 6).unwrap());
        let prompt = tokenizer.encode(&template.render(chat.messages(), true).unwrap()).unwrap();
        assert!(prompt.len() + 6 <= 24, "room for the reply");
        let expected = generate(&model, &[prompt], &greedy(6), |_, _| true).unwrap();
        assert_eq!(chat.reply(&greedy(6), &[], |_| true).unwrap().generated.ids, expected[0].ids);
        assert_eq!(chat.messages()[0].content, "Be brief");
    }
    assert!(dropped[0] == 0 && dropped.iter().sum::<usize>() > 0 && dropped.iter().all(|count| count % 2 == 0));
    let error = chat.say_within(&" of trees".repeat(40), 6);
    assert!(error.is_ok(), "rotary positions have no hard limit");
    assert_eq!(chat.messages().len(), 2, "the system message and the new one");
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

/// Code LLaMA's params.json has LLaMA 3's rope base or a larger one, but LLaMA 2's vocabulary and tokens.
#[test]
fn params_of_code_llama_are_not_those_of_llama_3() {
    let (source, folder) = (std::path::Path::new("tests/fixtures/llama/variants/meta"), tempfile::tempdir().unwrap());
    std::fs::copy(source.join("consolidated.00.pth"), folder.path().join("consolidated.00.pth")).unwrap();
    let params: Value = serde_json::from_slice(&std::fs::read(source.join("params.json")).unwrap()).unwrap();
    let read = |more: Value| {
        let mut params = params.clone();
        params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        std::fs::write(folder.path().join("params.json"), params.to_string()).unwrap();
        LlamaConfig::of(folder.path(), &grove_weights::TensorFiles::open(folder.path()).unwrap())
    };
    let config = read(json!({"rope_theta": 1e6})).unwrap();
    assert_eq!((config.bos_token_id, config.eos_token_id.to_vec()), (Some(1), vec![2]));
    assert_eq!((config.max_position_embeddings, config.rope_theta), (16_384, Some(1e6)));
    assert_eq!(read(json!({})).unwrap().max_position_embeddings, 4096);
    let error = read(json!({"quantization_args": {"scheme": "int8"}})).unwrap_err().to_string();
    assert!(error.contains("params.json: quantization_args is"), "{error}");
}
