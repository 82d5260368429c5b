//! Packed B: the right-hand matrix of a product in the order in which the microkernels read it.

use rayon::prelude::*;
use std::ops::Range;

use super::{
    avx512::{self, MR_AVX512, Start, with_strips},
    microkernel::{MR, NR, microkernel},
    pack::{Layout, pack},
    packed_a::{PackedA, strip_bounds},
    panel_rows::PanelRows,
    strip::{add_strip, add_tile},
};
use crate::dispatch::vectorized;

/// Number of panel rows that are processed at once (KC): 24 KiB, so that the panel stays in the first-level cache while the
/// left-hand rows are processed, and results are accumulated in memory as rarely as possible.
pub(super) const KC: usize = 384;
/// KC for [`avx512`] microkernels, which need not read panels from the first-level cache.
const KC_AVX512: usize = 768;

/// Returns KC for this CPU.
fn kc() -> usize {
    if avx512::usable() { KC_AVX512 } else { KC }
}

/// A matrix `[depth, columns]`, packed into panels of [`NR`] columns, in blocks of at most [`kc`] rows:
/// `[block][panel][row of the block][column of the panel]`. Missing columns of the last panel are 0.
pub(crate) struct PackedB {
    depth: usize,
    columns: usize,
    /// Number of rows of each block except the last, which may be shorter.
    block: usize,
    data: PanelRows,
}

impl PackedB {
    /// Packs a matrix of `depth` rows and `columns` columns.
    pub fn new(b: &[f32], depth: usize, columns: usize, layout: Layout) -> Self {
        Self::reusing(PanelRows::new(), b, depth, columns, layout)
    }

    /// Returns the memory for reuse by another matrix.
    pub fn into_memory(self) -> PanelRows {
        self.data
    }

    /// Like [`new`](Self::new), in existing memory, which is overwritten.
    pub fn reusing(mut data: PanelRows, b: &[f32], depth: usize, columns: usize, layout: Layout) -> Self {
        let block = depth.div_ceil(depth.div_ceil(kc()).max(1)).max(1);
        let panels = columns.div_ceil(NR);
        data.set_len(depth * panels);
        for (i, data) in data.chunks_mut((block * panels).max(1)).enumerate() {
            let rows = data.len() / panels;
            // A task copies for some tens of microseconds.
            data.par_chunks_mut(rows).with_min_len(KC.div_ceil(rows) * 2).enumerate().for_each(|(panel, data)| {
                pack(b, layout, i * block, panel * NR, columns, data);
            });
        }
        Self { depth, columns, block, data }
    }

    /// Returns panels of a single block, packed by `fill`, which gets the index of each panel and must overwrite all of the
    /// panel.
    pub fn filled(
        mut data: PanelRows,
        depth: usize,
        columns: usize,
        mut fill: impl FnMut(usize, &mut [[f32; NR]]),
    ) -> Self {
        data.set_len(depth * columns.div_ceil(NR));
        for (panel, data) in data.chunks_exact_mut(depth.max(1)).enumerate() {
            fill(panel, data);
        }
        Self { depth, columns, block: depth.max(1), data }
    }

    /// Returns the number of panels.
    pub fn count(&self) -> usize {
        self.columns.div_ceil(NR)
    }

    /// Adds to `c` the product of `rows` rows of `a` and the panels `from..to`. The first column of these panels is the first
    /// column of `c`. The strides are distances from one row to the next, in elements.
    #[allow(clippy::too_many_arguments)]
    pub fn add(&self, from: usize, to: usize, a: &[f32], a_stride: usize, rows: usize, c: &mut [f32], c_stride: usize) {
        self.add_part(0..self.depth, [from, to], self.columns, a, a_stride, rows, c, c_stride);
    }

    /// Like [`add`](Self::add), for a block of this matrix: the rows `depth` and some columns, starting at a panel. The first
    /// column of `a` corresponds to the first of these rows.
    ///
    /// # Panics
    /// If the first column is not a multiple of [`NR`], or the block is not within the matrix.
    #[allow(clippy::too_many_arguments)]
    pub fn add_block(
        &self,
        depth: Range<usize>,
        columns: Range<usize>,
        a: &[f32],
        a_stride: usize,
        rows: usize,
        c: &mut [f32],
        c_stride: usize,
    ) {
        assert!(columns.start.is_multiple_of(NR), "column {} is inside a panel", columns.start);
        assert!(depth.end <= self.depth && columns.end <= self.columns, "rows {depth:?}, columns {columns:?}");
        if depth.is_empty() || columns.is_empty() {
            return;
        }
        let panels = [columns.start / NR, columns.end.div_ceil(NR)];
        self.add_part(depth, panels, columns.end, a, a_stride, rows, c, c_stride);
    }

    #[allow(clippy::too_many_arguments)]
    fn add_part(
        &self,
        depth: Range<usize>,
        [from, to]: [usize; 2],
        columns: usize,
        a: &[f32],
        a_stride: usize,
        rows: usize,
        c: &mut [f32],
        c_stride: usize,
    ) {
        if rows == 0 {
            return;
        }
        // With fewer rows a panel is read only once, and packing the rows would be a large part of the work.
        if rows < 4 || !avx512::usable() {
            return add_rows(self, from, to, depth, columns, a, a_stride, rows, c, c_stride);
        }
        let columns = columns.min(to * NR) - from * NR;
        let first = depth.start;
        self.add_avx512(from, depth, columns, c, c_stride, |strips, start, depth| {
            strips.pack(a, |row| row * a_stride + start - first, rows, depth);
        });
    }

