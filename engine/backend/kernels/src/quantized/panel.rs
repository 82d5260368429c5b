//! Packing of blocks into panels, for products of many rows.

use std::hint::black_box;

use super::{
    QuantizedMatrix,
    for_kind::for_kind,
    format::{CHUNK, Factors, Format, LANES, Lanes, Place, STRIP},
    unpack::{unpack, weight},
};
use crate::{
    dispatch::vectorized,
    matmul::{self, CONVERTED_KC, Layout, NR, Source},
};

impl Source for QuantizedMatrix<'_> {
    fn pack(&self, row: usize, column: usize, panel: &mut [[f32; NR]]) {
        pack(self, row, column, panel);
    }
}

vectorized! {
    /// Packs the weights from `row` on of the rows of `b` from `column` on into a panel. Each row of blocks becomes a column.
    fn pack<FUSED>(b: &QuantizedMatrix<'_>, row: usize, column: usize, panel: &mut [[f32; NR]]) {
        if FUSED {
            for_kind!(b.kind, pack_for[](b, row, column, panel));
        } else {
            plain_pack(b, row, column, panel);
        }
    }
}

/// Like [`pack`], for CPUs without FMA, for which compiling every format is not worthwhile.
pub(super) fn plain_pack(b: &QuantizedMatrix<'_>, row: usize, column: usize, panel: &mut [[f32; NR]]) {
    let (depth, width) = (panel.len(), NR.min(b.rows - column));
    let mut weights = vec![0.0; width * depth];
    for (j, weights) in weights.chunks_exact_mut(depth).enumerate() {
        unpack(b.kind, b.part(column + j, row, depth), weights);
    }
    matmul::pack(&weights, Layout { stride: depth, transposed: true }, 0, 0, width, panel);
}

#[inline(always)]
fn pack_for<F: Format>(b: &QuantizedMatrix<'_>, row: usize, column: usize, panel: &mut [[f32; NR]]) {
    const { assert!(CONVERTED_KC.is_multiple_of(256) && CONVERTED_KC <= CHUNK, "whole blocks") };
    let mut table = Table { scales: [[0.0; LANES]; CONVERTED_KC / 16], offsets: [[0.0; LANES]; CONVERTED_KC / 32] };
    for side in 0..NR / LANES {
        // If fewer than eight rows are left, the last one is repeated; the repeated results are not used.
        let rows: [_; LANES] = std::array::from_fn(|j| {
            let row_of_blocks = (column + side * LANES + j).min(b.rows - 1);
            F::units(b.part(row_of_blocks, row, panel.len()))
        });
        let count = rows[0].0.len() + usize::from(rows[0].1.is_some());
        let unit = |i: usize, j: usize| rows[j].0.get(i).or(rows[j].1.as_ref()).expect("rows of one length");
        table.fill::<F>(count, unit);
        for i in 0..count {
            let units: [_; LANES] = std::array::from_fn(|j| unit(i, j));
            let panel = &mut panel[i * F::STRIPS * STRIP..];
            for strip in 0..F::STRIPS {
                for lane in 0..LANES {
                    // Hidden from the compiler, which would otherwise combine the lanes of one row in a register.
                    pack_lane::<F>(units, [i, strip, black_box(lane)], &table, side, panel);
                }
            }
        }
    }
}

/// Scales and offsets of eight rows, interleaved.
struct Table {
    scales: [Lanes; CONVERTED_KC / 16],
    offsets: [Lanes; CONVERTED_KC / 32],
}

impl Table {
    /// Fills the table for `count` units of each row.
    #[inline(always)]
    fn fill<'a, F: Format<Unit: 'a>>(&mut self, count: usize, unit: impl Fn(usize, usize) -> &'a F::Unit) {
        let mut factors = Factors::new();
        for j in 0..LANES {
            for i in 0..count {
                F::note(unit(i, j), i, &mut factors);
            }
            F::finish(count, &mut factors);
            for i in 0..count * F::SCALES {
                self.scales[i][j] = factors.scales[i];
                if F::OFFSETS {
                    self.offsets[i][j] = factors.offsets[i];
                }
            }
        }
    }
}

/// Unpacks one lane of codes in units of eight rows. Each lane of a register is one of the rows, as in a panel.
#[inline(always)]
fn pack_lane<F: Format>(
    units: [&F::Unit; LANES],
    [i, strip, lane]: [usize; 3],
    table: &Table,
    side: usize,
    panel: &mut [[f32; NR]],
) {
    let mut codes = [[0; LANES]; 2];
    for j in 0..LANES {
        [codes[0][j], codes[1][j]] = F::lane(units[j], strip, lane);
    }
    for (half, codes) in codes.iter().enumerate() {
        let at = Place { strip, half, part: lane / 4 };
        let which = i * F::SCALES + F::scale(at);
        // A padded unit may lack whole blocks, and thus whole parts.
        let first = (F::first(at) + lane % 4 * 4).min(panel.len());
        let Some(panel) = panel[first..].first_chunk_mut::<4>() else { continue };
        let (scales, offsets) = (table.scales[which], if F::OFFSETS { table.offsets[which] } else { [0.0; LANES] });
        for (k, panel) in panel.iter_mut().enumerate() {
            let mut weights = [0.0; LANES];
            for j in 0..LANES {
                weights[j] = weight::<F>(codes[j], k, scales[j], offsets[j]);
            }
            panel.as_chunks_mut().0[side] = weights;
        }
    }
}
