//! Products of few rows with quantized matrices by AVX-512. 128 weights are multiplied at a time, and their scales are read in
//! the same pass.

mod formats;
mod panels;
mod rows;
mod tiles;

use std::arch::{
    is_x86_feature_detected,
    x86_64::{
        __m256, __m512, __m512i, _mm256_fmadd_ps, _mm256_setzero_ps, _mm512_add_ps, _mm512_reduce_add_ps,
        _mm512_setzero_ps, _mm512_zextps256_ps512,
    },
};

use super::{Quantization, QuantizedMatrix, add_bias, direct::TASK, rounded::RoundedRows};
use crate::{
    dispatch::CpuCapability,
    matmul::{Matrix, for_bands},
};
use formats::{Eight, Large, Pairs, Six};
use rows::{FloatRow, IntegerRow, Laid};

/// A block of zeros.
static ZEROS: [u8; 64] = [0; 64];
/// Number of lanes of a register.
const LANES: usize = 16;
/// Number of weights of a step: two halves of 16 lanes of four weights.
const STEP: usize = 8 * LANES;
/// Maximum number of rounded rows that are multiplied without unpacking the blocks.
const FEW_ROUNDED: usize = 8;

/// A block format, read in units of one or four blocks, which consist of whole steps.
///
/// A weight is `(code - SHIFT) * scale + offset`.
trait Wide {
    /// Number of bytes of a block.
    const BYTES: usize;
    /// Number of blocks of a unit.
    const BLOCKS: usize;
    /// Number of steps of a unit.
    const STEPS: usize;
    /// Subtracted from the codes.
    const SHIFT: i32;
    /// If true, codes are signed bytes.
    const SIGNED: bool = false;
    /// If false, there are no offsets.
    const OFFSETS: bool = false;
    /// Number of consecutive weights that share a scale.
    const GROUP: usize = 32;

    /// Returns the index in the unit of the first of the four weights of a lane. The weights of four lanes from a multiple of
    /// four on are consecutive.
    fn first(step: usize, half: usize, lane: usize) -> usize;

    /// Returns the place of the offset of the 32 weights from `32 * group` on.
    fn offset(group: usize) -> usize {
        group
    }

    /// Returns the codes of the halves of a step, a byte each.
    ///
    /// # Safety
    /// The CPU must have AVX-512, and each pointer must be that of a block.
    unsafe fn codes(unit: [*const u8; 4], step: usize) -> [__m512i; 2];

    /// Returns the scales of the lanes of each half of each step, and the offsets.
    ///
    /// # Safety
    /// As for [`codes`](Self::codes).
    unsafe fn scales(unit: [*const u8; 4]) -> ([[__m512; 2]; 2], __m256);
}

/// Calls a function with the format of a [`Quantization`] value as its type.
macro_rules! for_format {
    ($kind:expr, $function:ident($($arg:expr),*)) => {
        match $kind {
            Quantization::Q4_0 => $function::<Pairs<18, false, false>>($($arg),*),
            Quantization::Q4_1 => $function::<Pairs<20, false, true>>($($arg),*),
            Quantization::Q5_0 => $function::<Pairs<22, true, false>>($($arg),*),
            Quantization::Q5_1 => $function::<Pairs<24, true, true>>($($arg),*),
            Quantization::Q4K => $function::<Large<false>>($($arg),*),
            Quantization::Q5K => $function::<Large<true>>($($arg),*),
            Quantization::Q6K => $function::<Six>($($arg),*),
            Quantization::Q8_0 => $function::<Eight>($($arg),*),
        }
    };
}

/// Computes `c = a b^T + bias` for few rows of `a`. Returns false, and does nothing, if this CPU lacks AVX-512, or if a
/// value is infinite or NaN.
pub(super) fn product(a: Matrix<'_>, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) -> bool {
    if CpuCapability::get() < CpuCapability::Avx512 {
        return false;
    }
    for_format!(b.kind, product_for(a, b, bias, c))
}

fn product_for<W: Wide>(a: Matrix<'_>, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) -> bool {
    let rows: Vec<_> = (0..a.rows).map(|i| &a.data[i * a.stride..][..a.columns]).collect();
    if !rows.iter().all(|row| row.iter().all(|x| x.is_finite())) {
        return false;
    }
    // SAFETY: `product` checks that the CPU has AVX-512.
    let rows: Vec<_> = rows.into_iter().map(|row| unsafe { FloatRow::new::<W>(row) }).collect();
    // SAFETY: as above.
    unsafe { all_dots::<W, _>(&rows, b, bias, c) };
    true
}

