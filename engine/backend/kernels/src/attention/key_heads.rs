use std::ops::Range;

use super::{Heads, once::Ahead};
use crate::half::{HalfFormat, widen_rows};

/// Keys or values of all heads, as f32 or as 16-bit floats, which are converted when they are used.
#[derive(Clone, Copy)]
pub enum KeyHeads<'a> {
    /// 32-bit elements.
    F32(Heads<'a>),
    /// Bits of 16-bit elements.
    Half(HalfFormat, Heads<'a, u16>),
}

impl<'a> From<Heads<'a>> for KeyHeads<'a> {
    fn from(heads: Heads<'a>) -> Self {
        Self::F32(heads)
    }
}

impl<'a> KeyHeads<'a> {
    /// Returns the number of elements from one position to the next.
    pub(super) fn stride(&self) -> usize {
        match self {
            Self::F32(heads) => heads.stride(),
            Self::Half(_, heads) => heads.stride(),
        }
    }

    /// Returns the keys or values of a head.
    pub(super) fn head(&self, i: usize, head: usize) -> Keys<'a> {
        match self {
            Self::F32(heads) => Keys::F32 { data: heads.head(i, head), stride: heads.stride() },
            Self::Half(format, heads) => {
                Keys::Half { format: *format, data: heads.head(i, head), stride: heads.stride() }
            }
        }
    }
}

/// Keys or values of one head. A position begins at each multiple of `stride`.
#[derive(Clone, Copy)]
pub(super) enum Keys<'a> {
    F32 { data: &'a [f32], stride: usize },
    Half { format: HalfFormat, data: &'a [u16], stride: usize },
}

impl<'a> Keys<'a> {
    /// Returns some positions of `size` elements as f32, and the number of elements from one to the next. 16-bit elements are
    /// converted in `memory`.
    pub fn read<'b>(self, positions: Range<usize>, size: usize, memory: &'b mut Vec<f32>) -> (&'b [f32], usize)
    where
        'a: 'b,
    {
        match self {
            Self::F32 { data, stride } => (&data[positions.start * stride..], stride),
            Self::Half { format, data, stride } => {
                memory.resize(positions.len() * size, 0.0);
                widen_rows(format, &data[positions.start * stride..], stride, size, memory);
                (memory, size)
            }
        }
    }

    /// Returns the place of some positions of `size` elements in memory.
    pub fn rows(self, positions: Range<usize>, size: usize) -> Ahead {
        let place = |data: *const u8, stride: usize, bytes: usize| Ahead {
            base: data.wrapping_add(positions.start * stride * bytes),
            count: positions.len(),
            stride: stride * bytes,
            size: size * bytes,
        };
        match self {
            Self::F32 { data, stride } => place(data.as_ptr().cast(), stride, 4),
            Self::Half { data, stride, .. } => place(data.as_ptr().cast(), stride, 2),
        }
    }
}
