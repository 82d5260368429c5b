//! The formats, as the products read them. (ggml's `block_q4_0` to `block_q6_K`.)

use std::arch::x86_64::{
    __m128i, __m256, __m512, __m512i, _mm_cvtsi64_si128, _mm_loadu_si128, _mm_set_epi32, _mm256_cvtepi32_ps,
    _mm256_cvtepu8_epi32, _mm256_loadu_si256, _mm256_mul_ps, _mm256_permutevar8x32_ps, _mm256_set1_epi32,
    _mm256_setzero_ps, _mm256_sub_ps, _mm256_zextsi128_si256, _mm512_and_si512, _mm512_broadcast_i64x4,
    _mm512_castps256_ps512, _mm512_castps512_ps256, _mm512_castsi128_si512, _mm512_castsi256_si512,
    _mm512_cvtepi8_epi32, _mm512_cvtepi32_ps, _mm512_cvtph_ps, _mm512_inserti32x4, _mm512_inserti64x4,
    _mm512_loadu_si512, _mm512_mask_add_epi8, _mm512_mul_ps, _mm512_or_si512, _mm512_permutexvar_ps, _mm512_set_epi32,
    _mm512_set1_epi8, _mm512_set1_epi32, _mm512_sllv_epi32, _mm512_srli_epi32, _mm512_srlv_epi32,
    _mm512_test_epi8_mask,
};

use super::{STEP, Wide};
use crate::quantized::large::six_bits;

/// Q4_0, Q4_1, Q5_0 and Q5_1: blocks of 32 weights, with a fifth bit or none, with offsets or none. The lower halves of the code
/// bytes are the first 16 weights, the upper halves the others.
pub(super) struct Pairs<const BYTES: usize, const FIVE: bool, const OFFSETS: bool>;

impl<const BYTES: usize, const FIVE: bool, const OFFSETS: bool> Wide for Pairs<BYTES, FIVE, OFFSETS> {
    const BYTES: usize = BYTES;
    const BLOCKS: usize = 4;
    const STEPS: usize = 1;
    const SHIFT: i32 = if OFFSETS {
        0
    } else if FIVE {
        16
    } else {
        8
    };
    const OFFSETS: bool = OFFSETS;

    fn first(_: usize, half: usize, lane: usize) -> usize {
        32 * (lane / 4) + 16 * half + 4 * (lane % 4)
    }

    fn offset(group: usize) -> usize {
        2 * group + 1
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
pub(super) struct Eight;

impl Wide for Eight {
    const BYTES: usize = 34;
    const BLOCKS: usize = 4;
    const STEPS: usize = 1;
    const SHIFT: i32 = 0;
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

/// Q4_K and Q5_K: blocks of 256 weights with a scale and a minimum per 32, with a fifth bit or none.
pub(super) struct Large<const FIVE: bool>;

impl<const FIVE: bool> Wide for Large<FIVE> {
    const BYTES: usize = if FIVE { 176 } else { 144 };
    const BLOCKS: usize = 1;
    const STEPS: usize = 2;
    const SHIFT: i32 = 0;
    const OFFSETS: bool = true;

    fn first(step: usize, half: usize, lane: usize) -> usize {
        STEP * step + 64 * (lane / 8) + 32 * half + 4 * (lane % 8)
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
        let [scales, minima] = six_bits([a, b, c]).map(|[low, high]| {
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
pub(super) struct Six;

impl Wide for Six {
    const BYTES: usize = 210;
    const BLOCKS: usize = 1;
    const STEPS: usize = 2;
    const SHIFT: i32 = 32;
    const GROUP: usize = 16;

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
