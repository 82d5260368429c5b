//! Products of few rows with quantized matrices by AVX-512. 128 weights are multiplied at a time, and their scales are read in
//! the same pass.
//!
//! As in [`direct`](super::direct), a byte of each lane is converted to a float where it is, and the left-hand row, laid out
//! once in the order of the codes, compensates for its position.

mod formats;

use std::{
    arch::x86_64::{
        __m256, __m512, __m512i, _mm256_fmadd_ps, _mm256_setzero_ps, _mm512_add_ps, _mm512_and_si512,
        _mm512_cvtepi32_ps, _mm512_fmadd_ps, _mm512_i32gather_ps, _mm512_mul_ps, _mm512_reduce_add_ps,
        _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_zextps256_ps512,
    },
    mem::transmute,
};

use super::{Quantization, QuantizedMatrix, direct::TASK, row::FACTORS};
use crate::{
    dispatch::CpuCapability,
    math::sum,
    matmul::{Matrix, for_bands},
};
use formats::{Eight, Large, Pairs, Six};

/// A block of zeros.
static ZEROS: [u8; 64] = [0; 64];
/// Number of lanes of a register.
const LANES: usize = 16;
/// Number of weights of a step: two halves of 16 lanes of four weights.
const STEP: usize = 8 * LANES;
/// A value per lane.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Lanes([f32; LANES]);

/// A left-hand row, laid out for a format.
pub(super) struct WideRow {
    /// For each step, half and byte of a lane, the values, multiplied by the factor that compensates for the byte's position.
    x: Vec<Lanes>,
    /// For each step and half, the initial values of the sums, which account for the shift of the codes.
    start: Vec<Lanes>,
    /// For each unit, the values that its offsets are multiplied by.
    sums: Vec<[f32; 8]>,
}

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
    const SHIFT: f32;
    /// If true, codes are signed bytes.
    const SIGNED: bool = false;
    /// If false, there are no offsets.
    const OFFSETS: bool = false;

    /// Returns the index in the unit of the first of the four weights of a lane.
    fn first(step: usize, half: usize, lane: usize) -> usize;

    /// Returns the sums of a left-hand row that the offsets of a unit are multiplied by, given the sum of each 32 values.
    fn sums(_: [f32; 8]) -> [f32; 8] {
        [0.0; 8]
    }

    /// Returns the codes of the halves of a step, a byte each.
    ///
    /// # Safety
    /// The CPU must have AVX-512, and each pointer must be that of a block.
    unsafe fn codes(unit: [*const u8; 4], step: usize) -> [__m512i; 2];

    /// Returns the scales of the lanes of each half of each step, and the factors of a row's sums.
    ///
    /// # Safety
    /// As for [`codes`](Self::codes).
    unsafe fn scales(unit: [*const u8; 4]) -> ([[__m512; 2]; 2], __m256);
}

/// Computes `c = a b^T + bias` for few rows of `a`. Returns false, and does nothing, if this CPU lacks AVX-512, or if a
/// value is infinite or NaN.
pub(super) fn product(a: Matrix<'_>, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) -> bool {
    if CpuCapability::get() < CpuCapability::Avx512 {
        return false;
    }
    match b.kind {
        Quantization::Q4_0 => product_for::<Pairs<18, false, false>>(a, b, bias, c),
        Quantization::Q4_1 => product_for::<Pairs<20, false, true>>(a, b, bias, c),
        Quantization::Q5_0 => product_for::<Pairs<22, true, false>>(a, b, bias, c),
        Quantization::Q5_1 => product_for::<Pairs<24, true, true>>(a, b, bias, c),
        Quantization::Q4K => product_for::<Large<false>>(a, b, bias, c),
        Quantization::Q5K => product_for::<Large<true>>(a, b, bias, c),
        Quantization::Q6K => product_for::<Six>(a, b, bias, c),
        Quantization::Q8_0 => product_for::<Eight>(a, b, bias, c),
    }
}

