//! Products of many rounded rows with quantized matrices by AVX-512 with VNNI. The codes of 32 rows of blocks are packed into two
//! panels, so that each lane of a register is another row, and all left-hand rows are multiplied by them.

use std::{
    arch::x86_64::{
        __m512, __m512i, _mm_storeu_si128, _mm256_storeu_ps, _mm512_cvtepi32_ps, _mm512_extracti32x4_epi32,
        _mm512_fmadd_ps, _mm512_load_ps, _mm512_load_si512, _mm512_mul_ps, _mm512_set1_epi32, _mm512_set1_ps,
        _mm512_setzero_ps, _mm512_storeu_ps,
    },
    cell::Cell,
};

use super::{
    LANES, STEP, Wide,
    rows::{add_products, unsigned, unsigned_shift},
    unit,
};
use crate::{
    matmul::{NR, PanelRows, for_bands, transpose_tile},
    quantized::{
        QuantizedMatrix,
        rounded::{BLOCK, RoundedRow, RoundedRows},
    },
};

/// Number of panels that are multiplied at once.
const PANELS: usize = 2;
/// Number of left-hand rows that are multiplied at once. Their sums, in integers and floats, fill most registers.
const ROWS: usize = 6;
/// Number of weights of a row of a tile.
const TILE: usize = 4 * LANES;
const _: () = assert!(LANES == NR, "a lane for each column of a panel");

/// Two panels of a matrix. In each, a line has a value of each of 16 rows of blocks.
#[derive(Default)]
struct Panels {
    /// For each panel and each four weights, their codes.
    codes: PanelRows,
    /// For each panel and group of weights, the scales.
    scales: PanelRows,
    /// For each panel and each 32 weights, the offsets.
    offsets: PanelRows,
    /// Number of weights of a row, in whole units.
    depth: usize,
}

thread_local! {
    /// Panels of the last task, reused because first-touch page faults of fresh memory would cost as much as packing.
    static MEMORY: Cell<Panels> = Cell::default();
}

/// Computes `c = a b^T + bias`.
///
/// # Safety
/// The CPU must have AVX-512 with VNNI.
pub(super) unsafe fn product<W: Wide>(a: &RoundedRows, b: QuantizedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    for_bands(c, b.rows, PANELS * NR, |first, c| {
        let mut panels = MEMORY.take();
        // SAFETY: the caller guarantees the CPU's instructions.
        unsafe {
            panels.pack::<W>(b, first);
            for (i, c) in c.chunks_mut(ROWS).enumerate() {
                let row = |k: usize| a.row(i * ROWS + k);
                match c.len() {
                    1 => panels.multiply::<W, 1>(std::array::from_fn(row), b.columns, c),
                    2 => panels.multiply::<W, 2>(std::array::from_fn(row), b.columns, c),
                    3 => panels.multiply::<W, 3>(std::array::from_fn(row), b.columns, c),
                    4 => panels.multiply::<W, 4>(std::array::from_fn(row), b.columns, c),
                    5 => panels.multiply::<W, 5>(std::array::from_fn(row), b.columns, c),
                    _ => panels.multiply::<W, ROWS>(std::array::from_fn(row), b.columns, c),
                }
            }
        }
        MEMORY.set(panels);
        if let Some(bias) = bias {
            for c in c {
                c.iter_mut().zip(&bias[first..]).for_each(|(c, bias)| *c += bias);
            }
        }
    });
}

