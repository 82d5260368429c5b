//! Dequantization.

use rayon::prelude::*;

use super::{
    Quantization,
    for_kind::for_kind,
    format::{CHUNK, Codes, Factors, Format, STRIP, codes, parts},
};
use crate::dispatch::{TASK, vectorized};

/// Dequantizes blocks, with the same roundings as GGML's functions.
///
/// # Panics
/// If `blocks` does not consist of the blocks of `out.len()` weights.
pub fn dequantize(kind: Quantization, blocks: &[u8], out: &mut [f32]) {
    let whole = out.len().is_multiple_of(kind.block_len()) && blocks.len() == kind.bytes(out.len());
    assert!(whole, "{} bytes of {kind} for {} weights", blocks.len(), out.len());
    if out.len() <= TASK {
        return unpack(kind, blocks, out);
    }
    blocks
        .par_chunks(kind.bytes(TASK))
        .zip(out.par_chunks_mut(TASK))
        .for_each(|(blocks, out)| unpack(kind, blocks, out));
}

vectorized! {
    /// Like [`dequantize`], on this thread.
    fn unpack<_FUSED>(kind: Quantization, blocks: &[u8], out: &mut [f32]) {
        for_kind!(kind, unpack_for[](blocks, out));
    }
}

#[inline(always)]
fn unpack_for<F: Format>(blocks: &[u8], out: &mut [f32]) {
    let mut factors = Factors::new();
    let bytes = CHUNK / STRIP / F::STRIPS * size_of::<F::Unit>();
    for (blocks, out) in blocks.chunks(bytes).zip(out.chunks_mut(CHUNK)) {
        let (units, last) = F::units(blocks);
        let count = units.len() + usize::from(last.is_some());
        for i in 0..count {
            F::note(units.get(i).or(last.as_ref()).expect("as many"), i, &mut factors);
        }
        F::finish(count, &mut factors);
        for (i, out) in out.chunks_mut(F::STRIPS * STRIP).enumerate() {
            let unit = units.get(i).or(last.as_ref()).expect("as many");
            for strip in 0..F::STRIPS {
                let codes = codes::<F>(unit, strip);
                for at in parts(strip) {
                    // A padded unit may lack whole blocks, and thus whole parts.
                    let first = F::first(at).min(out.len());
                    let Some(out) = out[first..].first_chunk_mut::<16>() else { continue };
                    let which = i * F::SCALES + F::scale(at);
                    let offset = if F::OFFSETS { factors.offsets[which] } else { 0.0 };
                    *out = part::<F>(&codes[at.half], 4 * at.part, factors.scales[which], offset);
                }
            }
        }
    }
}

/// Returns the weights of the four lanes of a part.
#[inline(always)]
fn part<F: Format>(codes: &Codes, first: usize, scale: f32, offset: f32) -> [f32; 16] {
    let mut weights = [0.0; 16];
    for i in 0..16 {
        weights[i] = weight::<F>(codes[first + i / 4], i % 4, scale, offset);
    }
    weights
}

/// Returns the weight of a byte of a lane.
#[inline(always)]
pub(super) fn weight<F: Format>(code: u32, byte: usize, scale: f32, offset: f32) -> f32 {
    let byte = code >> (8 * byte);
    let code = if F::SIGNED { f32::from(byte as i8) } else { (byte & 0xff) as i32 as f32 };
    let value = (code - F::SHIFT) * scale;
    if F::OFFSETS { value + offset } else { value }
}
