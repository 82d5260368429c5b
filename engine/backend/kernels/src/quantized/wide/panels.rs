//! Products of many rounded rows with quantized matrices by AVX-512 with VNNI. The codes of 32 rows of blocks are packed into two
//! panels, so that each lane of a register is another row, and all left-hand rows are multiplied by them.

use std::{
    arch::x86_64::{
        __m512, __m512i, _mm_storeu_si128, _mm256_storeu_ps, _mm512_cvtepi32_ps, _mm512_extracti32x4_epi32,
        _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps,
        _mm512_setzero_ps, _mm512_storeu_ps,
    },
    cell::Cell,
};

use super::{
    LANES, STEP, Wide,
    rows::{add_products, signed, unsigned, unsigned_shift},
    unit,
};
use crate::{
    matmul::{NR, PanelRows, for_bands, transpose_tile},
    quantized::{
        QuantizedMatrix, add_bias,
        rounded::{BLOCK, RoundedRows},
    },
};

/// Number of panels that are multiplied at once.
pub(super) const PANELS: usize = 2;
/// Number of left-hand rows that are multiplied at once. Their sums, in integers and floats, fill most registers.
const ROWS: usize = 6;
/// Number of weights of a row of a tile.
const TILE: usize = 4 * LANES;
const _: () = assert!(LANES == NR, "a lane for each column of a panel");

/// Two panels of a matrix. In each, a line has a value of each of 16 rows of blocks.
#[derive(Default)]
pub(super) struct Panels {
    /// For each panel and each four weights, their codes.
    pub codes: PanelRows,
    /// For each panel and group of weights, the scales.
    pub scales: PanelRows,
    /// For each panel and each 32 weights, the offsets.
    pub offsets: PanelRows,
}

thread_local! {
    /// Panels of the last task, reused because first-touch page faults of fresh memory would cost as much as packing.
    pub(super) static MEMORY: Cell<Panels> = Cell::default();
}

/// Computes `c = a b^T + bias`.
///
/// # Safety
/// The CPU must have AVX-512 with VNNI.
pub(super) unsafe fn product<W: Wide>(a: &RoundedRows, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    let strips: Vec<Vec<StripBlock>> =
        (0..a.count).step_by(ROWS).map(|first| pack_strip::<W>(a, first, b.columns / BLOCK)).collect();
    for_bands(c, b.rows, PANELS * NR, |first, c| {
        let mut panels = MEMORY.take();
        // SAFETY: the caller guarantees the CPU's instructions.
        unsafe {
            panels.pack::<W, false>(b, first);
            for (strip, c) in strips.iter().zip(c.chunks_mut(ROWS)) {
                match c.len() {
                    1 => panels.multiply::<W, 1>(strip, c),
                    2 => panels.multiply::<W, 2>(strip, c),
                    3 => panels.multiply::<W, 3>(strip, c),
                    4 => panels.multiply::<W, 4>(strip, c),
                    5 => panels.multiply::<W, 5>(strip, c),
                    _ => panels.multiply::<W, ROWS>(strip, c),
                }
            }
        }
        MEMORY.set(panels);
        add_bias(c, bias, first);
    });
}

/// A block of each row of a strip. Rows that are missing are zero.
#[derive(Clone, Copy, Default)]
struct StripBlock {
    /// Four codes of each row, as bytes.
    codes: [[i32; ROWS]; BLOCK / 4],
    scales: [f32; ROWS],
    /// The sum of the block's values.
    sums: [f32; ROWS],
    /// For each group of weights that share a scale, the initial values of the sums, which account for the shift of the format's
    /// codes.
    start: [[i32; ROWS]; 2],
}