fn product_for<W: Wide>(a: Matrix<'_>, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) -> bool {
    let rows: Vec<_> = (0..a.rows).map(|i| &a.data[i * a.stride..][..a.columns]).collect();
    if !rows.iter().all(|row| row.iter().all(|x| x.is_finite())) {
        return false;
    }
    // SAFETY: `product` checks that the CPU has AVX-512.
    let rows: Vec<_> = rows.into_iter().map(|row| unsafe { lay_out::<W>(row) }).collect();
    for_bands(c, b.rows, (TASK / b.columns).max(1), |first, c| {
        for (rows, c) in rows.chunks(4).zip(c.chunks_mut(4)) {
            // SAFETY: as above.
            unsafe {
                match rows {
                    [i] => dots::<W, 1>(b, first, [i], c),
                    [i, j] => dots::<W, 2>(b, first, [i, j], c),
                    [i, j, k] => dots::<W, 3>(b, first, [i, j, k], c),
                    [i, j, k, l] => dots::<W, 4>(b, first, [i, j, k, l], c),
                    _ => unreachable!("{} rows", rows.len()),
                }
            }
        }
        if let Some(bias) = bias {
            for c in c {
                c.iter_mut().zip(&bias[first..]).for_each(|(c, bias)| *c += bias);
            }
        }
    });
    true
}

/// Lays out a left-hand row.
///
/// # Safety
/// The CPU must have AVX-512.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn lay_out<W: Wide>(row: &[f32]) -> WideRow {
    let units = row.len().div_ceil(W::STEPS * STEP);
    let mut laid = WideRow {
        x: Vec::with_capacity(units * W::STEPS * 8),
        start: Vec::with_capacity(units * W::STEPS * 2),
        sums: Vec::with_capacity(units),
    };
    // A unit may lack whole blocks.
    let mut unit = [0.0; 2 * STEP];
    for x in row.chunks(W::STEPS * STEP) {
        unit[..x.len()].copy_from_slice(x);
        unit[x.len()..].fill(0.0);
        let mut sums = [0.0; 8];
        for (total, x) in sums.iter_mut().zip(unit.as_chunks::<32>().0) {
            *total = sum(x, |x| x);
        }
        laid.sums.push(W::sums(sums));
        for step in 0..W::STEPS {
            for half in 0..2 {
                let places: [i32; LANES] = std::array::from_fn(|lane| W::first(step, half, lane) as i32);
                let mut total = _mm512_setzero_ps();
                for k in 0..4 {
                    // SAFETY: the caller guarantees AVX-512. Each place is that of four weights of the unit. The types have the
                    // same size.
                    unsafe {
                        let places = transmute::<[i32; LANES], __m512i>(places);
                        let values = _mm512_i32gather_ps::<4>(places, unit.as_ptr().add(k));
                        let factor = _mm512_set1_ps(FACTORS[if W::SIGNED { 3 } else { k }]);
                        laid.x.push(transmute::<__m512, Lanes>(_mm512_mul_ps(values, factor)));
                        total = _mm512_add_ps(total, values);
                    }
                }
                // SAFETY: the types have the same size.
                laid.start.push(unsafe { transmute::<__m512, Lanes>(_mm512_mul_ps(total, _mm512_set1_ps(-W::SHIFT))) });
            }
        }
    }
    laid
}

