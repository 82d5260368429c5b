//! Matrix products on slices.

#[cfg(target_arch = "x86_64")]
mod amx;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod avx512;
mod bands;
#[cfg(target_arch = "x86_64")]
mod bf16_tile;
#[cfg(target_arch = "x86_64")]
mod blocked;
mod converted;
mod element;
mod gemv;
mod microkernel;
mod pack;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod packed_a;
mod packed_b;
mod panel_rows;
mod results;
mod strip;
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
mod target;
#[cfg(target_arch = "x86_64")]
mod tiles;

use rayon::prelude::*;
use std::{borrow::Cow, cell::Cell};

use crate::{
    dispatch::{CpuCapability, TASK},
    fresh::by_chunks,
    half::{Bf16, Half, HalfFormat, narrowed},
};
pub(crate) use avx512::{MR_AVX512, Start, multiplies_bf16, usable as has_avx512, with_strips};
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::{by_height, microkernel as avx512_microkernel};
pub(crate) use bands::for_bands;
#[cfg(target_arch = "x86_64")]
pub(crate) use bf16_tile::transpose as transpose_tile;
pub(crate) use converted::{KC as CONVERTED_KC, Source, matmul_converted};
pub(crate) use element::Element;
use element::F32;
pub(crate) use gemv::{GEMV_ROWS, gemv};
pub(crate) use microkernel::{MR, NR, microkernel};
pub(crate) use pack::{Layout, pack};
pub(crate) use packed_a::{Filling, PackedA, transposed};
use packed_b::KC;
pub(crate) use packed_b::PackedB;
pub(crate) use panel_rows::PanelRows;
pub(crate) use results::{Results, Sums};
pub(crate) use target::Target;
#[cfg(target_arch = "x86_64")]
pub(crate) use tiles::Tiles;

/// Types of the results of products that are computed in f32.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) trait Rounded: Copy + Send {
    /// Rounds a result.
    fn rounded(sum: f32) -> Self;

    /// Rounds results.
    fn all(sums: Vec<f32>) -> Vec<Self>;
}

impl Rounded for f32 {
    #[inline(always)]
    fn rounded(sum: f32) -> Self {
        sum
    }

    fn all(sums: Vec<f32>) -> Vec<Self> {
        sums
    }
}

/// The bits of a bf16.
impl Rounded for u16 {
    #[inline(always)]
    fn rounded(sum: f32) -> Self {
        Bf16::rounded(sum)
    }

    fn all(sums: Vec<f32>) -> Vec<Self> {
        narrowed(HalfFormat::Bf16, &sums)
    }
}

/// A matrix in a slice.
#[derive(Clone, Copy)]
pub struct Matrix<'a, T = f32> {
    /// Elements. The rows may be separated by unused elements.
    pub data: &'a [T],
    /// Number of rows of the matrix.
    pub rows: usize,
    /// Number of columns of the matrix.
    pub columns: usize,
    /// Distance from one row in memory to the next, in elements.
    pub stride: usize,
    /// If true, the rows in memory are the columns of the matrix.
    pub transposed: bool,
}

/// Rows of a matrix of bf16. They have one length, and may overlap in memory.
#[derive(Clone, Copy)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) struct Runs<'a> {
    /// Elements of all rows.
    pub data: &'a [u16],
    /// First element of each row.
    pub starts: &'a [usize],
    /// Length of a row.
    pub len: usize,
}

impl<'a, T> Matrix<'a, T> {
    /// Views `data` as `rows` rows of `columns`.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Self {
        Self { data, rows, columns, stride: columns, transposed: false }
    }

    /// Returns the transpose, without a copy.
    #[must_use]
    pub fn transpose(self) -> Self {
        Self { rows: self.columns, columns: self.rows, transposed: !self.transposed, ..self }
    }

    /// Returns at most `rows` rows from `row` on, and at most `columns` columns from `column` on.
    fn part(self, row: usize, rows: usize, column: usize, columns: usize) -> Self {
        let at = if self.transposed { column * self.stride + row } else { row * self.stride + column };
        let data = &self.data[at.min(self.data.len())..];
        Self { data, rows: rows.min(self.rows - row), columns: columns.min(self.columns - column), ..self }
    }

    fn layout(&self) -> Layout {
        Layout { stride: self.stride, transposed: self.transposed }
    }

    pub(crate) fn check(&self) {
        let (outer, inner) = if self.transposed { (self.columns, self.rows) } else { (self.rows, self.columns) };
        let needed = if outer * inner == 0 { 0 } else { (outer - 1) * self.stride + inner };
        assert!(self.stride >= inner && self.data.len() >= needed, "{} elements are too few", self.data.len());
    }
}

