//! Products of few rows with quantized matrices by AVX-512. 128 weights are multiplied at a time, and their scales are read in
//! the same pass.
//!
//! As in [`direct`](super::direct), a byte of each lane is converted to a float where it is, and the left-hand row, laid out
//! once in the order of the codes, compensates for its position.

use std::{
    arch::x86_64::{
        __m128i, __m256, __m512, __m512i, _mm_cvtsi64_si128, _mm_loadu_si128, _mm_set_epi32, _mm256_cvtepi32_ps,
        _mm256_cvtepu8_epi32, _mm256_fmadd_ps, _mm256_loadu_si256, _mm256_mul_ps, _mm256_permutevar8x32_ps,
        _mm256_set1_epi32, _mm256_setzero_ps, _mm256_sub_ps, _mm256_zextsi128_si256, _mm512_add_ps, _mm512_and_si512,
        _mm512_broadcast_i64x4, _mm512_castps256_ps512, _mm512_castps512_ps256, _mm512_castsi128_si512,
        _mm512_castsi256_si512, _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_fmadd_ps,
        _mm512_i32gather_ps, _mm512_inserti32x4, _mm512_inserti64x4, _mm512_loadu_si512, _mm512_mask_add_epi8,
        _mm512_mul_ps, _mm512_or_si512, _mm512_permutexvar_ps, _mm512_reduce_add_ps, _mm512_set_epi32,
        _mm512_set1_epi8, _mm512_set1_epi32, _mm512_set1_ps, _mm512_setzero_ps, _mm512_slli_epi32, _mm512_sllv_epi32,
        _mm512_srli_epi32, _mm512_srlv_epi32, _mm512_test_epi8_mask, _mm512_zextps256_ps512,
    },
    mem::transmute,
};

use super::{Quantization, QuantizedMatrix};
use crate::{
    dispatch::CpuCapability,
    math::sum,
    matmul::{Matrix, for_bands},
};

/// Number of weights per task: some microseconds.
const TASK: usize = 1 << 16;
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

    /// Returns a row's sums that the offsets of a unit are multiplied by, given the sum of each 32 values.
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

/// Blocks of 32 weights, each half of which is a half of the code bytes: with a fifth bit or none, with offsets or none.
struct Pairs<const BYTES: usize, const FIVE: bool, const OFFSETS: bool>;

impl<const BYTES: usize, const FIVE: bool, const OFFSETS: bool> Wide for Pairs<BYTES, FIVE, OFFSETS> {
    const BYTES: usize = BYTES;
    const BLOCKS: usize = 4;
    const STEPS: usize = 1;
    const SHIFT: f32 = if OFFSETS {
        0.0
    } else if FIVE {
        16.0
    } else {
        8.0
    };
    const OFFSETS: bool = OFFSETS;

    fn first(_: usize, half: usize, lane: usize) -> usize {
        32 * (lane / 4) + 16 * half + 4 * (lane % 4)
    }

