//! Formatting for messages.

use burn::tensor::{BoolStore, DType};

/// Returns the name of a dtype as JAX abbreviates it: `f32`, `i64`, `bool`.
pub(crate) fn dtype_name(dtype: DType) -> String {
    match dtype {
        DType::Bool(BoolStore::Native | BoolStore::U8 | BoolStore::U32) => "bool".into(),
        DType::Flex32 => "flex32".into(),
        DType::QFloat(_) => "quantized".into(),
        dtype => format!("{dtype:?}").to_lowercase(),
    }
}

/// Names an array in a message: "argument `blocks.0.weight`", or "argument" if the array is the whole tree.
pub(crate) fn named(kind: &str, path: &str) -> String {
    if path.is_empty() { kind.to_owned() } else { format!("{kind} `{path}`") }
}
