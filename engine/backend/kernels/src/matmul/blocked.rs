//! Matrix products with AVX-512 microkernels ([`avx512`](super::avx512)). The left-hand matrix is packed once, for all
//! threads. Each thread takes some columns of the right-hand matrix and packs two panels at a time, which stay in its
//! second-level cache while all rows are processed. Each result is written once.

use rayon::prelude::*;
use std::cell::Cell;

use super::{
    Matrix,
    avx512::{MR_AVX512, Start, multiplies_bf16, usable, with_strips},
    microkernel::NR,
    pack::pack,
    packed_a::PackedA,
    panel_rows::PanelRows,
    target::Target,
};
use crate::dispatch::prefetch;

/// Maximum number of rows of two panels that are processed at once (KC): an eighth of a second-level cache of 1 MiB.
const KC: usize = 1024;
/// Total number of rows of the panels that are packed at once, if they have fewer rows: with more columns, memory is read in
/// longer runs.
const GROUP: usize = 4096;
/// Number of elements of the left-hand matrix that are packed at once: 4 MiB.
const HELD: usize = 1 << 20;
/// Distance in rows at which the right-hand matrix is prefetched.
const AHEAD: usize = 6;
/// Number of products that justifies waking a thread.
const TASK: usize = 1 << 18;
/// Minimum number of rows for which two panels are packed.
const ROWS: usize = 4 * MR_AVX512;

thread_local! {
    /// Buffer of the last panels, reused because first-touch page faults of fresh memory would cost as much as packing.
    static PANELS: Cell<PanelRows> = const { Cell::new(PanelRows::new()) };
}

/// Computes `c = a b + bias`, like `matmul`, for non-empty matrices. Writes the target's first `a.rows` rows of `b.columns`
/// completely.
///
/// # Panics
/// If the CPU has no AVX-512 (see [`avx512::usable`](super::avx512::usable)), or the target is too small.
pub(super) fn multiply(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>, c: &Target<'_>) {
    assert!(usable(), "no AVX-512");
    // SAFETY: the CPU has AVX-512.
    unsafe { multiply_elements::<false>(a, b, bias, c) }
}

/// Like [`multiply`], for bf16. The matrices view two numbers that follow each other along the summed axis as one f32, the
/// first one in the lower bits.
///
/// # Panics
/// If the CPU has no [products of bf16](multiplies_bf16), or the target is too small.
pub(super) fn multiply_pairs(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>, c: &Target<'_>) {
    assert!(multiplies_bf16(), "no AVX512-BF16");
    // SAFETY: the CPU has AVX-512 and AVX512-BF16.
    unsafe { multiply_elements::<true>(a, b, bias, c) }
}

/// # Safety
/// The CPU must have AVX-512, and with `PAIRS` AVX512-BF16.
unsafe fn multiply_elements<const PAIRS: bool>(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>, c: &Target<'_>) {
    let blocks = a.columns.div_ceil(KC);
    let depth = a.columns.div_ceil(blocks);
    // As even as possible, in whole strips.
    let most = (HELD / depth).max(ROWS);
    let rows = a.rows.div_ceil(a.rows.div_ceil(most)).next_multiple_of(MR_AVX512);
    for from in (0..a.columns).step_by(depth) {
        let b = b.part(from, depth, 0, b.columns);
        let start = match bias {
            _ if from > 0 => Start::There,
            Some(bias) => Start::Bias(bias),
            None => Start::Zero,
        };
        for row in (0..a.rows).step_by(rows) {
            with_strips(|strips| {
                strips.pack_matrix(a.part(row, rows, from, depth));
                // SAFETY: as the caller guarantees.
                let written = unsafe { block::<PAIRS>(strips, b, start, &c.from(row, 0)) };
                assert_eq!(written, strips.rows() * b.columns, "a task is missing");
            });
        }
    }
}

/// Multiplies packed rows by a matrix that has as many rows as they have columns. With [`Start::There`], the whole target
/// must be initialised. Returns the number of results written.
///
/// # Safety
/// As for [`multiply_elements`].
unsafe fn block<const PAIRS: bool>(
    strips: &PackedA<MR_AVX512>,
    b: Matrix<'_>,
    start: Start<'_>,
    c: &Target<'_>,
) -> usize {
    let (rows, pairs) = (strips.rows(), b.columns.div_ceil(2 * NR));
    let threads = rayon::current_num_threads();
    let worth = (rows * b.rows * b.columns).div_ceil(TASK);
    // Enough tasks for load balance. Rows are divided only if there are few columns.
    let wanted = worth.min(if threads == 1 { 1 } else { 8 * threads });
    let share = pairs.div_ceil(wanted);
    let bands = pairs.div_ceil(share);
    let cuts = strips.cuts((wanted / bands).min(rows / ROWS));
    let run = |task: usize| {
        let (band, part) = (task % bands, task / bands);
        let part = [cuts[part], cuts[part + 1]];
        let mut panels = PANELS.take();
        let mut written = 0;
        let together = (GROUP / b.rows / 2).clamp(1, 4).min(share);
        panels.grow(2 * together * b.rows);
        for pair in (band * share..pairs.min((band + 1) * share)).step_by(together) {
            let column = pair * 2 * NR;
            let end = b.columns.min((band + 1) * share * 2 * NR);
            let width = (end - column).min(together * 2 * NR);
            // SAFETY: the caller guarantees that the CPU has AVX-512.
            unsafe { pack_panels(b, column, width, &mut panels) };
            // SAFETY: as above for the CPU. Each task has a different combination of a column band and a part of the rows, so
            // no other task accesses these elements, and `multiply` holds the exclusive borrow of the target. With
            // `Start::There`, the product of an earlier part of the depth has written all of them.
            unsafe {
                strips.multiply_at::<PAIRS>(part, &panels, b.rows, width, &c.from(0, column), start.from(column));
            }
            written += (part[1] - part[0]) * width;
        }
        PANELS.set(panels);
        written
    };
    let tasks = bands * (cuts.len() - 1);
    if tasks == 1 { run(0) } else { (0..tasks).into_par_iter().map(run).sum() }
}

/// Packs `width` columns from `column` on into panels.
#[target_feature(enable = "avx512f,avx2,fma")]
fn pack_panels(b: Matrix<'_>, column: usize, width: usize, panels: &mut [[f32; NR]]) {
    let depth = b.rows;
    let count = width.div_ceil(NR);
    if b.transposed || !width.is_multiple_of(NR) {
        for (p, panel) in panels.chunks_exact_mut(depth).take(count).enumerate() {
            pack(b.data, b.layout(), 0, column + p * NR, b.columns, panel);
        }
        return;
    }
    // Each row may be in another page of memory, which hardware prefetchers do not anticipate.
    for k in 0..depth {
        let row = &b.data[k * b.stride + column..][..width];
        for p in 0..count {
            let ahead = b.data.as_ptr().wrapping_add((k + AHEAD) * b.stride + column + p * NR);
            prefetch(ahead);
        }
        for p in 0..count {
            panels[p * depth + k] = *row[p * NR..].first_chunk().expect("a whole panel");
        }
    }
}
