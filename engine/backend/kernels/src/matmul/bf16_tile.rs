//! Packing of matrices of bf16 into tiles: 16 lines of 16 pairs of numbers that follow each other along the summed axis.

use std::arch::x86_64::{
    __m512, _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_ps, _mm512_shuffle_f32x4, _mm512_storeu_ps,
    _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

use super::{
    Matrix, Runs,
    amx::{NUMBERS, TILE},
};
use crate::{dispatch::prefetch, half::joined};

type Tile = [[f32; TILE]; TILE];

/// An operand of a product: vectors along the summed axis.
pub(super) struct Operand<'a> {
    data: &'a [u16],
    starts: Starts<'a>,
    /// Number of vectors.
    vectors: usize,
    /// Length of a vector.
    depth: usize,
    /// If true, each vector is contiguous. Otherwise, the vectors' elements at each position are.
    contiguous: bool,
}

/// First elements of the rows in memory.
enum Starts<'a> {
    /// Rows at a fixed distance.
    Every(usize),
    At(&'a [usize]),
}

impl<'a> Operand<'a> {
    /// Views the rows of a left-hand matrix.
    pub fn of_rows(m: Matrix<'a, u16>) -> Self {
        let starts = Starts::Every(m.stride);
        Self { data: m.data, starts, vectors: m.rows, depth: m.columns, contiguous: !m.transposed }
    }

    /// Views the columns of a right-hand matrix.
    pub fn of_columns(m: Matrix<'a, u16>) -> Self {
        Self::of_rows(m.transpose())
    }

    /// Views the columns of a right-hand matrix with the given rows, or of its transpose.
    pub fn of_runs(runs: Runs<'a>, transposed: bool) -> Self {
        let Runs { data, starts, len } = runs;
        let (vectors, depth) = if transposed { (starts.len(), len) } else { (len, starts.len()) };
        Self { data, starts: Starts::At(starts), vectors, depth, contiguous: transposed }
    }

    /// Returns the number of vectors.
    pub fn vectors(&self) -> usize {
        self.vectors
    }

    /// Returns the length of a vector.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the elements of a row in memory from `from` on.
    #[inline(always)]
    fn row(&self, row: usize, from: usize, len: usize) -> &[u16] {
        let start = match self.starts {
            Starts::Every(stride) => row * stride,
            Starts::At(starts) => starts[row],
        };
        &self.data[start + from..][..len]
    }

    /// Packs [`TILE`] vectors from `vector` on, [`NUMBERS`] elements from `from` on: a line for each vector. What is beyond the
    /// end is 0.
    #[inline(always)]
    pub fn rows_to(&self, vector: usize, from: usize, tile: &mut Tile) {
        match self.contiguous {
            true => self.copy(vector, from, tile),
            false => {
                self.join(vector, from, tile);
                // SAFETY: the callers have checked the CPU's instructions.
                unsafe { transpose(tile) }
            }
        }
    }

    /// Like [`rows_to`](Self::rows_to), with a line for each pair of elements.
    #[inline(always)]
    pub fn columns_to(&self, vector: usize, from: usize, tile: &mut Tile) {
        match self.contiguous {
            true => {
                self.copy(vector, from, tile);
                // SAFETY: as above.
                unsafe { transpose(tile) }
            }
            false => self.join(vector, from, tile),
        }
    }

    /// Copies pairs of contiguous vectors.
    #[inline(always)]
    fn copy(&self, vector: usize, from: usize, tile: &mut Tile) {
        let (count, len) =
            (self.vectors.saturating_sub(vector).min(TILE), self.depth.saturating_sub(from).min(NUMBERS));
        if count < TILE || len < NUMBERS {
            *tile = [[0.0; TILE]; TILE];
        }
        for (i, line) in tile.iter_mut().enumerate().take(count) {
            let numbers = self.row(vector + i, from, len);
            match numbers.first_chunk::<NUMBERS>() {
                Some(numbers) => *line = pairs(*numbers),
                None => {
                    let mut all = [0; NUMBERS];
                    all[..len].copy_from_slice(numbers);
                    *line = pairs(all);
                }
            }
        }
    }

