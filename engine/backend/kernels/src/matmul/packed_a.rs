//! Packed A: the left-hand matrix of a product in the order in which the microkernels read it.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{__m128, _MM_TRANSPOSE4_PS, _mm_loadu_ps, _mm_storeu_ps};

use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::{Matrix, microkernel::NR};
use crate::dispatch::TASK;

/// Packed rows of a left-hand matrix for microkernels of at most `H` rows: the columns of each strip in turn. The unused
/// elements of a strip with fewer rows are arbitrary.
#[derive(Default)]
pub(crate) struct PackedA<const H: usize> {
    rows: usize,
    depth: usize,
    data: Vec<[f32; H]>,
}

impl<const H: usize> PackedA<H> {
    /// Extends the buffer for `rows` rows of length `depth`.
    fn clear(&mut self, rows: usize, depth: usize) {
        (self.rows, self.depth) = (rows, depth);
        let needed = rows.div_ceil(H) * depth;
        if self.data.len() < needed {
            self.data.resize(needed, [0.0; H]);
        }
    }

    /// Packs `rows` rows whose columns consist of `parts` parts of `each` columns. `fill` fills the strips on several
    /// threads; it gets the first row and the height of each strip.
    ///
    /// # Panics
    /// If a strip is not filled completely.
    pub fn written(
        rows: usize,
        [parts, each]: [usize; 2],
        fill: impl Fn(usize, usize, &mut Filling<'_, H>) + Sync,
    ) -> Self {
        let strip_bounds: Vec<_> = strip_bounds::<H>(rows).collect();
        let depth = parts * each;
        let len = strip_bounds.len() * depth;
        let mut data = Vec::with_capacity(len);
        if depth > 0 {
            let strips = data.spare_capacity_mut()[..len].par_chunks_exact_mut(depth);
            assert_eq!(strips.len(), strip_bounds.len(), "as many strips as strip_bounds");
            strips.zip(&strip_bounds).for_each(|(strip, &(row, height))| {
                let mut filling = Filling { strip, each, filled: vec![0; parts] };
                fill(row, height, &mut filling);
                assert!(filling.filled.iter().all(|&filled| filled == each), "a strip has unfilled columns");
            });
        }
        // SAFETY: the strips cover the first `len` elements, and each strip is asserted to be full. Only `Filling::push`
        // counts elements, after writing them.
        unsafe { data.set_len(len) };
        Self { rows, depth, data }
    }

    /// Returns true if the rows exist, a strip starts at `from`, and a strip ends at `to`.
    pub fn begin_and_end(&self, [from, to]: [usize; 2]) -> bool {
        let edge = |at: usize| at == self.rows || strip_bounds::<H>(self.rows).any(|(row, _)| row == at);
        from <= to && edge(from) && edge(to)
    }

    /// Returns the number of packed rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the length of a row.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns each strip: its first row, its height (heights are as even as possible) and its columns.
    #[inline(always)]
    pub fn each(&self) -> impl Iterator<Item = (usize, usize, &[[f32; H]])> {
        let strip = |i: usize| &self.data[i * self.depth..][..self.depth];
        strip_bounds::<H>(self.rows).enumerate().map(move |(i, (row, height))| (row, height, strip(i)))
    }

    /// Returns the strips of [`each`](Self::each) that are within `from..to`. The range should start and end at strip
    /// boundaries.
    #[inline(always)]
    pub fn within(&self, [from, to]: [usize; 2]) -> impl Iterator<Item = (usize, usize, &[[f32; H]])> {
        self.each().skip_while(move |strip| strip.0 < from).take_while(move |&(row, height, _)| row + height <= to)
    }

    /// Packs rows of `a`. `start` returns the index at which a row starts.
    pub fn pack(&mut self, a: &[f32], start: impl Fn(usize) -> usize, rows: usize, depth: usize) {
        self.clear(rows, depth);
        for (number, (row, height)) in strip_bounds::<H>(rows).enumerate() {
            let strip = &mut self.data[number * depth..][..depth];
            pack_rows(|i| &a[start(row + i)..][..depth], height, strip);
        }
    }

    /// Packs a matrix, in parallel if that is worthwhile.
    pub fn pack_matrix(&mut self, a: Matrix<'_>) {
        self.clear(a.rows, a.columns);
        let depth = a.columns;
        if depth == 0 {
            return;
        }
        let strip_bounds: Vec<_> = strip_bounds::<H>(a.rows).collect();
        let data = &mut self.data[..strip_bounds.len() * depth];
        let min = TASK.div_ceil(H * depth);
        data.par_chunks_exact_mut(depth).zip(&strip_bounds).with_min_len(min).for_each(|(strip, &(row, height))| {
            if a.transposed {
                take_columns(&a.data[row..], a.stride, height, 0, strip);
            } else {
                pack_rows(|i| &a.data[(row + i) * a.stride..][..depth], height, strip);
            }
        });
    }

    /// Returns the boundaries of `parts` parts of whole strips, with about equal numbers of rows.
    pub fn cuts(&self, parts: usize) -> Vec<usize> {
        let strips = self.rows.div_ceil(H);
        let parts = parts.clamp(1, strips.max(1));
        (0..=parts).map(|i| self.rows * (strips * i / parts) / strips.max(1)).collect()
    }

    /// Packs the first `columns` columns of `depth` rows that are `stride` apart.
    pub fn pack_columns(&mut self, a: &[f32], stride: usize, columns: usize, depth: usize) {
        self.clear(columns, depth);
        // Several rows at once, which stay in the first-level cache, so that the writes to a strip are adjacent.
        for from in (0..depth).step_by(NR) {
            let to = (from + NR).min(depth);
            for (number, (column, width)) in strip_bounds::<H>(columns).enumerate() {
                let strip = &mut self.data[number * depth..][..depth];
                take_columns(&a[column..], stride, width, from, &mut strip[from..to]);
            }
        }
    }
}

/// Columns of a strip during packing, in parts of equal length. Each part is filled from its start to its end.
pub(crate) struct Filling<'a, const H: usize> {
    strip: &'a mut [MaybeUninit<[f32; H]>],
    each: usize,
    /// Number of filled columns of each part.
    filled: Vec<usize>,
}