impl<'a> Matrix<'a> {
    /// Returns the elements in row-major order, contiguously. For few rows, because this may copy.
    pub(crate) fn contiguous(self) -> Cow<'a, [f32]> {
        let Self { data, rows, columns, stride, .. } = self;
        if !self.transposed && (stride == columns || rows <= 1) {
            return Cow::Borrowed(&data[..rows * columns]);
        }
        let (down, across) = if self.transposed { (1, stride) } else { (stride, 1) };
        Cow::Owned((0..rows * columns).map(|i| data[i / columns * down + i % columns * across]).collect())
    }
}

/// Computes `c = a b + bias`. `c` is `[a.rows, b.columns]`. The bias, if any, is added to each row.
///
/// # Panics
/// If the sizes do not match.
pub fn matmul(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    check(&a, &b, bias);
    let columns = b.columns;
    assert!(c.len() == a.rows * columns, "{} elements are not {} rows of {columns}", c.len(), a.rows);
    if c.is_empty() {
        return;
    }
    if a.rows <= GEMV_ROWS && b.rows > 0 {
        return gemv::<F32>(a, b, bias, c);
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx512() && b.rows > 0 {
        return blocked::multiply(a, b, bias, &Target::of(c, columns));
    }
    c.par_chunks_mut(columns.max(TASK / columns * columns)).for_each(|c| match bias {
        Some(bias) => c.chunks_exact_mut(columns).for_each(|c| c.copy_from_slice(bias)),
        None => c.fill(0.0),
    });
    accumulate(a, b, c);
}

/// Like [`matmul`], in newly allocated memory.
///
/// # Panics
/// If the sizes do not match.
pub fn product(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>) -> Vec<f32> {
    check(&a, &b, bias);
    let (rows, columns) = (a.rows, b.columns);
    if rows <= GEMV_ROWS || columns == 0 {
        let mut c = vec![0.0; rows * columns];
        matmul(a, b, bias, &mut c);
        return c;
    }
    #[cfg(target_arch = "x86_64")]
    if has_avx512() && b.rows > 0 {
        return written(rows, columns, |c| blocked::multiply(a, b, bias, c));
    }
    let mut c = by_chunks(rows * columns, columns.max(TASK / columns * columns), |_, c| {
        if let Some(bias) = bias {
            c.chunks_exact_mut(columns).for_each(|c| c.copy_from_slice(bias));
        }
    });
    accumulate(a, b, &mut c);
    c
}

/// Like [`product`], for non-empty matrices of pairs of bf16; see [`blocked::multiply_pairs`].
///
/// # Panics
/// If the sizes do not match, or this CPU does not [multiply bf16](multiplies_bf16).
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(crate) fn pair_product(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>) -> Vec<f32> {
    check(&a, &b, bias);
    #[cfg(target_arch = "x86_64")]
    return written(a.rows, b.columns, |c| blocked::multiply_pairs(a, b, bias, c));
    #[cfg(not(target_arch = "x86_64"))]
    unreachable!("this CPU does not multiply bf16")
}

/// Computes `a b + bias` for non-empty matrices of bf16 with AMX; `None` if this CPU or the system has none.
///
/// # Panics
/// If the sizes do not match.
pub(crate) fn tile_product<T: Rounded>(a: Matrix<'_, u16>, b: Matrix<'_, u16>, bias: Option<&[f32]>) -> Option<Vec<T>> {
    let mut c = vec![];
    tile_product_in(a, b, bias, &mut c).then_some(c)
}

/// Like [`tile_product`], in place of what a vector has. Returns false if this CPU or the system has no AMX.
///
/// # Panics
/// If the sizes do not match.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(crate) fn tile_product_in<T: Rounded>(
    a: Matrix<'_, u16>,
    b: Matrix<'_, u16>,
    bias: Option<&[f32]>,
    c: &mut Vec<T>,
) -> bool {
    a.check();
    b.check();
    #[cfg(target_arch = "x86_64")]
    if multiplies_tiles() {
        let (right, size) = (bf16_tile::Operand::of_columns(b), [a.rows, b.columns]);
        let len = size[0] * size[1];
        c.clear();
        c.reserve(len);
        let sums = Sums::new(&mut c.spare_capacity_mut()[..len], size, bias);
        // SAFETY: `sums` is the exclusive borrow of the memory.
        let written = unsafe { amx::multiply(a, &right, &sums) };
        assert_eq!(written, len, "a task is missing");
        // SAFETY: all sums have been written.
        unsafe { c.set_len(len) };
        return true;
    }
    false
}