/// Computes the dot products of left-hand rows with the rows of `b` from `first` on.
///
/// # Safety
/// The CPU must have AVX-512.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn dots<W: Wide, const R: usize>(
    b: QuantizedMatrix<'_>,
    first: usize,
    rows: [&WideRow; R],
    c: &mut [&mut [f32]],
) {
    let bytes = b.kind.bytes(b.columns);
    let units = bytes.div_ceil(W::BLOCKS * W::BYTES);
    for row in rows {
        let lens = [row.x.len(), row.start.len(), row.sums.len()];
        assert_eq!(lens, [8 * W::STEPS, 2 * W::STEPS, 1].map(|each| units * each), "a row of another length");
    }
    for j in 0..c[0].len() {
        let blocks = &b.data[(first + j) * bytes..][..bytes];
        let (mut halves, mut totals) = ([[_mm512_setzero_ps(); 2]; R], [_mm256_setzero_ps(); R]);
        // No function, which would not always be inlined.
        macro_rules! add_unit {
            ($blocks:expr, $i:expr) => {{
                let (blocks, i) = ($blocks, $i);
                // SAFETY: the caller guarantees AVX-512. The pointers are those of blocks.
                let (scales, offsets) = unsafe { W::scales(blocks) };
                for step in 0..W::STEPS {
                    // SAFETY: as above.
                    let codes = unsafe { W::codes(blocks, step) };
                    for half in 0..2 {
                        let codes = floats::<W>(codes[half]);
                        for r in 0..R {
                            let place = 2 * (i * W::STEPS + step) + half;
                            // SAFETY: the row has values of `units` units, as asserted above, and `i` is less.
                            let (x, start) =
                                unsafe { (rows[r].x.as_ptr().add(4 * place), rows[r].start.get_unchecked(place)) };
                            let sums = if W::SHIFT == 0.0 { _mm512_setzero_ps() } else { zmm(start) };
                            let add = |sums: __m512, k: usize| {
                                // SAFETY: as above.
                                _mm512_fmadd_ps(codes[k], zmm(unsafe { &*x.add(k) }), sums)
                            };
                            let sums = add(add(add(add(sums, 0), 1), 2), 3);
                            halves[r][half] = _mm512_fmadd_ps(sums, scales[step][half], halves[r][half]);
                        }
                    }
                }
                if W::OFFSETS {
                    for r in 0..R {
                        // SAFETY: as above. The types have the same size.
                        let sums = unsafe { transmute::<[f32; 8], __m256>(*rows[r].sums.get_unchecked(i)) };
                        totals[r] = _mm256_fmadd_ps(offsets, sums, totals[r]);
                    }
                }
            }};
        }
        let whole = blocks.chunks_exact(W::BLOCKS * W::BYTES);
        let last = whole.remainder();
        for (i, unit) in whole.enumerate() {
            add_unit!(std::array::from_fn(|i| unit[i % W::BLOCKS * W::BYTES..].as_ptr()), i);
        }
        if !last.is_empty() {
            // Zeros in place of each block that is missing.
            let block = |i: usize| last.get(i * W::BYTES..).filter(|block| !block.is_empty()).unwrap_or(&ZEROS);
            add_unit!(std::array::from_fn(|i| block(i).as_ptr()), units - 1);
        }
        for r in 0..R {
            let total = _mm512_add_ps(halves[r][0], halves[r][1]);
            c[r][j] = _mm512_reduce_add_ps(_mm512_add_ps(total, _mm512_zextps256_ps512(totals[r])));
        }
    }
}

/// Converts each byte of the lanes: unsigned bytes where they are, signed ones as the uppermost bytes.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn floats<W: Wide>(codes: __m512i) -> [__m512; 4] {
    let mask = |k: u32| _mm512_set1_epi32(0xff << (8 * k));
    let bytes = if W::SIGNED {
        let [a, b, c] = [_mm512_slli_epi32::<24>(codes), _mm512_slli_epi32::<16>(codes), _mm512_slli_epi32::<8>(codes)];
        [a, b, c, codes].map(|codes| _mm512_and_si512(codes, mask(3)))
    } else {
        [0, 1, 2, 3].map(|k| _mm512_and_si512(codes, mask(k)))
    };
    bytes.map(|bytes| _mm512_cvtepi32_ps(bytes))
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn zmm(lanes: &Lanes) -> __m512 {
    // SAFETY: the types have the same size and alignment.
    unsafe { transmute::<[f32; LANES], __m512>(lanes.0) }
}
