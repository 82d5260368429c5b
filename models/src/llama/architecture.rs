use serde::{Deserialize, Serialize};

/// Models that share LLaMA's architecture, by the `model_type` of their `config.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// LLaMA 2 and 3, TinyLlama, SmolLM2: Touvron et al., "Llama 2" (2023); Grattafiori et al., "The Llama 3 Herd of
    /// Models" (2024).
    #[default]
    Llama,
    /// Mistral, with optional sliding-window attention: Jiang et al., "Mistral 7B" (2023).
    Mistral,
    /// Qwen2, with biases in the query, key and value projections: Yang et al., "Qwen2 Technical Report" (2024).
    Qwen2,
    /// Qwen3, with a norm of each query and key head: Yang et al., "Qwen3 Technical Report" (2025).
    Qwen3,
}

impl Architecture {
    /// Returns the prefix of transformers' class names, such as `Llama` of `LlamaForCausalLM`.
    pub fn class(self) -> &'static str {
        match self {
            Self::Llama => "Llama",
            Self::Mistral => "Mistral",
            Self::Qwen2 => "Qwen2",
            Self::Qwen3 => "Qwen3",
        }
    }

    /// Returns the name of transformers' class with the language-modelling head.
    pub fn causal_lm(self) -> String {
        format!("{}ForCausalLM", self.class())
    }
}
