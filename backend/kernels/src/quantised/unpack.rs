//! Blocks to numbers.

use rayon::prelude::*;

use super::{Quantisation, QuantisedMatrix};
use crate::{
    dispatch::{TASK, vectorized},
    half::from_f16,
    matmul::{Layout, Source, WIDTH, pack},
};

/// The numbers that blocks stand for.
///
/// # Panics
/// If the sizes do not fit each other.
pub fn dequantise(kind: Quantisation, blocks: &[u8], out: &mut [f32]) {
    assert!(out.len().is_multiple_of(kind.block_len()) && blocks.len() == kind.bytes(out.len()));
    let part = TASK / 256 * 256;
    let bytes = kind.bytes(part);
    out.par_chunks_mut(part).zip(blocks.par_chunks(bytes)).for_each(|(out, blocks)| unpack(kind, blocks, out));
}

impl Source for QuantisedMatrix<'_> {
    fn pack(&self, row: usize, column: usize, panel: &mut [[f32; WIDTH]], scratch: &mut Vec<f32>) {
        let (depth, width) = (panel.len(), WIDTH.min(self.rows - column));
        scratch.resize(WIDTH * depth, 0.0);
        for (j, values) in scratch.chunks_exact_mut(depth).take(width).enumerate() {
            unpack(self.kind, self.part(column + j, row, depth), values);
        }
        pack(scratch, Layout { stride: depth, transposed: true }, 0, 0, width, panel);
    }
}

/// The f16 at the beginning of some bytes.
#[inline(always)]
fn scale(bytes: &[u8]) -> f32 {
    from_f16(u16::from_le_bytes([bytes[0], bytes[1]]))
}

/// Weights of 4 bits, the second half of them in the upper ones; a fifth bit of each in `fifths`.
#[inline(always)]
fn nibbles<const FIFTHS: bool>(codes: &[u8], fifths: &[u8], scale: f32, offset: f32, out: &mut [f32]) {
    let bits = if FIFTHS { u32::from_le_bytes([fifths[0], fifths[1], fifths[2], fifths[3]]) } else { 0 };
    let (codes, (low, high)) = (&codes[..16], out[..32].split_at_mut(16));
    for j in 0..16 {
        let mut of = [u32::from(codes[j] & 15), u32::from(codes[j] >> 4)];
        if FIFTHS {
            of[0] |= (bits >> j & 1) << 4;
            of[1] |= (bits >> (j + 16) & 1) << 4;
        }
        low[j] = scale * of[0] as f32 + offset;
        high[j] = scale * of[1] as f32 + offset;
    }
}

/// Scale and minimum of the 32 weights number `i`, each of 6 bits, of 12 bytes.
#[inline(always)]
fn scale_and_minimum(packed: &[u8], i: usize) -> [f32; 2] {
    let packed = &packed[..12];
    let of = match i {
        0..4 => [packed[i] & 63, packed[i + 4] & 63],
        _ => [packed[i + 4] & 15 | packed[i - 4] >> 6 << 4, packed[i + 4] >> 4 | packed[i] >> 6 << 4],
    };
    [f32::from(of[0]), f32::from(of[1])]
}

/// 256 weights of 4 bits, or with fifth bits of 5, whose scales and minima are quantised themselves.
#[inline(always)]
fn large<const FIFTHS: bool>(block: &[u8], codes: &[u8], fifths: &[u8], out: &mut [f32]) {
    let (d, least) = (scale(block), scale(&block[2..]));
    for (pair, out) in out[..256].chunks_exact_mut(64).enumerate() {
        let codes = &codes[32 * pair..][..32];
        let (low, high) = out.split_at_mut(32);
        for (half, out) in [low, high].into_iter().enumerate() {
            let i = 2 * pair + half;
            let [factor, minimum] = scale_and_minimum(&block[4..], i);
            let (factor, minimum) = (d * factor, least * minimum);
            for j in 0..32 {
                let mut code = codes[j] >> (4 * half) & 15;
                if FIFTHS {
                    code |= (fifths[j] >> i & 1) << 4;
                }
                out[j] = factor * f32::from(code) - minimum;
            }
        }
    }
}

/// 256 weights of 6 bits, of which 16 share a scale of 8 bits.
#[inline(always)]
fn six_bits(block: &[u8], out: &mut [f32]) {
    let d = scale(&block[208..]);
    for (n, out) in out[..256].chunks_exact_mut(128).enumerate() {
        let (low, high) = (&block[64 * n..][..64], &block[128 + 32 * n..][..32]);
        for (quarter, out) in out.chunks_exact_mut(32).enumerate() {
            let low = &low[32 * (quarter % 2)..][..32];
            for j in 0..32 {
                let factor = d * f32::from(block[192 + 8 * n + 2 * quarter + j / 16] as i8);
                let code = low[j] >> (4 * (quarter / 2)) & 15 | (high[j] >> (2 * quarter) & 3) << 4;
                out[j] = factor * (f32::from(code) - 32.0);
            }
        }
    }
}

vectorized! {
    /// As [`dequantise`], on this thread.
    fn unpack<_FUSED>(kind: Quantisation, blocks: &[u8], out: &mut [f32]) {
        let len = kind.block_len();
        for (block, out) in blocks.chunks_exact(kind.block_bytes()).zip(out.chunks_exact_mut(len)) {
            match kind {
                Quantisation::Q4_0 => nibbles::<false>(&block[2..], &[], scale(block), -8.0 * scale(block), out),
                Quantisation::Q4_1 => nibbles::<false>(&block[4..], &[], scale(block), scale(&block[2..]), out),
                Quantisation::Q5_0 => {
                    nibbles::<true>(&block[6..], &block[2..], scale(block), -16.0 * scale(block), out);
                }
                Quantisation::Q5_1 => {
                    nibbles::<true>(&block[8..], &block[4..], scale(block), scale(&block[2..]), out);
                }
                Quantisation::Q8_0 => {
                    let (scale, codes) = (scale(block), &block[2..][..32]);
                    for j in 0..32 {
                        out[j] = scale * f32::from(codes[j] as i8);
                    }
                }
                Quantisation::Q4K => large::<false>(block, &block[16..], &[], out),
                Quantisation::Q5K => large::<true>(block, &block[48..], &block[16..][..32], out),
                Quantisation::Q6K => six_bits(block, out),
            }
        }
    }
}
