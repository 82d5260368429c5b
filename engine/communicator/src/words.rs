use bytemuck::Pod;
use std::ops::AddAssign;

/// Element of an array that is reduced.
pub trait Number: Pod + AddAssign + Send + Sync + 'static {
    /// Rounds to bf16 and back, where that is a smaller type.
    fn to_bf16(self) -> half::bf16;
    /// Reverses [`to_bf16`](Self::to_bf16), which may have rounded.
    fn of_bf16(value: half::bf16) -> Self;
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl Number for $number {
            fn to_bf16(self) -> half::bf16 {
                half::bf16::from_f64(self as f64)
            }

            fn of_bf16(value: half::bf16) -> Self {
                value.to_f64() as $number
            }
        })*
    };
}
numbers!(f64, i64, u64);

impl Number for f32 {
    fn to_bf16(self) -> half::bf16 {
        half::bf16::from_f32(self)
    }

    fn of_bf16(value: half::bf16) -> Self {
        value.to_f32()
    }
}

/// Bytes that were received, aligned for any [`Number`].
#[derive(Debug, Default)]
pub struct Words {
    words: Vec<u64>,
    bytes: usize,
}

impl Words {
    /// So many bytes, all 0.
    pub fn zeros(bytes: usize) -> Self {
        Self { words: vec![0; bytes.div_ceil(8)], bytes }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    /// The bytes, to be filled.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    /// The elements, where there is a whole number of them.
    pub(crate) fn elements<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }
}