    /// Adds the product of packed rows and the rows `depth` of the panels from `from` on. `pack` packs the left-hand columns
    /// that correspond to a range of these rows, from its first row and length.
    fn add_avx512(
        &self,
        from: usize,
        depth: Range<usize>,
        columns: usize,
        c: &mut [f32],
        c_stride: usize,
        mut pack: impl FnMut(&mut PackedA<MR_AVX512>, usize, usize),
    ) {
        with_strips(|strips| {
            for (start, pitch, data) in self.blocks() {
                let rows = within(&depth, start, pitch);
                if !rows.is_empty() {
                    pack(strips, start + rows.start, rows.len());
                    strips.multiply(&data[from * pitch + rows.start..], pitch, columns, c, c_stride, Start::There);
                }
            }
        });
    }

    /// Like [`add`](Self::add) for all panels, with `a` transposed: `a` has `depth` rows, `a_stride` apart, and its first
    /// `rows` columns are used. `scratch` is any buffer.
    pub fn add_transposed(
        &self,
        a: &[f32],
        a_stride: usize,
        rows: usize,
        c: &mut [f32],
        c_stride: usize,
        scratch: &mut Vec<[f32; MR]>,
    ) {
        if rows == 0 || !avx512::usable() {
            return add_columns(self, a, a_stride, rows, c, c_stride, scratch);
        }
        self.add_avx512(0, 0..self.depth, self.columns, c, c_stride, |strips, start, depth| {
            strips.pack_columns(&a[start * a_stride..], a_stride, rows, depth);
        });
    }

    /// Returns the blocks: the first row of each, its number of rows, and its panels.
    #[inline(always)]
    fn blocks(&self) -> impl Iterator<Item = (usize, usize, &[[f32; NR]])> {
        let chunk = (self.block * self.count()).max(1);
        let rows = move |i: usize| self.block.min(self.depth - i * self.block);
        self.data.chunks(chunk).enumerate().map(move |(i, data)| (i * self.block, rows(i), data))
    }
}

/// Returns the range, relative to a block of `pitch` rows from `start` on, of its rows that are in `depth`.
#[inline(always)]
fn within(depth: &Range<usize>, start: usize, pitch: usize) -> Range<usize> {
    depth.start.saturating_sub(start)..depth.end.saturating_sub(start).min(pitch)
}

vectorized! {
    fn add_rows<FUSED>(
        panels: &PackedB, from: usize, to: usize, depth: Range<usize>, columns: usize,
        a: &[f32], a_stride: usize, rows: usize, c: &mut [f32], c_stride: usize,
    ) {
        for (start, pitch, data) in panels.blocks() {
            let of_block = within(&depth, start, pitch);
            if of_block.is_empty() {
                continue;
            }
            let (data, start) = (&data[of_block.start..], start + of_block.start - depth.start);
            let depth = of_block.len();
            macro_rules! remainder {
                ($height:literal, $panels:literal) => {
                    add_strip::<FUSED, $height, $panels>(
                        data, from, to, columns, pitch, depth, &a[start..], a_stride, c, c_stride,
                    )
                };
            }
            // With few rows a panel is read once, and several panels at once keep enough accumulators busy.
            match rows {
                1 => remainder!(1, 4),
                2 => remainder!(2, 2),
                3 => remainder!(3, 2),
                _ => for panel in from..to {
                    for (row, height) in strip_bounds::<MR>(rows) {
                        let (a, c) = (&a[row * a_stride..], &mut c[row * c_stride + (panel - from) * NR..]);
                        macro_rules! strip {
                            ($height:literal) => {
                                add_strip::<FUSED, $height, 1>(
                                    data, panel, panel + 1, columns, pitch, depth, &a[start..], a_stride, c, c_stride,
                                )
                            };
                        }
                        match height {
                            6 => strip!(6),
                            5 => strip!(5),
                            4 => strip!(4),
                            _ => strip!(3),
                        }
                    }
                },
            }
        }
    }
}

vectorized! {
    fn add_columns<FUSED>(
        panels: &PackedB, a: &[f32], a_stride: usize, rows: usize, c: &mut [f32], c_stride: usize,
        scratch: &mut Vec<[f32; MR]>,
    ) {
        let strips = rows.div_ceil(MR);
        for (start, depth, data) in panels.blocks() {
            // The rows of `a` that a task reads are far apart, and are read once per panel, so they are packed first.
            scratch.clear();
            scratch.resize(strips * depth, [0.0; MR]);
            // Several rows at once, which stay in the first-level cache, so that the writes to a strip are adjacent.
            for from in (0..depth).step_by(NR) {
                let to = (from + NR).min(depth);
                for strip in 0..rows / MR {
                    for k in from..to {
                        let values = &a[(start + k) * a_stride + strip * MR..][..MR];
                        scratch[strip * depth + k].copy_from_slice(values);
                    }
                }
                for k in from..to {
                    let rest = &a[(start + k) * a_stride..][rows / MR * MR..rows];
                    if !rest.is_empty() {
                        scratch[(strips - 1) * depth + k][..rest.len()].copy_from_slice(rest);
                    }
                }
            }
            for panel in 0..panels.count() {
                let width = NR.min(panels.columns - panel * NR);
                let b = &data[panel * depth..][..depth];
                for (strip, a) in scratch.chunks_exact(depth).enumerate() {
                    let mut columns: [&[f32]; MR] = [&[]; MR];
                    for (i, column) in columns.iter_mut().enumerate() {
                        *column = &a.as_flattened()[i..];
                    }
                    let sums = microkernel::<FUSED, MR, 1>(depth, columns, MR, [b]);
                    let c = &mut c[strip * MR * c_stride..];
                    add_tile(sums, c, c_stride, panel * NR, MR.min(rows - strip * MR), width);
                }
            }
        }
    }
}
