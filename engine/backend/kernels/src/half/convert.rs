//! Conversion of 16-bit floats to f32, which is exact.

use rayon::prelude::*;
use std::hint::black_box;

use crate::{
    dispatch::{TASK, vectorized},
    matmul::{Element, NR},
};

/// Format of a 16-bit float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HalfFormat {
    /// IEEE 754's binary16: 5 bits of exponent, 10 of fraction.
    F16,
    /// The upper half of an f32: 8 bits of exponent, 7 of fraction.
    Bf16,
}

/// Converts an f16 to f32 exactly, whether normal, subnormal, infinite or NaN.
#[inline(always)]
pub(crate) fn from_f16(bits: u16) -> f32 {
    /// 2^112, the ratio of the exponent biases. The product is also correct for subnormals.
    const SCALE: f32 = f32::from_bits((127 + 112) << 23);
    /// Exponent of infinity and NaN after the shift.
    const LARGEST: u32 = 0x1f << 23;
    // The arithmetic shift copies the sign, so that one shift moves both sign and magnitude.
    let moved = ((i32::from(bits as i16)) << 13) as u32 & 0x8fff_e000;
    let special = if moved & LARGEST == LARGEST { 0xff << 23 } else { 0 };
    f32::from_bits((f32::from_bits(moved) * SCALE).to_bits() | special)
}

/// [`HalfFormat::F16`].
pub(super) struct F16;

impl Element for F16 {
    type Bits = u16;

    #[inline(always)]
    fn number(bits: u16) -> f32 {
        from_f16(bits)
    }
}

/// [`HalfFormat::Bf16`].
pub(super) struct Bf16;

impl Element for Bf16 {
    type Bits = u16;

    #[inline(always)]
    fn number(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }
}

/// Converts 16-bit floats to f32 exactly.
///
/// # Panics
/// If the slices differ in length.
pub fn widen(format: HalfFormat, x: &[u16], out: &mut [f32]) {
    assert_eq!(x.len(), out.len());
    if x.len() <= TASK {
        return widen_part(format, x, out);
    }
    x.par_chunks(TASK).zip(out.par_chunks_mut(TASK)).for_each(|(x, out)| widen_part(format, x, out));
}

vectorized! {
    /// Like [`widen`], on this thread.
    fn widen_part<_FUSED>(format: HalfFormat, x: &[u16], out: &mut [f32]) {
        #[inline(always)]
        fn each<E: Element<Bits = u16>>(x: &[u16], out: &mut [f32]) {
            for (out, &x) in out.iter_mut().zip(x) {
                *out = E::number(x);
            }
        }
        match format {
            HalfFormat::F16 => each::<F16>(x, out),
            HalfFormat::Bf16 => each::<Bf16>(x, out),
        }
    }
}

vectorized! {
    /// Converts the first `width` elements of each row. The rest of a panel row becomes 0.
    fn widen_columns<_FUSED>(format: HalfFormat, x: &[u16], stride: usize, width: usize, panel: &mut [[f32; NR]]) {
        #[inline(always)]
        fn each<E: Element<Bits = u16>>(x: &[u16], stride: usize, width: usize, panel: &mut [[f32; NR]]) {
            for (k, out) in panel.iter_mut().enumerate() {
                let x = &x[k * stride..][..width];
                if let Ok(x) = <&[u16; NR]>::try_from(x) {
                    for j in 0..NR {
                        out[j] = E::number(x[j]);
                    }
                } else {
                    out[width..].fill(0.0);
                    for (out, &x) in out.iter_mut().zip(x) {
                        *out = E::number(x);
                    }
                }
            }
        }
        match format {
            HalfFormat::F16 => each::<F16>(x, stride, width, panel),
            HalfFormat::Bf16 => each::<Bf16>(x, stride, width, panel),
        }
    }
}

vectorized! {
    /// Like [`widen_columns`], for contiguous columns.
    fn widen_transposed<_FUSED>(format: HalfFormat, x: &[u16], stride: usize, width: usize, panel: &mut [[f32; NR]]) {
        #[inline(always)]
        fn each<E: Element<Bits = u16>>(x: &[u16], stride: usize, width: usize, panel: &mut [[f32; NR]]) {
            let n = panel.len();
            // The last column is repeated for missing ones, whose results are not used.
            let columns: [&[u16]; NR] = std::array::from_fn(|j| &x[j.min(width - 1) * stride..][..n]);
            let (pairs, rest) = panel.as_chunks_mut::<2>();
            for (k, pair) in pairs.iter_mut().enumerate() {
                // Hidden from the compiler, which would otherwise load eight elements of one column into a register.
                let k = black_box(k);
                let mut words = [0; NR];
                for j in 0..NR {
                    let [low, high] = columns[j].as_chunks::<2>().0[k];
                    words[j] = u32::from(low) | u32::from(high) << 16;
                }
                let mut next = [[0.0; NR]; 2];
                for j in 0..NR {
                    next[0][j] = E::number((words[j] & 0xffff) as u16);
                    next[1][j] = E::number((words[j] >> 16) as u16);
                }
                *pair = next;
            }
            for values in rest {
                for j in 0..NR {
                    values[j] = E::number(columns[j][n - 1]);
                }
            }
        }
        match format {
            HalfFormat::F16 => each::<F16>(x, stride, width, panel),
            HalfFormat::Bf16 => each::<Bf16>(x, stride, width, panel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: sign, exponent and fraction.
    fn f16(bits: u16) -> f64 {
        let sign = if bits >> 15 == 0 { 1.0 } else { -1.0 };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
        match (exponent, fraction == 0.0) {
            (0, _) => sign * fraction * 2f64.powi(-14),
            (31, true) => sign * f64::INFINITY,
            (31, false) => f64::NAN,
            _ => sign * (1.0 + fraction) * 2f64.powi(exponent - 15),
        }
    }

    #[test]
    fn every_number() {
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        let (mut from_f16, mut from_bf16) = (vec![0.0; bits.len()], vec![0.0; bits.len()]);
        widen(HalfFormat::F16, &bits, &mut from_f16);
        widen(HalfFormat::Bf16, &bits, &mut from_bf16);
        for &bits in &bits {
            let (found, expected) = (from_f16[usize::from(bits)], f16(bits));
            let same = f64::from(found) == expected && found.is_sign_negative() == expected.is_sign_negative();
            assert!(same || found.is_nan() && expected.is_nan(), "{bits:#x}: {found} {expected}");
            assert_eq!(from_bf16[usize::from(bits)].to_bits(), u32::from(bits) << 16);
        }
    }
}