    /// Joins the elements of neighbouring positions. The next two panels are read soon; their elements are too far apart for the
    /// hardware prefetcher.
    #[inline(always)]
    fn join(&self, vector: usize, from: usize, tile: &mut Tile) {
        let (count, len) =
            (self.vectors.saturating_sub(vector).min(TILE), self.depth.saturating_sub(from).min(NUMBERS));
        let at = |k: usize| -> [u16; TILE] {
            if k >= len || count == 0 {
                return [0; TILE];
            }
            let numbers = self.row(from + k, vector, count);
            prefetch(numbers.as_ptr().wrapping_add(2 * TILE));
            match numbers.first_chunk::<TILE>() {
                Some(numbers) => *numbers,
                None => {
                    let mut all = [0; TILE];
                    all[..count].copy_from_slice(numbers);
                    all
                }
            }
        };
        for (pair, line) in tile.iter_mut().enumerate() {
            let (first, second) = (at(2 * pair), at(2 * pair + 1));
            for i in 0..TILE {
                line[i] = joined([first[i], second[i]]);
            }
        }
    }
}

/// Views numbers as pairs, the first one in the lower bits.
#[inline(always)]
fn pairs(numbers: [u16; NUMBERS]) -> [f32; TILE] {
    // SAFETY: both types are 64 bytes, of which every value is valid. x86 has the first number in the lower bits.
    unsafe { std::mem::transmute::<[u16; NUMBERS], [f32; TILE]>(numbers) }
}

/// Transposes a tile.
#[target_feature(enable = "avx512f")]
#[inline]
pub(crate) fn transpose(tile: &mut Tile) {
    // SAFETY: each load and store accesses a line of 16 elements.
    let mut lines: [__m512; TILE] = std::array::from_fn(|i| unsafe { _mm512_loadu_ps(tile[i].as_ptr()) });
    let doubles = |x, y| {
        let (x, y) = (_mm512_castps_pd(x), _mm512_castps_pd(y));
        [_mm512_castpd_ps(_mm512_unpacklo_pd(x, y)), _mm512_castpd_ps(_mm512_unpackhi_pd(x, y))]
    };
    // Within each quarter of four lines: elements 4 q + j of the four lines become line j's quarter q.
    for four in lines.as_chunks_mut::<4>().0 {
        let [w, x, y, z] = *four;
        let (low, high) = (
            [_mm512_unpacklo_ps(w, x), _mm512_unpacklo_ps(y, z)],
            [_mm512_unpackhi_ps(w, x), _mm512_unpackhi_ps(y, z)],
        );
        let ([a, b], [c, d]) = (doubles(low[0], low[1]), doubles(high[0], high[1]));
        *four = [a, b, c, d];
    }
    // Quarters of lines j, 4 + j, 8 + j and 12 + j.
    for j in 0..4 {
        let [w, x, y, z] = [lines[j], lines[4 + j], lines[8 + j], lines[12 + j]];
        let (a, b) = (_mm512_shuffle_f32x4::<0x88>(w, x), _mm512_shuffle_f32x4::<0xdd>(w, x));
        let (c, d) = (_mm512_shuffle_f32x4::<0x88>(y, z), _mm512_shuffle_f32x4::<0xdd>(y, z));
        let columns = [
            _mm512_shuffle_f32x4::<0x88>(a, c),
            _mm512_shuffle_f32x4::<0x88>(b, d),
            _mm512_shuffle_f32x4::<0xdd>(a, c),
            _mm512_shuffle_f32x4::<0xdd>(b, d),
        ];
        for (quarter, column) in columns.into_iter().enumerate() {
            // SAFETY: as above.
            unsafe { _mm512_storeu_ps(tile[4 * quarter + j].as_mut_ptr(), column) };
        }
    }
}
