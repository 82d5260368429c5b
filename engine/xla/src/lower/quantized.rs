//! Dequantization of matrices in GGML's formats, whose layouts are defined in `ggml-common.h`.

use grove_backend::ops::Quantization;

use super::{builder::Builder, value::Value};
use crate::{ArrayType, ElementType};

impl Builder {
    /// Returns the matrix of rows of blocks, in f32.
    pub(super) fn dequantized(&mut self, format: Quantization, blocks: &Value) -> Value {
        let (rows, bytes) = (blocks.dims()[0], blocks.dims()[1]);
        let each = bytes / format.block_bytes();
        let wide = self.convert(blocks, ElementType::I32);
        let bytes = self.reshape(&wide, &[rows * each, format.block_bytes()]);
        let weights = match format {
            Quantization::Q4_0 => self.small_blocks(&bytes, false, false),
            Quantization::Q4_1 => self.small_blocks(&bytes, true, false),
            Quantization::Q5_0 => self.small_blocks(&bytes, false, true),
            Quantization::Q5_1 => self.small_blocks(&bytes, true, true),
            Quantization::Q8_0 => {
                let codes = self.slice_axis(&bytes, 1, [2, 34]);
                let codes = self.signed(&codes);
                let scale = self.half(&bytes, 0);
                self.scaled(&codes, &scale)
            }
            Quantization::Q4K => self.large_blocks(&bytes, false),
            Quantization::Q5K => self.large_blocks(&bytes, true),
            Quantization::Q6K => self.blocks_of_six_bits(&bytes),
        };
        self.reshape(&weights, &[rows, each * format.block_len()])
    }

    /// Blocks of 32 weights: a scale, a minimum, the fifth bits of the codes, and pairs of the lower four bits.
    fn small_blocks(&mut self, bytes: &Value, has_minimum: bool, has_fifth: bool) -> Value {
        let (count, scale) = (bytes.dims()[0], self.half(bytes, 0));
        let minimum = has_minimum.then(|| self.half(bytes, 2));
        let first = if has_minimum { 4 } else { 2 };
        let fifth = has_fifth.then(|| {
            let bits = self.slice_axis(bytes, 1, [first, first + 4]);
            let bits = self.reshape(&bits, &[count, 4, 1]);
            let bits = self.fields(&bits, &[count, 4, 8], [2, 1], 1);
            self.reshape(&bits, &[count, 32])
        });
        let first = if has_fifth { first + 4 } else { first };
        let pairs = self.slice_axis(bytes, 1, [first, first + 16]);
        let halves = [self.field(&pairs, 0, 15), self.field(&pairs, 4, 15)];
        let codes = self.concatenate(&halves, 1);
        let codes = self.with_high_bits(codes, fifth, 16);
        match minimum {
            Some(minimum) => {
                let scaled = self.scaled(&codes, &scale);
                let minimum = self.broadcast_to(&minimum, scaled.dims());
                self.binary("add", &scaled, &minimum)
            }
            None => {
                let codes = self.shifted(&codes, if has_fifth { -16 } else { -8 });
                self.scaled(&codes, &scale)
            }
        }
    }

    /// Blocks of 256 weights in groups of 32, each with a six-bit scale and minimum.
    fn large_blocks(&mut self, bytes: &Value, has_fifth: bool) -> Value {
        let count = bytes.dims()[0];
        let (scale, minimum) = (self.half(bytes, 0), self.half(bytes, 2));
        let [a, b, c] = [4, 8, 12].map(|first| self.slice_axis(bytes, 1, [first, first + 4]));
        let [scales, minima] = [(&a, 0), (&b, 4)].map(|(first, shift)| {
            let (low, last) = (self.field(first, 0, 63), self.field(&c, shift, 15));
            let high = self.field(first, 6, 3);
            let last = self.with_high_bits(last, Some(high), 16);
            self.concatenate(&[low, last], 1)
        });
        let [scales, minima] = [(&scales, &scale), (&minima, &minimum)].map(|(parts, factor)| {
            let scaled = self.scaled(parts, factor);
            self.reshape(&scaled, &[count, 8, 1])
        });
        let fifth = has_fifth.then(|| {
            let bits = self.slice_axis(bytes, 1, [16, 48]);
            let bits = self.reshape(&bits, &[count, 1, 32]);
            self.fields(&bits, &[count, 8, 32], [1, 1], 1)
        });
        let first = if has_fifth { 48 } else { 16 };
        let pairs = self.slice_axis(bytes, 1, [first, first + 128]);
        let pairs = self.reshape(&pairs, &[count, 4, 1, 32]);
        let halves = [self.field(&pairs, 0, 15), self.field(&pairs, 4, 15)];
        let codes = self.concatenate(&halves, 2);
        let codes = self.reshape(&codes, &[count, 8, 32]);
        let codes = self.with_high_bits(codes, fifth, 16);
        let scaled = self.scaled(&codes, &scales);
        let minima = self.broadcast_to(&minima, scaled.dims());
        self.binary("subtract", &scaled, &minima)
    }

