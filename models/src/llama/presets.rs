use serde_json::{Map, Value, json};

use super::{Architecture, LlamaConfig, rope::llama3_scaling};
use crate::{EndTokens, error::Result, pretrained::preset_sizes};

/// Published sizes by name: vocabulary size, hidden size, hidden width of the feed-forward layers, layers, query heads,
/// key-value heads, maximum sequence length.
const SIZES: [(&str, [usize; 7]); 21] = [
    ("llama-2-7b", [32000, 4096, 11008, 32, 32, 32, 4096]),
    ("llama-2-13b", [32000, 5120, 13824, 40, 40, 40, 4096]),
    ("llama-2-70b", [32000, 8192, 28672, 80, 64, 8, 4096]),
    ("llama-3-8b", [128_256, 4096, 14336, 32, 32, 8, 8192]),
    ("llama-3.1-8b", [128_256, 4096, 14336, 32, 32, 8, 131_072]),
    ("llama-3.1-70b", [128_256, 8192, 28672, 80, 64, 8, 131_072]),
    ("llama-3.1-405b", [128_256, 16384, 53248, 126, 128, 8, 131_072]),
    ("llama-3.2-1b", [128_256, 2048, 8192, 16, 32, 8, 131_072]),
    ("llama-3.2-3b", [128_256, 3072, 8192, 28, 24, 8, 131_072]),
    ("tinyllama-1.1b", [32000, 2048, 5632, 22, 32, 4, 2048]),
    ("smollm2-135m", [49152, 576, 1536, 30, 9, 3, 8192]),
    ("smollm2-360m", [49152, 960, 2560, 32, 15, 5, 8192]),
    ("smollm2-1.7b", [49152, 2048, 8192, 24, 32, 32, 8192]),
    ("mistral-7b-v0.1", [32000, 4096, 14336, 32, 32, 8, 32768]),
    ("qwen2-0.5b", [151_936, 896, 4864, 24, 14, 2, 131_072]),
    ("qwen2-1.5b", [151_936, 1536, 8960, 28, 12, 2, 131_072]),
    ("qwen2-7b", [152_064, 3584, 18944, 28, 28, 4, 131_072]),
    ("qwen3-0.6b", [151_936, 1024, 3072, 28, 16, 8, 40_960]),
    ("qwen3-1.7b", [151_936, 2048, 6144, 28, 16, 8, 40_960]),
    ("qwen3-4b", [151_936, 2560, 9728, 36, 32, 8, 40_960]),
    ("qwen3-8b", [151_936, 4096, 12288, 36, 32, 8, 40_960]),
];

/// Beginnings of the names of sizes whose output layer shares the weights of the token embedding.
const TIED: [&str; 7] = ["llama-3.2", "smollm2", "qwen2-0", "qwen2-1", "qwen3-0", "qwen3-1", "qwen3-4"];

impl LlamaConfig {
    /// Returns a published size, from `smollm2-135m` to `llama-3.1-405b`.
    pub(super) fn published_size(name: &str) -> Result<Self> {
        let [vocab_size, hidden_size, intermediate_size, num_hidden_layers, heads, kv_heads, positions] =
            preset_sizes(name, &SIZES)?;
        let family = |name_of: &str| name.starts_with(name_of);
        let model_type = match name {
            _ if family("mistral") => Architecture::Mistral,
            _ if family("qwen2") => Architecture::Qwen2,
            _ if family("qwen3") => Architecture::Qwen3,
            _ => Architecture::Llama,
        };
        let base = match name {
            _ if family("llama-3") => 500_000.0,
            "smollm2-1.7b" => 130_000.0,
            _ if family("smollm2") => 100_000.0,
            _ if family("qwen") => 1e6,
            _ => 10_000.0,
        };
        let (begin, end) = match name {
            _ if family("llama-3") => (128_000, 128_001),
            _ if family("smollm2") => (0, 0),
            _ if family("qwen2") => (151_643, 151_643),
            _ if family("qwen3") => (151_643, 151_645),
            _ => (1, 2),
        };
        let other: Map<String, Value> =
            [("architectures".to_owned(), json!([model_type.causal_lm()]))].into_iter().collect();
        Ok(Self {
            model_type,
            vocab_size,
            hidden_size,
            intermediate_size,
            num_hidden_layers,
            num_attention_heads: heads,
            num_key_value_heads: Some(kv_heads),
            max_position_embeddings: positions,
            rms_norm_eps: if family("qwen") { 1e-6 } else { 1e-5 },
            rope_theta: Some(base),
            rope_scaling: match name {
                _ if family("llama-3.1") => Some(llama3_scaling(8.0, 4.0)),
                _ if family("llama-3.2") => Some(llama3_scaling(32.0, 4.0)),
                _ => None,
            },
            head_dim: family("qwen3").then_some(128),
            tie_word_embeddings: TIED.iter().any(|name| family(name)),
            sliding_window: (model_type == Architecture::Mistral).then_some(4096),
            bos_token_id: Some(begin),
            eos_token_id: EndTokens::One(end),
            other,
            ..Self::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Llama, Pretrained, PretrainedConfig};
    use burn_flex::Flex;
    use grove_tree::count_params;

    #[test]
    fn published_sizes_have_the_published_numbers_of_parameters() {
        // Counted by transformers: `sum(p.numel() for p in AutoModelForCausalLM.from_config(config).parameters())`.
        let known = [
            ("llama-2-7b", 6_738_415_616),
            ("llama-2-13b", 13_015_864_320),
            ("llama-2-70b", 68_976_648_192),
            ("llama-3-8b", 8_030_261_248),
            ("llama-3.1-8b", 8_030_261_248),
            ("llama-3.1-70b", 70_553_706_496),
            ("llama-3.1-405b", 405_853_388_800),
            ("llama-3.2-1b", 1_235_814_400),
            ("llama-3.2-3b", 3_212_749_824),
            ("tinyllama-1.1b", 1_100_048_384),
            ("smollm2-135m", 134_515_008),
            ("smollm2-360m", 361_821_120),
            ("smollm2-1.7b", 1_711_376_384),
            ("mistral-7b-v0.1", 7_241_732_096),
            ("qwen2-0.5b", 494_032_768),
            ("qwen2-1.5b", 1_543_714_304),
            ("qwen2-7b", 7_615_616_512),
            ("qwen3-0.6b", 596_049_920),
            ("qwen3-1.7b", 1_720_574_976),
            ("qwen3-4b", 4_022_468_096),
            ("qwen3-8b", 8_190_735_360),
        ];
        for (name, count) in known {
            let config = LlamaConfig::preset(name).unwrap();
            assert_eq!(count_params(&Llama::<Flex>::skeleton(&config).unwrap()), count, "{name}");
        }
        let error = LlamaConfig::preset("llama-7").unwrap_err().to_string();
        assert!(error.contains("llama-3.1-8b") && error.contains("qwen2-7b"), "{error}");
    }
}
