//! Parameters of a model, and the memory that it needs, computed before its weights are read.

use grove::{
    backend::Quantization,
    tensor::{DType, FloatDType},
    tree::{AnyArray, count_bytes, count_params, format_bytes, leaves, summary},
};
use indicatif::HumanCount;
use serde::Serialize;
use serde_json::Map;
use std::fmt;

use crate::prelude::*;

/// Returns the bytes of a model's weights for each dtype in which they can be loaded, including quantized blocks if the
/// model keeps them. A skeleton with quantized weights has a single entry, `as stored`.
pub fn weight_bytes<B: Backend, M: Pretrained<B>>(skeleton: &M) -> Vec<(&'static str, usize)> {
    let leaves = leaves(skeleton);
    if leaves.iter().any(|(_, leaf)| !leaf.dtype().is_float()) {
        return vec![("as stored", count_bytes(skeleton))];
    }
    let sum = |bytes: &dyn Fn(&AnyArray<B>) -> usize| {
        leaves.iter().fold(0, |sum: usize, (_, leaf)| sum.saturating_add(bytes(leaf)))
    };
    let plain = |dtype: DType| sum(&|leaf| leaf.len().saturating_mul(dtype.size()));
    // Quantized blocks are parts of rows, so only matrices are quantized.
    let in_blocks = |kind: Quantization| {
        let bytes = |leaf: &AnyArray<B>| match leaf.shape()[..] {
            [.., columns] if leaf.shape().len() > 1 && columns % kind.block_len() == 0 => {
                leaf.len() / kind.block_len() * kind.block_bytes()
            }
            _ => leaf.len() * DType::F32.size(),
        };
        sum(&bytes)
    };
    let kinds: &[Quantization] = if M::KEEPS_QUANTIZED { &[Quantization::Q8_0, Quantization::Q4_0] } else { &[] };
    let kinds = kinds.iter().map(|kind| (kind.name(), in_blocks(*kind)));
    [("f32", plain(DType::F32)), ("f16 or bf16", plain(DType::F16))].into_iter().chain(kinds).collect()
}

/// Table of a model's parameters, with the memory of its weights and, of a decoder, of a sequence's cache. Computed
/// without weights.
/// `Display` is for people; the JSON form is for scripts.
#[derive(Clone, Debug, Serialize)]
pub struct ModelSummary {
    /// Number of parameters, including those in quantized blocks.
    pub parameters: usize,
    /// Shape of each leaf by its path.
    pub shapes: Map<String, Value>,
    /// Bytes of the weights by dtype; see [`weight_bytes`].
    pub memory: Map<String, Value>,
    /// Length of a sequence, and bytes of its cache; `None` for models without a cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_of_text: Option<TextMemory>,
    #[serde(skip)]
    table: String,
}

/// Memory of a sequence's cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct TextMemory {
    /// Sequence length in tokens.
    pub tokens: usize,
    /// Bytes of the cache.
    pub bytes: usize,
}

impl ModelSummary {
    /// Summarises a decoder without weights. The sequence fills the model's context, or has `tokens` tokens if
    /// the context is unlimited. `cache_dtype` is that of the cache, by default the model's.
    ///
    /// # Errors
    /// As [`Pretrained::skeleton`].
    pub fn new<B: Backend, M: CausalLm<B> + Pretrained<B>>(
        skeleton: &M,
        tokens: usize,
        cache_dtype: Option<FloatDType>,
    ) -> Result<Self, ModelError> {
        let tokens = skeleton.context().unwrap_or(tokens);
        let bytes = skeleton.cache_bytes(tokens, cache_dtype).unwrap_or(0);
        Ok(Self { memory_of_text: Some(TextMemory { tokens, bytes }), ..Self::of(skeleton)? })
    }

    /// Summarises a model without weights.
    ///
    /// # Errors
    /// As [`Pretrained::skeleton`].
    pub fn of<B: Backend, M: Pretrained<B>>(skeleton: &M) -> Result<Self, ModelError> {
        // The leaves of a quantized model are bytes, so the parameters are counted in a dense skeleton.
        let parameters = count_params(&M::skeleton(skeleton.config())?);
        let mut table = summary(skeleton);
        if parameters != count_params(skeleton) {
            table += &format!("\n{} parameters, counting those in quantized blocks", HumanCount(parameters as u64));
        }
        let shapes = leaves(skeleton).into_iter().map(|(path, leaf)| (path, leaf.shape().into()));
        let memory = weight_bytes(skeleton).into_iter().map(|(dtype, bytes)| (dtype.into(), bytes.into()));
        let (shapes, memory) = (shapes.collect(), memory.collect());
        Ok(Self { parameters, shapes, memory, memory_of_text: None, table })
    }
}

impl fmt::Display for ModelSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = |value: &Value| format_bytes(value.as_u64().unwrap_or(0) as usize);
        let weights: Vec<String> =
            self.memory.iter().map(|(dtype, value)| format!("{} ({dtype})", bytes(value))).collect();
        write!(f, "{}\nmemory: weights {}", self.table, weights.join(", "))?;
        match self.memory_of_text {
            Some(TextMemory { tokens, bytes }) => write!(f, "; a text of {tokens} tokens {}", format_bytes(bytes)),
            None => Ok(()),
        }
    }
}
