//! Rotary embeddings of LLaMA configurations against transformers. Fixtures: tools/fixtures/rope.py.

use burn::tensor::{DType, Tensor};
use grove_backend::Flex;
use grove_layers::RopeScaling;
use grove_models::{LlamaConfig, ModelError, PretrainedConfig};
use grove_weights::TensorFiles;
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    name: String,
    config: LlamaConfig,
    #[serde(flatten)]
    angles: Angles,
}

/// Cosines and sines of the angles at some positions, including the attention factor.
#[derive(Deserialize)]
pub struct Angles {
    length: usize,
    positions: Vec<usize>,
    cos: Vec<Vec<f32>>,
    sin: Vec<Vec<f32>>,
}

impl Angles {
    /// Compares the rotary embedding of a configuration.
    pub fn check(&self, name: &str, config: &LlamaConfig) {
        let (rope, device) = (config.rope().unwrap(), Default::default());
        let all: Vec<usize> = (0..self.length).collect();
        // A head of ones in its first half and zeros in its second rotates to the cosines and the sines.
        let half = config.head_dim() / 2;
        let ones = Tensor::<Flex, 4>::ones([1, self.length, 1, half], &device);
        let head = Tensor::cat(vec![ones.clone(), ones.zeros_like()], 3);
        for angles in
            [rope.at::<Flex>(&all, 1, DType::F32, &device), rope.table(self.length, self.length, DType::F32, &device)]
        {
            let turned: Vec<f32> = angles.apply(head.clone()).into_data().iter().collect();
            for ((&position, cos), sin) in self.positions.iter().zip(&self.cos).zip(&self.sin) {
                let row = &turned[2 * half * position..][..2 * half];
                for (found, expected) in row.iter().zip(cos.iter().chain(sin)) {
                    // Sines of large f32 angles differ by the rounding of the angle.
                    assert!((found - expected).abs() < 2e-5, "{name} at {position}: {row:?} {cos:?} {sin:?}");
                }
            }
        }
    }
}

#[test]
fn angles_match_transformers() {
    let cases: Vec<Case> = serde_json::from_slice(&std::fs::read("tests/fixtures/rope.json").unwrap()).unwrap();
    assert!(cases.len() > 20);
    for Case { name, config, angles } in cases {
        config.validate().unwrap();
        angles.check(&name, &config);
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
fn params_of_code_llama_differ_from_llama_3() {
    let params = Params::new();
    let config = params.read(json!({"rope_theta": 1e6})).unwrap();
    assert_eq!((config.bos_token_id, config.eos_token_id.to_vec()), (Some(1), vec![2]));
    assert_eq!((config.max_position_embeddings, config.rope_theta), (16_384, Some(1e6)));
    assert_eq!(params.read(json!({})).unwrap().max_position_embeddings, 4096);
}

/// Directory with the weights of a fixture, into which tests write a `params.json` with further keys.
struct Params {
    folder: tempfile::TempDir,
    own: serde_json::Map<String, Value>,
}

impl Params {
    fn new() -> Self {
        let (source, folder) =
            (std::path::Path::new("tests/fixtures/llama/variants/meta"), tempfile::tempdir().unwrap());
        std::fs::copy(source.join("consolidated.00.pth"), folder.path().join("consolidated.00.pth")).unwrap();
        let own = serde_json::from_slice(&std::fs::read(source.join("params.json")).unwrap()).unwrap();
        Self { folder, own }
    }

    fn read(&self, more: Value) -> Result<LlamaConfig, ModelError> {
        let mut params = self.own.clone();
        params.extend(more.as_object().unwrap().clone());
        std::fs::write(self.folder.path().join("params.json"), Value::Object(params).to_string()).unwrap();
        LlamaConfig::of(self.folder.path(), &TensorFiles::open(self.folder.path()).unwrap())
    }
}

#[test]
fn keys_of_params_that_change_results_are_followed_or_refused() {
    let params = Params::new();
    let scaled = params.read(json!({"use_scaled_rope": true, "rope_theta": 5e5})).unwrap().rope().unwrap();
    let of_llama3 = |factor, high_freq_factor| RopeScaling::Llama3 {
        factor,
        low_freq_factor: 1.0,
        high_freq_factor,
        original: 8192,
    };
    assert_eq!(scaled.scaling, of_llama3(32.0, 4.0));
    let own = json!({"use_scaled_rope": true, "rope_scaling_factor": 16.0, "rope_high_freq_factor": 2.0});
    assert_eq!(params.read(own).unwrap().rope().unwrap().scaling, of_llama3(16.0, 2.0));
    let unused = params.read(json!({"rope_scaling_factor": 16.0})).unwrap().rope().unwrap();
    assert_eq!(unused.scaling, RopeScaling::None);
    assert_eq!(params.read(json!({"max_position_embeddings": 640})).unwrap().max_position_embeddings, 640);

    let neutral = json!({"use_qk_norm": false, "attn_temperature_tuning": false, "moe_args": null, "vision_chunk_size": -1,
        "nope_layer_interval": null, "floor_scale": 8192.0, "model_type": "transformer", "of_tomorrow": null});
    params.read(neutral).unwrap();
    for (key, value) in [
        ("use_qk_norm", json!(true)),
        ("nope_layer_interval", json!(4)),
        ("attention_chunk_size", json!(8192)),
        ("attn_temperature_tuning", json!(true)),
        ("moe_args", json!({"num_experts": 16})),
        ("moe", json!({"num_experts": 8})),
        ("quantization_args", json!({"scheme": "int8"})),
        ("lora_args", json!({"rank": 16, "scale": 2.0})),
        ("sliding_window", json!(4096)),
        ("yarn", json!({"factor": 16})),
        ("vision_args", json!({"patch_size": 14})),
        ("vision_num_cross_attention_layers", json!(8)),
        ("of_tomorrow", json!(1)),
    ] {
        let error = params.read(json!({key: value})).unwrap_err().to_string();
        assert!(error.contains(&format!("params.json: {key} is {value}")), "{error}");
    }
}