/// Multiplies a matrix by the matrix with the given rows, or its transpose, with AMX. Returns the number of elements
/// that `results` has written, or `None` if this CPU or the system has no AMX.
///
/// # Panics
/// If the sizes do not match.
///
/// # Safety
/// No other thread may access the memory of the results.
#[cfg_attr(not(target_arch = "x86_64"), allow(unused_variables))]
pub(crate) unsafe fn multiply_runs(
    a: Matrix<'_, u16>,
    b: Runs<'_>,
    transposed: bool,
    results: &impl Results,
) -> Option<usize> {
    a.check();
    #[cfg(target_arch = "x86_64")]
    if multiplies_tiles() {
        // SAFETY: the caller's promise.
        return Some(unsafe { amx::multiply(a, &bf16_tile::Operand::of_runs(b, transposed), results) });
    }
    None
}

/// Returns true if this CPU multiplies tiles of bf16, and their use is not disabled; see [`CpuCapability::get`].
pub(crate) fn multiplies_tiles() -> bool {
    CpuCapability::get() >= CpuCapability::Amx
}

/// Returns a new matrix that a function of [`blocked`] writes.
#[cfg(target_arch = "x86_64")]
fn written<T>(rows: usize, columns: usize, multiply: impl FnOnce(&Target<'_, T>)) -> Vec<T> {
    let mut c = Vec::with_capacity(rows * columns);
    multiply(&Target::new(&mut c.spare_capacity_mut()[..rows * columns], columns));
    // SAFETY: the capacity is at least `rows * columns`, and the function asserts that it has written all rows and columns.
    unsafe { c.set_len(rows * columns) };
    c
}

fn check(a: &Matrix<'_>, b: &Matrix<'_>, bias: Option<&[f32]>) {
    a.check();
    b.check();
    let ([rows, inner], [others, columns]) = ([a.rows, a.columns], [b.rows, b.columns]);
    assert!(inner == others, "a matrix of {rows} by {inner} cannot be multiplied by one of {others} by {columns}");
    assert!(bias.is_none_or(|bias| bias.len() == columns), "the bias does not have {columns} elements");
}

/// Adds the product to `c`. For more than a few rows.
fn accumulate(a: Matrix<'_>, b: Matrix<'_>, c: &mut [f32]) {
    let columns = b.columns;
    // Part by part of the depth, so that the panels stay in the last-level cache while all rows are processed.
    let depth = (PANELS / columns / KC * KC).max(KC);
    let mut memory = MEMORY.take();
    for from in (0..b.rows).step_by(depth) {
        let (a, b) = (a.part(0, a.rows, from, depth), b.part(from, depth, 0, columns));
        let panels = PackedB::reusing(memory, b.data, b.rows, columns, b.layout());
        add(a, &panels, c);
        memory = panels.into_memory();
    }
    if memory.len() * NR <= 2 * PANELS {
        MEMORY.set(memory);
    }
}

/// Maximum number of panel elements that are held at once, where possible: 4 MiB.
const PANELS: usize = 1 << 20;

thread_local! {
    /// Buffer of the last panels, reused because first-touch page faults of fresh memory would cost as much as packing.
    static MEMORY: Cell<PanelRows> = const { Cell::new(PanelRows::new()) };
}

/// Adds the product of a matrix and panels to `c`.
fn add(a: Matrix<'_>, panels: &PackedB, c: &mut [f32]) {
    let columns = c.len() / a.rows;
    // Few enough rows to stay in the second-level cache. A transposed matrix is read in pieces of its rows, which should not
    // be short; otherwise there are many tasks for balance.
    let most = (96 * 256 / a.columns.max(1)).clamp(8 * MR, 32 * MR);
    let threads = rayon::current_num_threads();
    let tasks = if a.transposed { threads * a.rows.div_ceil(threads * 96) } else { threads * 8 };
    let rows = a.rows.div_ceil(tasks).next_multiple_of(MR);
    let rows = if a.transposed { rows } else { rows.min(most.next_multiple_of(MR)) };
    c.par_chunks_mut(rows * columns).enumerate().for_each_init(Vec::new, |scratch, (i, c)| {
        let height = c.len() / columns;
        let a_part = a.part(i * rows, height, 0, a.columns);
        if a.transposed {
            panels.add_transposed(a_part.data, a.stride, height, c, columns, scratch);
        } else {
            panels.add(0, panels.count(), a_part.data, a.stride, height, c, columns);
        }
    });
}

/// Writes the sum of a matrix's rows. Each thread takes some of the columns, so that the summation order is fixed.
///
/// # Panics
/// If the sizes do not match, or the matrix is transposed.
pub fn sum_rows(a: Matrix<'_>, sums: &mut [f32]) {
    a.check();
    assert!(!a.transposed && a.columns == sums.len(), "{} sums of {} columns", sums.len(), a.columns);
    sums.fill(0.0);
    if a.rows == 0 || a.columns == 0 {
        return;
    }
    let tasks = (a.rows * a.columns).div_ceil(1 << 16).min(rayon::current_num_threads());
    let share = a.columns.div_ceil(tasks).next_multiple_of(NR);
    sums.par_chunks_mut(share).enumerate().for_each(|(task, sums)| {
        for row in 0..a.rows {
            let values = &a.data[row * a.stride + task * share..][..sums.len()];
            for (sum, value) in sums.iter_mut().zip(values) {
                *sum += value;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_rows() {
        for (rows, columns, stride) in [(0, 3, 3), (5, 1, 4), (700, 210, 210), (300, 1000, 1003)] {
            let data: Vec<f32> = (0..rows * stride).map(|i| ((i * 7919) % 113) as f32 - 50.0).collect();
            let mut sums = vec![f32::NAN; columns];
            sum_rows(Matrix { data: &data, rows, columns, stride, transposed: false }, &mut sums);
            for (column, sum) in sums.iter().enumerate() {
                assert_eq!(*sum, (0..rows).map(|row| data[row * stride + column]).sum::<f32>());
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        // Many columns; few columns with many rows; more depth and rows than are packed at once.
        for (m, k, n) in [(30, 100, 3000), (700, 300, 40), (1100, 1300, 70)] {
            let a: Vec<f32> = (0..m * k).map(|i| ((i * 7919) % 113) as f32 / 50.0 - 1.0).collect();
            let b: Vec<f32> = (0..k * n).map(|i| ((i * 104_729) % 97) as f32 / 50.0 - 1.0).collect();
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| product(Matrix::new(&a, m, k), Matrix::new(&b, k, n), None))
            };
            let one = with(1);
            for threads in [2, 3, 8] {
                assert!(with(threads) == one, "{m} {k} {n} on {threads} threads");
            }
        }
    }

    #[test]
    fn sizes_and_layouts() {
        for (m, k, n) in [
            (0, 3, 4),
            (3, 0, 4),
            (1, 1, 1),
            (5, 7, 9),
            (1, 600, 1100),
            (2, 17, 1037),
            (4, 2100, 33),
            (2, 530, 8000),
            (6, 256, 16),
            (13, 300, 33),
            (100, 17, 70),
            (201, 520, 18),
            (7, 600, 4200),
            (7, 2100, 70),
            (1100, 1030, 40),
        ] {
            // Miri would take hours for the other sizes.
            if cfg!(miri) && m * k * n > 1000 {
                continue;
            }
            let a: Vec<f32> = (0..m * k).map(|i| ((i * 7919) % 113) as f32 / 50.0 - 1.0).collect();
            let b: Vec<f32> = (0..k * n).map(|i| ((i * 104_729) % 97) as f32 / 50.0 - 1.0).collect();
            let bias: Vec<f32> = (0..n).map(|i| (i % 50) as f32).collect();
            let turned = |x: &[f32], rows: usize, columns: usize| -> Vec<f32> {
                (0..rows * columns).map(|i| x[i % rows * columns + i / rows]).collect()
            };
            let (a_turned, b_turned) = (turned(&a, m, k), turned(&b, k, n));
            let a_both = [Matrix::new(&a, m, k), Matrix::new(&a_turned, k, m).transpose()];
            let b_both = [Matrix::new(&b, k, n), Matrix::new(&b_turned, n, k).transpose()];
            for a_form in a_both {
                for b_form in b_both {
                    let mut c = vec![f32::NAN; m * n];
                    matmul(a_form, b_form, Some(&bias), &mut c);
                    assert_eq!(product(a_form, b_form, Some(&bias)), c);
                    for (at, found) in c.iter().enumerate() {
                        let (i, j) = (at / n, at % n);
                        let expected: f64 =
                            (0..k).map(|p| f64::from(a[i * k + p]) * f64::from(b[p * n + j])).sum::<f64>()
                                + (j % 50) as f64;
                        let close = (f64::from(*found) - expected).abs() < 1e-4f64.max(1e-7 * k as f64);
                        assert!(close, "{m} {k} {n}: {found} {expected}");
                    }
                }
            }
        }
    }
}