impl<const H: usize> Filling<'_, H> {
    /// Appends columns to a part.
    ///
    /// # Panics
    /// If the part does not exist or has no room.
    #[inline]
    pub fn push(&mut self, part: usize, columns: &[[f32; H]]) {
        let from = self.filled[part];
        let free = &mut self.strip[part * self.each..][..self.each][from..][..columns.len()];
        for (to, column) in free.iter_mut().zip(columns) {
            to.write(*column);
        }
        self.filled[part] = from + columns.len();
    }
}

/// Packs rows into a strip.
#[inline(always)]
pub(super) fn pack_rows<'a, const H: usize>(row: impl Fn(usize) -> &'a [f32], height: usize, strip: &mut [[f32; H]]) {
    let mut i = 0;
    while i + 4 <= height {
        transpose_four([row(i), row(i + 1), row(i + 2), row(i + 3)], i, strip);
        i += 4;
    }
    for i in i..height {
        for (column, &value) in strip.iter_mut().zip(row(i)) {
            column[i] = value;
        }
    }
}

/// Packs the first `width` columns of the rows from `from` on, `stride` apart, into a part of a strip.
fn take_columns<const H: usize>(a: &[f32], stride: usize, width: usize, from: usize, strip: &mut [[f32; H]]) {
    for (k, to) in strip.iter_mut().enumerate() {
        let values = &a[(from + k) * stride..];
        match values.first_chunk::<H>() {
            // The excess elements are not used, and a copy of constant length is not a function call.
            Some(values) => *to = *values,
            None => to[..width].copy_from_slice(&values[..width]),
        }
    }
}