    /// Blocks of 256 six-bit weights in groups of 16, each with a scale.
    fn blocks_of_six_bits(&mut self, bytes: &Value) -> Value {
        let count = bytes.dims()[0];
        let [low, high] = [[0, 128], [128, 192]].map(|range| self.slice_axis(bytes, 1, range));
        let (low, high) = (self.reshape(&low, &[count, 2, 2, 32]), self.reshape(&high, &[count, 2, 1, 32]));
        let halves = [self.field(&low, 0, 15), self.field(&low, 4, 15)];
        let codes = self.concatenate(&halves, 2);
        let high = self.fields(&high, &[count, 2, 4, 32], [2, 2], 3);
        let codes = self.with_high_bits(codes, Some(high), 16);
        let codes = self.shifted(&codes, -32);
        let codes = self.reshape(&codes, &[count, 16, 16]);
        let scales = self.slice_axis(bytes, 1, [192, 208]);
        let (scales, scale) = (self.signed(&scales), self.half(bytes, 208));
        let scales = self.scaled(&scales, &scale);
        let scales = self.reshape(&scales, &[count, 16, 1]);
        self.scaled(&codes, &scales)
    }

    /// Returns the f16 at a byte of each block, in f32.
    fn half(&mut self, bytes: &Value, at: usize) -> Value {
        let [low, high] = [at, at + 1].map(|at| self.slice_axis(bytes, 1, [at, at + 1]));
        let bits = self.with_high_bits(low, Some(high), 256);
        let bits = self.convert(&bits, ElementType::U16);
        let number = self.bitcast(&bits, ElementType::F16);
        self.convert(&number, ElementType::F32)
    }

    /// Extracts a bit field of integers.
    fn field(&mut self, x: &Value, shift: usize, mask: usize) -> Value {
        let (shift, mask) = (self.full_like(x, shift), self.full_like(x, mask));
        let shifted = self.binary("shift_right_logical", x, &shift);
        self.binary("and", &shifted, &mask)
    }

    /// Extracts consecutive fields of `width` bits along an axis on which the integers are broadcast.
    fn fields(&mut self, x: &Value, dims: &[usize], [axis, width]: [usize; 2], mask: usize) -> Value {
        let x = self.broadcast_to(x, dims);
        let index = self.iota(ArrayType::new(ElementType::I32, dims), axis);
        let (width, mask) = (self.full_like(&index, width), self.full_like(&index, mask));
        let shift = self.binary("multiply", &index, &width);
        let shifted = self.binary("shift_right_logical", &x, &shift);
        self.binary("and", &shifted, &mask)
    }

    /// Adds high bits with the weight `unit` to integers.
    fn with_high_bits(&mut self, low: Value, high: Option<Value>, unit: usize) -> Value {
        let Some(high) = high else { return low };
        let unit = self.full_like(&high, unit);
        let high = self.binary("multiply", &high, &unit);
        self.binary("add", &low, &high)
    }

    /// Reinterprets bytes as integers from -128 to 127.
    fn signed(&mut self, x: &Value) -> Value {
        let sign = self.full_like(x, 128_usize);
        let flipped = self.binary("xor", x, &sign);
        self.shifted(&flipped, -128)
    }

    fn shifted(&mut self, x: &Value, by: i64) -> Value {
        let by = self.full_like(x, by);
        self.binary("add", x, &by)
    }

    /// Multiplies integers by scales, in f32.
    fn scaled(&mut self, codes: &Value, scale: &Value) -> Value {
        let codes = self.convert(codes, ElementType::F32);
        let scale = self.broadcast_to(scale, codes.dims());
        self.binary("multiply", &codes, &scale)
    }
}
