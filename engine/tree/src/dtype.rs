//! Names of dtypes.

use burn::tensor::{BoolStore, DType};

/// Returns the short name of a dtype, as in JAX: `f32`, `bf16`, `i64`, `bool`.
pub(crate) fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F64 => "f64",
        DType::F32 => "f32",
        DType::Flex32 => "flex32",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::I64 => "i64",
        DType::I32 => "i32",
        DType::I16 => "i16",
        DType::I8 => "i8",
        DType::U64 => "u64",
        DType::U32 => "u32",
        DType::U16 => "u16",
        DType::U8 => "u8",
        DType::Bool(BoolStore::Native | BoolStore::U8 | BoolStore::U32) => "bool",
        DType::QFloat(_) => "quantized",
    }
}

/// Formats shape and dtype as `f32[3,4]`.
pub(crate) fn type_name(shape: &[usize], dtype: DType) -> String {
    let sizes: Vec<String> = shape.iter().map(usize::to_string).collect();
    format!("{}[{}]", dtype_name(dtype), sizes.join(","))
}
