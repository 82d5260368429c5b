//! Products with a matrix that is converted to f32 in parts.

use std::cell::Cell;

use super::{Matrix, NR, PackedB, PanelRows, bands::for_bands, microkernel::MR};

/// Right-hand matrix whose elements are converted while they are packed.
pub(crate) trait Source: Sync {
    /// Packs one panel: the rows from `row` on of the [`NR`] columns from `column` on. Columns beyond the matrix may be
    /// filled with any finite values. `row` is a multiple of [`KC`].
    fn pack(&self, row: usize, column: usize, panel: &mut [[f32; NR]]);
}

/// Number of rows of the right-hand matrix that are converted at once (KC). A panel of them fills half of the first-level
/// cache, and they are whole blocks of every quantized format.
pub(crate) const KC: usize = 256;
/// Number of panels that a task converts at once. With the left-hand rows, they stay in the second-level cache.
const PANELS: usize = 4;
/// Number of left-hand rows that are processed with all panels of a task before the next ones.
const PASS: usize = 16 * MR;
/// Number of left-hand rows per conversion of the right-hand matrix, so that the cost of the conversion is negligible.
const ROWS: usize = 5 * PASS;

/// Buffers of a thread.
#[derive(Default)]
struct Scratch {
    panels: PanelRows,
    /// Results of a band.
    sums: Vec<f32>,
    /// Packed transposed left-hand matrix.
    packed_a: Vec<[f32; MR]>,
}

thread_local! {
    /// Buffers of the last task, reused because first-touch page faults of fresh memory would cost as much as packing.
    static SCRATCH: Cell<Scratch> = Cell::default();
}

/// Computes `c = a b + bias`, where `b` is `[a.columns, columns]`. Each task converts some columns of `b`, a part of
/// the depth at a time, and multiplies all rows.
pub(crate) fn matmul_converted(a: Matrix<'_>, b: &impl Source, bias: Option<&[f32]>, columns: usize, c: &mut [f32]) {
    // Wide bands read the left-hand rows less often, but each thread should get several bands for balance.
    let share = columns.div_ceil(NR) / (8 * rayon::current_num_threads());
    let width = share.clamp(1, PANELS) * NR;
    for (i, c) in c.chunks_mut(ROWS * columns).enumerate() {
        let a = a.part(i * ROWS, ROWS, 0, a.columns);
        for_bands(c, columns, width, |first, rows| {
            let mut scratch = SCRATCH.take();
            band(a, b, bias.map(|bias| &bias[first..]), first, rows, &mut scratch);
            SCRATCH.set(scratch);
        });
    }
}

/// Computes the columns from `first` on.
fn band(
    a: Matrix<'_>,
    b: &impl Source,
    bias: Option<&[f32]>,
    first: usize,
    rows: &mut [&mut [f32]],
    scratch: &mut Scratch,
) {
    let Scratch { panels: memory, sums, packed_a } = scratch;
    let width = rows[0].len();
    sums.clear();
    sums.resize(rows.len() * width, 0.0);
    for from in (0..a.columns).step_by(KC) {
        let depth = KC.min(a.columns - from);
        let panels = PackedB::filled(std::mem::take(memory), depth, width, |panel, data| {
            b.pack(from, first + panel * NR, data);
        });
        for (i, sums) in sums.chunks_mut(PASS * width).enumerate() {
            let (a, n) = (a.part(i * PASS, PASS, from, depth), sums.len() / width);
            if a.transposed {
                panels.add_transposed(a.data, a.stride, n, sums, width, packed_a);
            } else {
                panels.add(0, panels.count(), a.data, a.stride, n, sums, width);
            }
        }
        *memory = panels.into_memory();
    }
    for (row, sums) in rows.iter_mut().zip(sums.chunks_exact(width)) {
        match bias {
            Some(bias) => row.iter_mut().zip(sums).zip(bias).for_each(|((c, sum), bias)| *c = sum + bias),
            None => row.copy_from_slice(sums),
        }
    }
}
