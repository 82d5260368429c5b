//! Formatting for messages.

use burn::tensor::{BoolStore, DType};
pub(crate) use grove_tree::leaf_name;

/// Returns the name of a dtype as JAX abbreviates it: `f32`, `i64`, `bool`.
pub(crate) fn dtype_name(dtype: DType) -> String {
    match dtype {
        DType::Bool(BoolStore::Native | BoolStore::U8 | BoolStore::U32) => "bool".into(),
        DType::Flex32 => "flex32".into(),
        DType::QFloat(_) => "quantized".into(),
        dtype => format!("{dtype:?}").to_lowercase(),
    }
}