/// Packs the rows from `first` on, at most [`ROWS`].
fn pack_strip<W: Wide>(a: &RoundedRows, first: usize, blocks: usize) -> Vec<StripBlock> {
    let mut strip = vec![StripBlock::default(); blocks];
    for i in 0..ROWS.min(a.count - first) {
        let row = a.row(first + i);
        let codes = row.codes.as_chunks::<4>().0.as_chunks::<{ BLOCK / 4 }>().0;
        for (block, (packed, codes)) in strip.iter_mut().zip(codes).enumerate() {
            for (packed, codes) in packed.codes.iter_mut().zip(codes) {
                packed[i] = i32::from_le_bytes(codes.map(|code| code as u8));
            }
            packed.scales[i] = row.scales[block];
            packed.sums[i] = row.sum(block);
            let [low, high] = [0, 1].map(|half| -unsigned_shift::<W>() * row.sums[2 * block + half]);
            [packed.start[0][i], packed.start[1][i]] = if W::GROUP == 16 { [low, high] } else { [low + high, 0] };
        }
    }
    strip
}

impl Panels {
    /// Packs the rows of blocks from `first` on. Codes are unsigned, or with `SIGNED` signed bytes from which the shift is subtracted.
    /// If fewer than 32 rows are left, the last one is repeated; the repeated results are not used.
    ///
    /// # Safety
    /// The CPU must have AVX-512.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    pub unsafe fn pack<W: Wide, const SIGNED: bool>(&mut self, b: QuantizedMatrix<'_>, first: usize) {
        let depth = b.columns.next_multiple_of(W::STEPS * STEP);
        let [lines, scales, offsets] = [depth / 4, depth / W::GROUP, depth / BLOCK];
        self.codes.set_len(PANELS * lines);
        self.scales.set_len(PANELS * scales);
        self.offsets.set_len(PANELS * offsets);
        for panel in 0..PANELS {
            let codes = &mut self.codes[panel * lines..][..lines];
            let scales = &mut self.scales[panel * scales..][..scales];
            let offsets = &mut self.offsets[panel * offsets..][..offsets];
            for column in 0..NR {
                let row = (first + panel * NR + column).min(b.rows - 1);
                // SAFETY: the caller's promise.
                unsafe { unpack_row::<W, SIGNED>(b.part(row, 0, b.columns), column, codes, scales, offsets) };
            }
            for tile in codes.as_chunks_mut().0 {
                transpose_tile(tile);
            }
        }
    }

    /// Computes the results of a strip's first `R` rows.
    ///
    /// # Safety
    /// The CPU must have AVX-512 with VNNI.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    // The sums stay in registers only if they are indexed by constants.
    #[allow(clippy::needless_range_loop)]
    unsafe fn multiply<W: Wide, const R: usize>(&self, strip: &[StripBlock], c: &mut [&mut [f32]]) {
        let [codes, scales, offsets] = [&self.codes, &self.scales, &self.offsets].map(|lines| {
            let panel = lines.len() / PANELS;
            [0, 1].map(|p| &lines[p * panel..][..panel])
        });
        let codes = codes.map(|lines| lines.as_chunks::<{ BLOCK / 4 }>().0);
        let groups = BLOCK / W::GROUP;
        let mut totals = [[_mm512_setzero_ps(); PANELS]; R];
        for (block, ((x, first), second)) in strip.iter().zip(codes[0]).zip(codes[1]).enumerate() {
            for group in 0..groups {
                let mut sums = [[_mm512_set1_epi32(0); PANELS]; R];
                if unsigned_shift::<W>() != 0 {
                    for r in 0..R {
                        sums[r] = [_mm512_set1_epi32(x.start[group][r]); PANELS];
                    }
                }
                for k in 0..W::GROUP / 4 {
                    let k = group * W::GROUP / 4 + k;
                    let codes = [integers(&first[k]), integers(&second[k])];
                    for r in 0..R {
                        let x = _mm512_set1_epi32(x.codes[k][r]);
                        for p in 0..PANELS {
                            // SAFETY: the caller guarantees VNNI.
                            sums[r][p] = unsafe { add_products(sums[r][p], codes[p], x) };
                        }
                    }
                }
                for p in 0..PANELS {
                    let scale = floats(&scales[p][block * groups + group]);
                    for r in 0..R {
                        let scale = _mm512_mul_ps(scale, _mm512_set1_ps(x.scales[r]));
                        totals[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][p]), scale, totals[r][p]);
                    }
                }
            }
            if W::OFFSETS {
                for p in 0..PANELS {
                    let offset = floats(&offsets[p][block]);
                    for r in 0..R {
                        totals[r][p] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x.sums[r]), totals[r][p]);
                    }
                }
            }
        }
        for (c, totals) in c.iter_mut().zip(totals) {
            let mut line = [[0.0; NR]; PANELS];
            for (line, totals) in line.iter_mut().zip(totals) {
                // SAFETY: a line has 16 values.
                unsafe { _mm512_storeu_ps(line.as_mut_ptr(), totals) };
            }
            c.copy_from_slice(&line.as_flattened()[..c.len()]);
        }
    }
}

