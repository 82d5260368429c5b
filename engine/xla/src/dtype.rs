use burn::tensor::{BoolStore, DType};
use std::fmt;

use crate::sys::buffer_type as codes;

/// Element type of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names are self-explanatory.
pub enum ElementType {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    BF16,
    F32,
    F64,
}

impl ElementType {
    /// The types, with their codes of the API, dtypes, names in jaxprs and names in MLIR.
    const ALL: [(Self, u32, DType, &'static str, &'static str); 13] = [
        (Self::Bool, codes::PRED, DType::Bool(BoolStore::Native), "pred", "i1"),
        (Self::I8, codes::S8, DType::I8, "i8", "i8"),
        (Self::I16, codes::S16, DType::I16, "i16", "i16"),
        (Self::I32, codes::S32, DType::I32, "i32", "i32"),
        (Self::I64, codes::S64, DType::I64, "i64", "i64"),
        (Self::U8, codes::U8, DType::U8, "u8", "ui8"),
        (Self::U16, codes::U16, DType::U16, "u16", "ui16"),
        (Self::U32, codes::U32, DType::U32, "u32", "ui32"),
        (Self::U64, codes::U64, DType::U64, "u64", "ui64"),
        (Self::F16, codes::F16, DType::F16, "f16", "f16"),
        (Self::BF16, codes::BF16, DType::BF16, "bf16", "bf16"),
        (Self::F32, codes::F32, DType::F32, "f32", "f32"),
        (Self::F64, codes::F64, DType::F64, "f64", "f64"),
    ];

    /// Returns the size of an element in bytes.
    pub fn size(self) -> usize {
        self.dtype().size()
    }

    /// Returns the corresponding dtype of grove's arrays.
    pub fn dtype(self) -> DType {
        self.entry().2
    }

    /// Returns the element type of a dtype of grove's arrays; `None` for quantized dtypes.
    pub fn of_dtype(dtype: DType) -> Option<Self> {
        match dtype {
            DType::Bool(_) => Some(Self::Bool),
            DType::Flex32 => Some(Self::F32),
            dtype => Self::ALL.iter().map(|entry| entry.0).find(|element| element.dtype() == dtype),
        }
    }

    /// Returns true for floating-point types.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// Returns true for signed integers.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    pub(crate) fn code(self) -> u32 {
        self.entry().1
    }

    /// Returns the type of a code of the API; `None` if grove has no arrays of the type.
    pub(crate) fn of_code(code: u32) -> Option<Self> {
        Self::ALL.iter().find(|entry| entry.1 == code).map(|entry| entry.0)
    }

    /// Returns the type of a code of XLA's `PrimitiveType`, which differs from the API's code only for bf16.
    pub(crate) fn of_primitive(code: u32) -> Option<Self> {
        const BF16: u32 = 16;
        match code {
            BF16 => Some(Self::BF16),
            codes::BF16 => None,
            code => Self::of_code(code),
        }
    }

    /// Returns the name in MLIR.
    pub(crate) fn mlir(self) -> &'static str {
        self.entry().4
    }

    fn entry(self) -> &'static (Self, u32, DType, &'static str, &'static str) {
        &Self::ALL[self as usize]
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().3)
    }
}

/// A Rust type of array elements. Booleans are bytes, because not every byte is a valid `bool`.
///
/// # Safety
/// Every bit pattern must be a valid value of the type, and the type must have the size of `TYPE`.
pub unsafe trait Element: Copy + 'static {
    /// The element type.
    const TYPE: ElementType;

    /// Casts bytes to values; `None` if alignment or length do not match.
    fn of(bytes: &[u8]) -> Option<&[Self]> {
        // SAFETY: by the contract of the trait, every bit pattern is a valid value.
        let (before, values, after) = unsafe { bytes.align_to() };
        (before.is_empty() && after.is_empty()).then_some(values)
    }

    /// Like [`of`](Self::of), for writing.
    fn of_mut(bytes: &mut [u8]) -> Option<&mut [Self]> {
        // SAFETY: by the contract of the trait, every bit pattern is a valid value; values may be written as any bytes.
        let (before, values, after) = unsafe { bytes.align_to_mut() };
        (before.is_empty() && after.is_empty()).then_some(values)
    }
}

macro_rules! elements {
    ($($type:ty: $name:ident),*) => {$(
        // SAFETY: every bit pattern is a valid number, and the sizes of both types are equal.
        unsafe impl Element for $type {
            const TYPE: ElementType = ElementType::$name;
        }
    )*};
}

elements!(i8: I8, i16: I16, i32: I32, i64: I64, u8: U8, u16: U16, u32: U32, u64: U64, f32: F32, f64: F64);

/// Element type and sizes of the axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrayType {
    /// Element type.
    pub element: ElementType,
    /// Sizes of the axes.
    pub dims: Vec<usize>,
}

impl ArrayType {
    /// Creates an array type.
    pub fn new(element: ElementType, dims: impl Into<Vec<usize>>) -> Self {
        Self { element, dims: dims.into() }
    }

    /// Returns the number of bytes; `None` if it overflows.
    pub fn bytes(&self) -> Option<usize> {
        self.dims.iter().try_fold(self.element.size(), |bytes, dim| bytes.checked_mul(*dim))
    }
}

impl fmt::Display for ArrayType {
    /// Formats like a jaxpr: `f32[2,3]`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.dims.iter().map(usize::to_string).collect();
        write!(f, "{}[{}]", self.element, dims.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_in_order() {
        for (i, (kind, code, ..)) in ElementType::ALL.iter().enumerate() {
            assert_eq!((*kind as usize, ElementType::of_code(*code)), (i, Some(*kind)));
            assert_eq!(ElementType::of_dtype(kind.dtype()), Some(*kind));
        }
        assert_eq!(ArrayType::new(ElementType::BF16, [2, 3]).to_string(), "bf16[2,3]");
        assert_eq!(ArrayType::new(ElementType::F64, [usize::MAX]).bytes(), None);
    }
}