impl Panels {
    /// Packs the rows of blocks from `first` on. If fewer than 32 are left, the last one is repeated; the repeated results are
    /// not used.
    ///
    /// # Safety
    /// The CPU must have AVX-512.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn pack<W: Wide>(&mut self, b: QuantizedMatrix<'_>, first: usize) {
        let unit_len = W::STEPS * STEP;
        self.depth = b.columns.next_multiple_of(unit_len);
        let [lines, scales, offsets] = [self.depth / 4, self.depth / W::GROUP, self.depth / BLOCK];
        self.codes.grow(PANELS * lines);
        self.scales.grow(PANELS * scales);
        self.offsets.grow(PANELS * offsets);
        for panel in 0..PANELS {
            let codes = &mut self.codes[panel * lines..][..lines];
            let scales = &mut self.scales[panel * scales..][..scales];
            let offsets = &mut self.offsets[panel * offsets..][..offsets];
            for column in 0..NR {
                let row = (first + panel * NR + column).min(b.rows - 1);
                let blocks = b.part(row, 0, b.columns);
                for i in 0..self.depth / unit_len {
                    let unit = unit::<W>(blocks, i);
                    let mut factors = [[0.0; LANES]; 4];
                    let mut shifts = [0.0; 8];
                    // SAFETY: the pointers are those of blocks. The stores are within the arrays.
                    unsafe {
                        let (lanes, offsets) = W::scales(unit);
                        for (k, factors) in factors.iter_mut().enumerate().take(2 * W::STEPS) {
                            _mm512_storeu_ps(factors.as_mut_ptr(), lanes[k / 2][k % 2]);
                        }
                        _mm256_storeu_ps(shifts.as_mut_ptr(), offsets);
                    }
                    for step in 0..W::STEPS {
                        // SAFETY: as above.
                        let halves = unsafe { W::codes(unit, step) };
                        for (half, bytes) in halves.into_iter().enumerate() {
                            let parts = quarters(unsigned::<W>(bytes));
                            for (part, bytes) in parts.into_iter().enumerate() {
                                let at = i * unit_len + W::first(step, half, 4 * part);
                                let line = codes[at / TILE * NR + column].as_mut_ptr().cast::<[u8; 16]>();
                                // SAFETY: a line has four times 16 bytes.
                                unsafe { *line.add(at % TILE / 16) = bytes };
                                scales[at / W::GROUP][column] = factors[2 * step + half][4 * part];
                            }
                        }
                    }
                    if W::OFFSETS {
                        let groups = unit_len / BLOCK;
                        for group in 0..groups {
                            offsets[i * groups + group][column] = shifts[W::offset(group)];
                        }
                    }
                }
            }
            for tile in codes.as_chunks_mut().0 {
                transpose_tile(tile);
            }
        }
    }

    /// Computes the results of some rows.
    ///
    /// # Safety
    /// The CPU must have AVX-512 with VNNI.
    #[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
    unsafe fn multiply<W: Wide, const R: usize>(
        &self,
        rows: [RoundedRow<'_>; R],
        columns: usize,
        c: &mut [&mut [f32]],
    ) {
        let blocks = columns / BLOCK;
        for row in rows {
            let lens = [row.codes.len() / BLOCK, row.scales.len(), row.sums.len() / 2];
            assert!(lens.iter().all(|len| *len >= blocks), "a row of another length");
        }
        let [lines, groups] = [self.depth / 4, self.depth / W::GROUP];
        let (codes, scales, offsets) = (&self.codes[..], &self.scales[..], &self.offsets[..]);
        assert!(self.depth >= columns && codes.len() >= PANELS * lines, "panels of another depth");
        assert!(scales.len() >= PANELS * groups && offsets.len() >= PANELS * self.depth / BLOCK);
        let mut totals = [[_mm512_setzero_ps(); PANELS]; R];
        for block in 0..blocks {
            for part in 0..BLOCK / W::GROUP {
                let mut sums = [[_mm512_set1_epi32(0); PANELS]; R];
                if unsigned_shift::<W>() != 0 {
                    for (sums, row) in sums.iter_mut().zip(rows) {
                        let sum = match W::GROUP {
                            16 => row.sums[2 * block + part],
                            _ => row.sums[2 * block] + row.sums[2 * block + 1],
                        };
                        *sums = [_mm512_set1_epi32(-unsigned_shift::<W>() * sum); PANELS];
                    }
                }
                let first = block * BLOCK + part * W::GROUP;
                for k in (first..first + W::GROUP).step_by(4) {
                    // SAFETY: the panels and rows have values of `blocks` blocks, as asserted above.
                    unsafe {
                        let codes: [_; PANELS] = std::array::from_fn(|p| integers(codes, p * lines + k / 4));
                        for (sums, row) in sums.iter_mut().zip(rows) {
                            let x = row.codes.as_ptr().add(k).cast::<i32>().read_unaligned();
                            let x = _mm512_set1_epi32(x);
                            for (sum, codes) in sums.iter_mut().zip(codes) {
                                *sum = add_products(*sum, codes, x);
                            }
                        }
                    }
                }
                for p in 0..PANELS {
                    // SAFETY: as above.
                    let scale = unsafe { floats(scales, p * groups + first / W::GROUP) };
                    for r in 0..R {
                        let scale = _mm512_mul_ps(scale, _mm512_set1_ps(rows[r].scales[block]));
                        totals[r][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[r][p]), scale, totals[r][p]);
                    }
                }
            }
            if W::OFFSETS {
                for p in 0..PANELS {
                    // SAFETY: as above.
                    let offset = unsafe { floats(offsets, p * (self.depth / BLOCK) + block) };
                    for r in 0..R {
                        totals[r][p] = _mm512_fmadd_ps(offset, _mm512_set1_ps(rows[r].sum(block)), totals[r][p]);
                    }
                }
            }
        }
        for (c, totals) in c.iter_mut().zip(totals) {
            let mut line = [0.0; PANELS * NR];
            for (line, totals) in line.as_chunks_mut::<NR>().0.iter_mut().zip(totals) {
                // SAFETY: a line has 16 values.
                unsafe { _mm512_storeu_ps(line.as_mut_ptr(), totals) };
            }
            c.copy_from_slice(&line[..c.len()]);
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

/// # Safety
/// `i` must be the index of a line.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn floats(lines: &[[f32; NR]], i: usize) -> __m512 {
    // SAFETY: the lines of a panel are aligned.
    unsafe { _mm512_load_ps(lines.as_ptr().add(i).cast()) }
}

/// # Safety
/// As for [`floats`].
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")]
unsafe fn integers(lines: &[[f32; NR]], i: usize) -> __m512i {
    // SAFETY: as above.
    unsafe { _mm512_load_si512(lines.as_ptr().add(i).cast()) }
}