/// Unpacks a row of blocks: its codes to line `column` of each tile, before the tiles are transposed, and its factors to a column.
///
/// # Safety
/// The CPU must have AVX-512.
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn unpack_row<W: Wide, const SIGNED: bool>(
    blocks: &[u8],
    column: usize,
    codes: &mut [[f32; NR]],
    scales: &mut [[f32; NR]],
    offsets: &mut [[f32; NR]],
) {
    let (len, groups) = (W::STEPS * STEP, W::STEPS * STEP / BLOCK);
    for i in 0..codes.len() * 4 / len {
        let unit = unit::<W>(blocks, i);
        let (mut factors, mut shifts) = ([[0.0; LANES]; 4], [0.0; 8]);
        // SAFETY: the pointers are those of blocks. The stores are within the arrays.
        unsafe {
            let (lanes, offsets) = W::scales(unit);
            for (factors, lanes) in factors.iter_mut().zip(lanes.as_flattened()).take(2 * W::STEPS) {
                _mm512_storeu_ps(factors.as_mut_ptr(), *lanes);
            }
            _mm256_storeu_ps(shifts.as_mut_ptr(), offsets);
        }
        for step in 0..W::STEPS {
            // SAFETY: as above.
            let bytes = unsafe { W::codes(unit, step) };
            let bytes = bytes.map(|bytes| if SIGNED { signed::<W>(bytes) } else { unsigned::<W>(bytes) });
            for (k, bytes) in bytes.map(|bytes| quarters(bytes)).as_flattened().iter().enumerate() {
                let (half, part) = (k / 4, k % 4);
                let at = i * len + W::first(step, half, 4 * part);
                let line = codes[at / TILE * NR + column].as_mut_ptr().cast::<[u8; 16]>();
                // SAFETY: a line has four times 16 bytes.
                unsafe { *line.add(at % TILE / 16) = *bytes };
                scales[at / W::GROUP][column] = factors[2 * step + half][4 * part];
            }
        }
        if W::OFFSETS {
            for group in 0..groups {
                offsets[i * groups + group][column] = shifts[W::offset(group)];
            }
        }
    }
}

/// Returns the quarters of a register.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn quarters(bytes: __m512i) -> [[u8; 16]; 4] {
    let mut quarters = [[0; 16]; 4];
    let [a, b, c, d] = &mut quarters;
    // SAFETY: each store writes 16 bytes.
    unsafe {
        _mm_storeu_si128(a.as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<0>(bytes));
        _mm_storeu_si128(b.as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<1>(bytes));
        _mm_storeu_si128(c.as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<2>(bytes));
        _mm_storeu_si128(d.as_mut_ptr().cast(), _mm512_extracti32x4_epi32::<3>(bytes));
    }
    quarters
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
pub(super) fn floats(line: &[f32; NR]) -> __m512 {
    // SAFETY: a line has 16 values.
    unsafe { _mm512_loadu_ps(line.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
fn integers(line: &[f32; NR]) -> __m512i {
    // SAFETY: as above.
    unsafe { _mm512_loadu_si512(line.as_ptr().cast()) }
}