/// Computes `c = a b^T + bias` for rounded rows. Returns false, and does nothing, if this CPU lacks AVX512-VNNI.
pub(super) fn int8_product(a: &RoundedRows, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) -> bool {
    if CpuCapability::get() < CpuCapability::Avx512 || !is_x86_feature_detected!("avx512vnni") {
        return false;
    }
    for_format!(b.kind, int8_product_for(a, b, bias, c));
    true
}

fn int8_product_for<W: Wide>(a: &RoundedRows, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    // SAFETY: `int8_product` checks that the CPU has AVX-512 with VNNI.
    unsafe {
        if a.count > FEW_ROUNDED && tiles::usable() {
            return tiles::product::<W>(a, b, bias, c);
        }
        if a.count > FEW_ROUNDED {
            return panels::product::<W>(a, b, bias, c);
        }
        let rows: Vec<_> = (0..a.count).map(|i| IntegerRow::new::<W>(a.row(i), b.columns)).collect();
        all_dots::<W, _>(&rows, b, bias, c);
    }
}

/// Computes the dot products of left-hand rows with all rows of `b`, plus the bias.
///
/// # Safety
/// The CPU must have the instructions of `X`.
unsafe fn all_dots<W: Wide, X: Laid>(rows: &[X], b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    for_bands(c, b.rows, (TASK / b.columns).max(1), |first, c| {
        for (rows, c) in rows.chunks(4).zip(c.chunks_mut(4)) {
            // SAFETY: the caller's promise.
            unsafe {
                match rows {
                    [i] => dots::<W, X, 1>(b, first, [i], c),
                    [i, j] => dots::<W, X, 2>(b, first, [i, j], c),
                    [i, j, k] => dots::<W, X, 3>(b, first, [i, j, k], c),
                    [i, j, k, l] => dots::<W, X, 4>(b, first, [i, j, k, l], c),
                    _ => unreachable!("{} rows", rows.len()),
                }
            }
        }
        add_bias(c, bias, first);
    });
}

/// Computes the dot products of left-hand rows with the rows of `b` from `first` on.
///
/// # Safety
/// The CPU must have the instructions of `X`.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn dots<W: Wide, X: Laid, const R: usize>(
    b: QuantizedMatrix<'_>,
    first: usize,
    rows: [&X; R],
    c: &mut [&mut [f32]],
) {
    let bytes = b.kind.bytes(b.columns);
    let units = bytes.div_ceil(W::BLOCKS * W::BYTES);
    for row in rows {
        row.check(units * W::STEPS, units);
    }
    for j in 0..c[0].len() {
        let blocks = &b.data[(first + j) * bytes..][..bytes];
        let (mut halves, mut totals) = ([[_mm512_setzero_ps(); 2]; R], [_mm256_setzero_ps(); R]);
        for i in 0..units {
            let unit = unit::<W>(blocks, i);
            // SAFETY: the caller guarantees the CPU's instructions. The pointers are those of blocks. The rows have values of `units`
            // units, as checked above.
            unsafe {
                let (scales, offsets) = W::scales(unit);
                for step in 0..W::STEPS {
                    let codes = W::codes(unit, step);
                    for half in 0..2 {
                        let (codes, scales) = (X::codes::<W>(codes[half]), scales[step][half]);
                        let place = 2 * (i * W::STEPS + step) + half;
                        for r in 0..R {
                            halves[r][half] = rows[r].add::<W>(place, codes, scales, halves[r][half]);
                        }
                    }
                }
                if W::OFFSETS {
                    for r in 0..R {
                        totals[r] = _mm256_fmadd_ps(offsets, rows[r].sums(i), totals[r]);
                    }
                }
            }
        }
        for r in 0..R {
            let total = _mm512_add_ps(halves[r][0], halves[r][1]);
            c[r][j] = _mm512_reduce_add_ps(_mm512_add_ps(total, _mm512_zextps256_ps512(totals[r])));
        }
    }
}

/// Returns the blocks of unit `i` of a row of blocks. Zeros are in place of each block that is missing.
#[inline(always)]
fn unit<W: Wide>(blocks: &[u8], i: usize) -> [*const u8; 4] {
    let rest = &blocks[i * W::BLOCKS * W::BYTES..];
    match rest.get(..W::BLOCKS * W::BYTES) {
        Some(unit) => std::array::from_fn(|k| unit[k % W::BLOCKS * W::BYTES..].as_ptr()),
        None => std::array::from_fn(|k| match rest.get(k * W::BYTES..) {
            Some(block) if !block.is_empty() => block.as_ptr(),
            _ => ZEROS.as_ptr(),
        }),
    }
}