    fn sums([a, b, c, d, ..]: [f32; 8]) -> [f32; 8] {
        [0.0, a, 0.0, b, 0.0, c, 0.0, d]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn codes(unit: [*const u8; 4], _: usize) -> [__m512i; 2] {
        // SAFETY: the last 16 bytes of a block are the codes.
        let [a, b, c, d] = unit.map(|block| unsafe { _mm_loadu_si128(block.add(BYTES - 16).cast()) });
        let bytes = _mm512_castsi128_si512(a);
        let bytes = _mm512_inserti32x4::<1>(bytes, b);
        let bytes = _mm512_inserti32x4::<2>(bytes, c);
        let [low, high] = nibbles(_mm512_inserti32x4::<3>(bytes, d));
        if !FIVE {
            return [low, high];
        }
        let (mut low_bits, mut high_bits) = (0, 0);
        for (i, block) in unit.into_iter().enumerate() {
            // SAFETY: the 4 bytes before the codes are the fifth bits.
            let bits = u64::from(unsafe { block.add(BYTES - 20).cast::<u32>().read_unaligned() });
            low_bits |= (bits & 0xffff) << (16 * i);
            high_bits |= (bits >> 16) << (16 * i);
        }
        let sixteen = _mm512_set1_epi8(16);
        [_mm512_mask_add_epi8(low, low_bits, low, sixteen), _mm512_mask_add_epi8(high, high_bits, high, sixteen)]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn scales(unit: [*const u8; 4]) -> ([[__m512; 2]; 2], __m256) {
        // A block begins with a scale, and an offset if there are offsets.
        // SAFETY: a block has more than 4 bytes.
        let [a, b, c, d] = unit.map(|block| unsafe { block.cast::<i32>().read_unaligned() });
        let numbers = from_f16(_mm_set_epi32(d, c, b, a));
        let scales = _mm512_permutexvar_ps(by_four([0, 2, 4, 6]), numbers);
        ([[scales; 2]; 2], _mm512_castps512_ps256(numbers))
    }
}

/// Q8_0: blocks of 32 signed bytes with a scale.
struct Eight;

impl Wide for Eight {
    const BYTES: usize = 34;
    const BLOCKS: usize = 4;
    const STEPS: usize = 1;
    const SHIFT: f32 = 0.0;
    const SIGNED: bool = true;

    fn first(_: usize, half: usize, lane: usize) -> usize {
        64 * half + 4 * lane
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn codes(unit: [*const u8; 4], _: usize) -> [__m512i; 2] {
        // SAFETY: the last 32 bytes of a block are the codes.
        let [a, b, c, d] = unit.map(|block| unsafe { _mm256_loadu_si256(block.add(2).cast()) });
        [[a, b], [c, d]].map(|[a, b]| _mm512_inserti64x4::<1>(_mm512_castsi256_si512(a), b))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn scales(unit: [*const u8; 4]) -> ([[__m512; 2]; 2], __m256) {
        // SAFETY: a block has more than 4 bytes.
        let [a, b, c, d] = unit.map(|block| unsafe { block.cast::<i32>().read_unaligned() });
        let numbers = from_f16(_mm_set_epi32(d, c, b, a));
        let of = |a: i32| _mm512_permutexvar_ps(by_eight(a, a + 2), numbers);
        ([[of(0), of(4)]; 2], _mm256_setzero_ps())
    }
}

/// Blocks of 256 weights with a scale and a minimum per 32, with a fifth bit or none.
struct Large<const FIVE: bool>;

impl<const FIVE: bool> Wide for Large<FIVE> {
    const BYTES: usize = if FIVE { 176 } else { 144 };
    const BLOCKS: usize = 1;
    const STEPS: usize = 2;
    const SHIFT: f32 = 0.0;
    const OFFSETS: bool = true;

    fn first(step: usize, half: usize, lane: usize) -> usize {
        STEP * step + 64 * (lane / 8) + 32 * half + 4 * (lane % 8)
    }

    fn sums(sums: [f32; 8]) -> [f32; 8] {
        sums
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn codes([block, ..]: [*const u8; 4], step: usize) -> [__m512i; 2] {
        // SAFETY: the last 128 bytes of a block are the codes.
        let [low, high] = nibbles(unsafe { _mm512_loadu_si512(block.add(Self::BYTES - 128 + 64 * step).cast()) });
        if !FIVE {
            return [low, high];
        }
        // Bit i of byte j is that of weight 32 i + j.
        // SAFETY: the 32 bytes before the codes are the fifth bits.
        let bits = _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(block.add(16).cast()) });
        let (sixteen, first) = (_mm512_set1_epi8(16), 4 * step);
        let with_bit = |codes: __m512i, bit: usize| {
            let (a, b) = (0x0101_0101 << bit, 0x0101_0101 << (bit + 2));
            _mm512_mask_add_epi8(codes, _mm512_test_epi8_mask(bits, by_eight(a, b)), codes, sixteen)
        };
        [with_bit(low, first), with_bit(high, first + 1)]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn scales([block, ..]: [*const u8; 4]) -> ([[__m512; 2]; 2], __m256) {
        // SAFETY: a block begins with 16 bytes of scales.
        let [numbers, a, b, c] = [0, 4, 8, 12].map(|at| unsafe { block.add(at).cast::<u32>().read_unaligned() });
        // Six bits each. The upper bits of the last four are in the bytes of the first four.
        let scales = [a & 0x3f3f_3f3f, (c & 0x0f0f_0f0f) | ((a >> 2) & 0x3030_3030)];
        let minima = [b & 0x3f3f_3f3f, ((c >> 4) & 0x0f0f_0f0f) | ((b >> 2) & 0x3030_3030)];
        let [scales, minima] = [scales, minima].map(|[low, high]| {
            let bytes = _mm_cvtsi64_si128((u64::from(low) | u64::from(high) << 32) as i64);
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes))
        });
        let numbers = _mm512_castps512_ps256(from_f16(_mm_set_epi32(0, 0, 0, numbers as i32)));
        let d = _mm256_permutevar8x32_ps(numbers, _mm256_set1_epi32(0));
        let m = _mm256_permutevar8x32_ps(numbers, _mm256_set1_epi32(1));
        let offsets = _mm256_sub_ps(_mm256_setzero_ps(), _mm256_mul_ps(m, minima));
        let scales = _mm512_castps256_ps512(_mm256_mul_ps(d, scales));
        let of = |group: i32| _mm512_permutexvar_ps(by_eight(group, group + 2), scales);
        ([[of(0), of(1)], [of(4), of(5)]], offsets)
    }
}

/// Q6_K: blocks of 256 weights with a scale per 16.
struct Six;

impl Wide for Six {
    const BYTES: usize = 210;
    const BLOCKS: usize = 1;
    const STEPS: usize = 2;
    const SHIFT: f32 = 32.0;

    fn first(step: usize, half: usize, lane: usize) -> usize {
        STEP * step + 64 * half + 4 * lane
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn codes([block, ..]: [*const u8; 4], step: usize) -> [__m512i; 2] {
        // SAFETY: a block begins with 128 bytes of lower bits, and 64 bytes of upper bits follow.
        let (bytes, bits) = unsafe {
            let bits = _mm256_loadu_si256(block.add(128 + 32 * step).cast());
            (_mm512_loadu_si512(block.add(64 * step).cast()), _mm512_broadcast_i64x4(bits))
        };
        let (left, right) = (by_eight(4, 2), by_eight(0, 2));
        let ([low, high], mask) = (nibbles(bytes), _mm512_set1_epi8(0x30));
        [
            _mm512_or_si512(low, _mm512_and_si512(_mm512_sllv_epi32(bits, left), mask)),
            _mm512_or_si512(high, _mm512_and_si512(_mm512_srlv_epi32(bits, right), mask)),
        ]
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn scales([block, ..]: [*const u8; 4]) -> ([[__m512; 2]; 2], __m256) {
        // SAFETY: 16 bytes of scales and the scale of all are the block's last 18 bytes.
        let (scales, d) = unsafe {
            let d = i32::from(block.add(208).cast::<i16>().read_unaligned());
            (_mm_loadu_si128(block.add(192).cast()), from_f16(_mm_set_epi32(0, 0, 0, d)))
        };
        let d = _mm512_permutexvar_ps(_mm512_set1_epi32(0), d);
        let scales = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(scales)), d);
        let of = |group: i32| _mm512_permutexvar_ps(by_four([group, group + 1, group + 2, group + 3]), scales);
        ([[of(0), of(4)], [of(8), of(12)]], _mm256_setzero_ps())
    }
}

/// Returns a register whose first eight lanes are `a`, and whose last eight lanes are `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn by_eight(a: i32, b: i32) -> __m512i {
    _mm512_set_epi32(b, b, b, b, b, b, b, b, a, a, a, a, a, a, a, a)
}

/// Returns a register with four lanes of each value.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn by_four([a, b, c, d]: [i32; 4]) -> __m512i {
    _mm512_set_epi32(d, d, d, d, c, c, c, c, b, b, b, b, a, a, a, a)
}

/// Returns the lower and the upper four bits of each byte.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn nibbles(bytes: __m512i) -> [__m512i; 2] {
    let mask = _mm512_set1_epi8(0x0f);
    [_mm512_and_si512(bytes, mask), _mm512_and_si512(_mm512_srli_epi32::<4>(bytes), mask)]
}

/// Converts eight f16. The other lanes are zero.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn from_f16(bits: __m128i) -> __m512 {
    _mm512_cvtph_ps(_mm256_zextsi128_si256(bits))
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
    /// Factors that compensate for the position of each byte in its lane.
    const FACTORS: [f32; 4] = [1.0, 1.0 / 256.0, 1.0 / 65_536.0, 1.0 / 16_777_216.0];
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
