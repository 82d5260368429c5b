use burn::tensor::{BoolStore, DType};
use std::fmt;

use crate::sys::buffer_type as codes;

/// Type of the elements of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // The names say it.
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
    const ALL: [(Self, u32, usize, &'static str); 13] = [
        (Self::Bool, codes::PRED, 1, "pred"),
        (Self::I8, codes::S8, 1, "i8"),
        (Self::I16, codes::S16, 2, "i16"),
        (Self::I32, codes::S32, 4, "i32"),
        (Self::I64, codes::S64, 8, "i64"),
        (Self::U8, codes::U8, 1, "u8"),
        (Self::U16, codes::U16, 2, "u16"),
        (Self::U32, codes::U32, 4, "u32"),
        (Self::U64, codes::U64, 8, "u64"),
        (Self::F16, codes::F16, 2, "f16"),
        (Self::BF16, codes::BF16, 2, "bf16"),
        (Self::F32, codes::F32, 4, "f32"),
        (Self::F64, codes::F64, 8, "f64"),
    ];

    /// Bytes of an element.
    pub fn size(self) -> usize {
        self.entry().2
    }

    /// The type of elements of grove's arrays.
    pub fn dtype(self) -> DType {
        match self {
            Self::Bool => DType::Bool(BoolStore::Native),
            Self::I8 => DType::I8,
            Self::I16 => DType::I16,
            Self::I32 => DType::I32,
            Self::I64 => DType::I64,
            Self::U8 => DType::U8,
            Self::U16 => DType::U16,
            Self::U32 => DType::U32,
            Self::U64 => DType::U64,
            Self::F16 => DType::F16,
            Self::BF16 => DType::BF16,
            Self::F32 => DType::F32,
            Self::F64 => DType::F64,
        }
    }

    /// The type of a type of grove's arrays; `None` for quantized ones.
    pub fn of_dtype(dtype: DType) -> Option<Self> {
        match dtype {
            DType::Bool(_) => Some(Self::Bool),
            DType::Flex32 => Some(Self::F32),
            dtype => Self::ALL.iter().map(|entry| entry.0).find(|element| element.dtype() == dtype),
        }
    }

    /// True for floating-point numbers.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::BF16 | Self::F32 | Self::F64)
    }

    /// True for integers with a sign.
    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    pub(crate) fn code(self) -> u32 {
        self.entry().1
    }

    /// The type of a code; `None` if grove has no arrays of it.
    pub(crate) fn of_code(code: u32) -> Option<Self> {
        Self::ALL.iter().find(|entry| entry.1 == code).map(|entry| entry.0)
    }

    /// The type of a code of XLA's `PrimitiveType`, which differs from the API's in that of bf16 alone.
    pub(crate) fn of_primitive(code: u32) -> Option<Self> {
        const BF16: u32 = 16;
        match code {
            BF16 => Some(Self::BF16),
            codes::BF16 => None,
            code => Self::of_code(code),
        }
    }

    fn entry(self) -> &'static (Self, u32, usize, &'static str) {
        &Self::ALL[self as usize]
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.entry().3)
    }
}

/// A type of Rust that elements of arrays have. Truth values are bytes: not all bytes are a `bool`.
///
/// # Safety
/// All bits must be a value of the type, which must have the size of `TYPE`.
pub unsafe trait Element: Copy + 'static {
    /// The elements' type.
    const TYPE: ElementType;

    /// Bytes as values; `None` if they do not lie as values do.
    fn of(bytes: &[u8]) -> Option<&[Self]> {
        // SAFETY: by the contract of the trait, all bits are values.
        let (before, values, after) = unsafe { bytes.align_to() };
        (before.is_empty() && after.is_empty()).then_some(values)
    }

    /// As [`of`](Self::of), to be written.
    fn of_mut(bytes: &mut [u8]) -> Option<&mut [Self]> {
        // SAFETY: by the contract of the trait, all bits are values; all bytes are bytes.
        let (before, values, after) = unsafe { bytes.align_to_mut() };
        (before.is_empty() && after.is_empty()).then_some(values)
    }
}

macro_rules! elements {
    ($($type:ty: $name:ident),*) => {$(
        // SAFETY: all bits are a number, of the size that the name says.
        unsafe impl Element for $type {
            const TYPE: ElementType = ElementType::$name;
        }
    )*};
}

elements!(i8: I8, i16: I16, i32: I32, i64: I64, u8: U8, u16: U16, u32: U32, u64: U64, f32: F32, f64: F64);

/// Type of the elements and sizes of the axes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArrayType {
    /// Type of the elements.
    pub element: ElementType,
    /// Sizes of the axes.
    pub dims: Vec<usize>,
}

impl ArrayType {
    /// An array type.
    pub fn new(element: ElementType, dims: impl Into<Vec<usize>>) -> Self {
        Self { element, dims: dims.into() }
    }

    /// Number of bytes; `None` if it is more than memory has addresses.
    pub fn bytes(&self) -> Option<usize> {
        self.dims.iter().try_fold(self.element.size(), |bytes, dim| bytes.checked_mul(*dim))
    }
}

impl fmt::Display for ArrayType {
    /// As a jaxpr has it: `f32[2,3]`.
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
