//! Conversion of 16-bit floats to f32, which is exact.

use rayon::prelude::*;
use std::hint::black_box;

use crate::{
    dispatch::{PIECE, TASK, vectorized},
    fresh::by_chunks,
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

/// A format as a type.
pub(crate) trait Half: Element<Bits = u16> {
    /// Rounds an f32 to the nearest number; of two that are equally near, to the even one.
    fn rounded(x: f32) -> u16;
}

/// [`HalfFormat::F16`].
pub(crate) struct F16;

impl Element for F16 {
    type Bits = u16;

    #[inline(always)]
    fn number(bits: u16) -> f32 {
        from_f16(bits)
    }
}

impl Half for F16 {
    /// Values of at least 65,520 become infinite.
    #[inline(always)]
    fn rounded(x: f32) -> u16 {
        /// The smallest normal f16.
        const NORMAL: u32 = 113 << 23;
        /// 65,536, above the largest f16.
        const ABOVE: u32 = 143 << 23;
        /// Its last place is that of a subnormal f16, so that an addition rounds to it.
        const SUBNORMALS: u32 = 126 << 23;
        let (sign, bits) = (x.to_bits() >> 16 & 0x8000, x.to_bits() & 0x7fff_ffff);
        // The exponent's bias changes from 127 to 15, and 13 places are rounded off.
        let normal = bits.wrapping_sub(112 << 23).wrapping_add(0xfff + (bits >> 13 & 1)) >> 13;
        let subnormal = (f32::from_bits(bits) + f32::from_bits(SUBNORMALS)).to_bits().wrapping_sub(SUBNORMALS);
        let special = if bits > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let magnitude = if bits >= ABOVE {
            special
        } else if bits < NORMAL {
            subnormal
        } else {
            normal
        };
        (magnitude | sign) as u16
    }
}

/// [`HalfFormat::Bf16`].
pub(crate) struct Bf16;

impl Element for Bf16 {
    type Bits = u16;

    #[inline(always)]
    fn number(bits: u16) -> f32 {
        f32::from_bits(u32::from(bits) << 16)
    }
}

impl Half for Bf16 {
    #[inline(always)]
    fn rounded(x: f32) -> u16 {
        let bits = x.to_bits();
        // Half of the last place, less one if that place is even: a tie is carried only from an odd number.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1));
        // The carry would turn some NaN into infinity.
        let kept = if bits & 0x7fff_ffff > 0x7f80_0000 { bits | 0x0040_0000 } else { rounded };
        (kept >> 16) as u16
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

/// Like [`widen`], on this thread.
pub(crate) fn widen_part(format: HalfFormat, x: &[u16], out: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if format == HalfFormat::F16 && crate::CpuCapability::get() >= crate::CpuCapability::Avx512 {
        // SAFETY: `get` returns this level only if the CPU has AVX-512F.
        return unsafe { widen_f16_avx512(x, out) };
    }
    widen_by_bits(format, x, out);
}

/// Uses the conversion instruction, one instead of six.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn widen_f16_avx512(x: &[u16], out: &mut [f32]) {
    use std::arch::x86_64::{_mm256_loadu_si256, _mm512_cvtph_ps, _mm512_storeu_ps};
    let ((x, x_rest), (out, out_rest)) = (x.as_chunks::<16>(), out.as_chunks_mut::<16>());
    for (x, out) in x.iter().zip(out) {
        // SAFETY: both arrays have 16 elements.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast()))) };
    }
    for (x, out) in x_rest.iter().zip(out_rest) {
        *out = from_f16(*x);
    }
}

vectorized! {
    /// Like [`widen_part`], with the instructions of integers.
    fn widen_by_bits<_FUSED>(format: HalfFormat, x: &[u16], out: &mut [f32]) {
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

/// Like [`widen`], on this thread, for rows of `size` elements, one at each multiple of `stride`.
pub(crate) fn widen_rows(format: HalfFormat, x: &[u16], stride: usize, size: usize, out: &mut [f32]) {
    if stride == size {
        return widen_part(format, &x[..out.len()], out);
    }
    for (i, out) in out.chunks_exact_mut(size).enumerate() {
        widen_part(format, &x[i * stride..][..size], out);
    }
}

/// Returns 16-bit floats as f32, exactly.
pub fn widened(format: HalfFormat, x: &[u16]) -> Vec<f32> {
    by_chunks(x.len(), PIECE, |i, out| widen_part(format, &x[i * PIECE..][..out.len()], out))
}

/// Like [`widened`], for rows of `len` elements that start at given places.
pub fn widened_rows(format: HalfFormat, x: &[u16], starts: &[usize], len: usize) -> Vec<f32> {
    by_chunks(starts.len() * len, len, |i, out| widen_part(format, &x[starts[i]..][..len], out))
}

/// Returns f32 values as 16-bit floats, each rounded to the nearest one; of two that are equally near, the even one.
pub fn narrowed(format: HalfFormat, x: &[f32]) -> Vec<u16> {
    by_chunks(x.len(), PIECE, |i, out| narrow_part(format, &x[i * PIECE..][..out.len()], out))
}

/// Rounds rows to 16-bit floats, multiplies each by `factors`, and rounds again.
///
/// # Panics
/// If `x` does not consist of rows of as many elements as there are factors.
pub fn narrowed_and_scaled(format: HalfFormat, x: &[f32], factors: &[f32]) -> Vec<u16> {
    let len = factors.len();
    assert!(x.len().is_multiple_of(len.max(1)), "{} elements are not rows of {len}", x.len());
    by_chunks(x.len(), len, |i, out| scale_part(format, &x[i * len..][..len], factors, out))
}

vectorized! {
    /// Like [`narrowed`], on this thread.
    fn narrow_part<_FUSED>(format: HalfFormat, x: &[f32], out: &mut [u16]) {
        match format {
            HalfFormat::F16 => out.iter_mut().zip(x).for_each(|(out, &x)| *out = F16::rounded(x)),
            HalfFormat::Bf16 => out.iter_mut().zip(x).for_each(|(out, &x)| *out = Bf16::rounded(x)),
        }
    }
}

vectorized! {
    /// Like [`narrowed_and_scaled`], for one row.
    fn scale_part<_FUSED>(format: HalfFormat, x: &[f32], factors: &[f32], out: &mut [u16]) {
        #[inline(always)]
        fn each<E: Half>(x: &[f32], factors: &[f32], out: &mut [u16]) {
            for ((out, &x), factor) in out.iter_mut().zip(x).zip(factors) {
                *out = E::rounded(E::number(E::rounded(x)) * factor);
            }
        }
        match format {
            HalfFormat::F16 => each::<F16>(x, factors, out),
            HalfFormat::Bf16 => each::<Bf16>(x, factors, out),
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
    fn rows_in_any_order() {
        let x: Vec<u16> = (0..1000).collect();
        let starts = [990, 0, 17, 17];
        let expected: Vec<u16> = starts.iter().flat_map(|&start| x[start..start + 10].iter().copied()).collect();
        let found = widened_rows(HalfFormat::Bf16, &x, &starts, 10);
        assert_eq!(found, widened(HalfFormat::Bf16, &expected));
        assert!(
            widened_rows(HalfFormat::F16, &x, &[], 10).is_empty()
                && widened_rows(HalfFormat::F16, &x, &[3], 0).is_empty()
        );
    }

    #[test]
    fn rows_are_rounded_twice() {
        let x = [1.003_f32, -2.0, 3.3, 0.7];
        let factors = [1.007_f32, 3.0];
        for format in [HalfFormat::F16, HalfFormat::Bf16] {
            let rounded = |x: &[f32]| widened(format, &narrowed(format, x));
            let products: Vec<f32> = rounded(&x).iter().zip(factors.iter().cycle()).map(|(x, f)| x * f).collect();
            assert_eq!(widened(format, &narrowed_and_scaled(format, &x, &factors)), rounded(&products));
        }
        assert!(narrowed_and_scaled(HalfFormat::F16, &[], &[]).is_empty());
    }

    /// All finite numbers of a format, and the bits of each, in order.
    fn numbers(format: HalfFormat) -> Vec<(f64, u16)> {
        let bits: Vec<u16> = (0..0x7fff).collect();
        let numbers = widened(format, &bits).into_iter().map(f64::from).zip(bits);
        numbers.filter(|(number, _)| number.is_finite()).collect()
    }

    #[test]
    fn the_nearest_number() {
        for (format, first_infinite) in [(HalfFormat::F16, 65_520.0), (HalfFormat::Bf16, f64::from(f32::MAX))] {
            let numbers = numbers(format);
            let mut cases = Vec::new();
            for pair in numbers.windows(2) {
                let [(low, low_bits), (high, high_bits)] = [pair[0], pair[1]];
                let (middle, even) =
                    (f64::midpoint(low, high) as f32, if low_bits % 2 == 0 { low_bits } else { high_bits });
                cases.extend([(low as f32, low_bits), (middle, even)]);
                if middle > 0.0 {
                    cases.extend([(middle.next_down(), low_bits), (middle.next_up(), high_bits)]);
                }
            }
            let infinity = *[0x7c00, 0x7f80].get(usize::from(format == HalfFormat::Bf16)).unwrap();
            cases.extend([(first_infinite as f32, infinity), (f32::INFINITY, infinity)]);
            let x: Vec<f32> = cases.iter().flat_map(|(x, _)| [*x, -x]).collect();
            for ((x, found), (_, expected)) in x.iter().zip(narrowed(format, &x)).zip(cases.iter().flat_map(|c| [c, c]))
            {
                let sign = if x.is_sign_negative() { 0x8000 } else { 0 };
                assert_eq!(found, expected | sign, "{format:?} {x:e}");
            }
            for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7f80_0001), f32::from_bits(0x7fff_ffff)] {
                assert!(widened(format, &narrowed(format, &[nan]))[0].is_nan());
            }
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