/// Returns the first row and the height of each strip of `rows` rows. Heights are as even as possible.
#[inline(always)]
pub(super) fn strip_bounds<const H: usize>(rows: usize) -> impl Iterator<Item = (usize, usize)> {
    let count = rows.div_ceil(H);
    (0..count).map(move |i| (rows * i / count, rows * (i + 1) / count - rows * i / count))
}

/// Transposes four rows into the columns of a strip, from row `at` of the strip on.
fn transpose_four<const H: usize>(rows: [&[f32]; 4], at: usize, strip: &mut [[f32; H]]) {
    let depth = strip.len();
    let [w, x, y, z] = rows.map(|row| row[..depth].as_chunks::<4>());
    for (k, strip) in strip.chunks_exact_mut(4).enumerate() {
        let columns = transposed([w.0[k], x.0[k], y.0[k], z.0[k]]);
        for i in 0..4 {
            strip[i][at..at + 4].copy_from_slice(&columns[i]);
        }
    }
    for k in depth / 4 * 4..depth {
        strip[k][at..at + 4].copy_from_slice(&rows.map(|row| row[k]));
    }
}

/// Transposes a 4 x 4 matrix in registers.
#[inline(always)]
pub(crate) fn transposed(rows: [[f32; 4]; 4]) -> [[f32; 4]; 4] {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: each load and store accesses four elements of an array of four. Every x86-64 CPU has SSE.
    unsafe {
        let [mut w, mut x, mut y, mut z]: [__m128; 4] = [
            _mm_loadu_ps(rows[0].as_ptr()),
            _mm_loadu_ps(rows[1].as_ptr()),
            _mm_loadu_ps(rows[2].as_ptr()),
            _mm_loadu_ps(rows[3].as_ptr()),
        ];
        _MM_TRANSPOSE4_PS(&mut w, &mut x, &mut y, &mut z);
        let mut columns = [[0.0; 4]; 4];
        _mm_storeu_ps(columns[0].as_mut_ptr(), w);
        _mm_storeu_ps(columns[1].as_mut_ptr(), x);
        _mm_storeu_ps(columns[2].as_mut_ptr(), y);
        _mm_storeu_ps(columns[3].as_mut_ptr(), z);
        columns
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::array::from_fn(|i| rows.map(|row| row[i]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::catch_unwind;

    #[test]
    fn fills_every_column() {
        let strips = PackedA::<4>::written(9, [3, 5], |row, _, filling| {
            for part in [2, 0, 1] {
                filling.push(part, &[[(row * 10 + part) as f32; 4]; 2]);
                filling.push(part, &[[(row * 10 + part) as f32 + 0.5; 4]; 3]);
            }
        });
        for (row, _, columns) in strips.each() {
            for (k, column) in columns.iter().enumerate() {
                let part = (row * 10 + k / 5) as f32;
                assert_eq!(*column, [if k % 5 < 2 { part } else { part + 0.5 }; 4]);
            }
        }
    }

    #[test]
    fn rejects_unfilled_strips() {
        let with = |counts: [usize; 2]| {
            catch_unwind(move || {
                PackedA::<4>::written(1, [2, 3], |_, _, filling| {
                    for (part, count) in counts.into_iter().enumerate() {
                        filling.push(part, &vec![[1.0; 4]; count]);
                    }
                })
            })
        };
        assert!(with([3, 3]).is_ok());
        assert!(with([3, 2]).is_err() && with([4, 2]).is_err() && with([3, 4]).is_err());
    }

    #[test]
    fn knows_where_strips_begin_and_end() {
        let mut strips = PackedA::<6>::default();
        strips.pack(&[0.0; 20], |row| row, 20, 1);
        // 20 rows form strips of 5.
        assert!(strips.begin_and_end([0, 20]) && strips.begin_and_end([5, 15]) && strips.begin_and_end([20, 20]));
        assert!(!strips.begin_and_end([0, 6]) && !strips.begin_and_end([1, 20]) && !strips.begin_and_end([0, 25]));
        assert!(!strips.begin_and_end([15, 5]));
    }
}
