//! Rotary embeddings of LLaMA configurations against transformers. Fixtures: tools/fixtures/rope.py.

use burn::tensor::{DType, Tensor};
use grove_backend::Flex;
use grove_models::{LlamaConfig, PretrainedConfig};
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
