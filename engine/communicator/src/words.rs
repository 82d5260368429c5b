use bytemuck::Pod;
use std::ops::AddAssign;

/// An element of an array in a reduction.
pub trait Number: Pod + AddAssign + Send + Sync + 'static {
    /// Rounds to bf16.
    fn to_bf16(self) -> half::bf16;
    /// Converts back from bf16.
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

/// Received bytes, aligned for any [`Number`].
#[derive(Debug, Default)]
pub struct Words {
    words: Vec<u64>,
    bytes: usize,
}

impl Words {
    /// Creates `bytes` zero bytes.
    pub fn zeros(bytes: usize) -> Self {
        Self { words: vec![0; bytes.div_ceil(8)], bytes }
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.bytes]
    }

    /// Returns the bytes for writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.bytes]
    }

    /// Returns the elements, if the bytes are a whole number of them.
    pub(crate) fn elements<T: Pod>(&self) -> &[T] {
        bytemuck::cast_slice(self.bytes())
    }
}
