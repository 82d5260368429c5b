//! Attention of a single query per head, as in token-by-token decoding. Keys and values are read only once.

use std::{hint::black_box, ops::Range};

use super::{Attention, Heads, Rows, forward::Scratch, key_heads::Keys, weigh, zeros};
use crate::{
    Dropout,
    dispatch::{prefetch, vectorized},
    math::{add_products, fma},
};

/// Number of elements of keys or values that all heads of a group process before the next ones are read. They and those that
/// are prefetched fit in the first-level cache.
const BLOCK: usize = 1 << 12;

/// Number of lanes of a sum.
const LANES: usize = 16;

/// Number of columns of values whose sums stay in registers.
const COLUMNS: usize = 64;

impl Attention<'_> {
    /// Computes some heads of a group, from `first` on, with one query each.
    pub(super) fn gather_once(
        &self,
        [i, first]: [usize; 2],
        q: Heads<'_>,
        k: Keys<'_>,
        v: Keys<'_>,
        scratch: &mut Scratch,
        rows: &mut [Rows<'_>],
    ) {
        rows.iter_mut().for_each(|rows| rows[0].fill(0.0));
        let keys = self.keys(i, 0, 1);
        if keys.is_empty() {
            return;
        }
        let (s, d, count) = (keys.len(), self.head_dim, rows.len());
        let block = (BLOCK / d / 4 * 4).max(4);
        let part_of_keys = |part: &Range<usize>| keys.start + part.start..keys.start + part.end;
        let scores = zeros(&mut scratch.scores, count * s);
        // While the heads process a block, each prefetches a part of the next block.
        let ahead = |x: Keys<'_>, from: usize, j: usize| {
            let next = x.rows(part_of_keys(&(from..s.min(from + block))), d);
            let part = |j: usize| next.count * j / count;
            Ahead { base: next.base.wrapping_add(part(j) * next.stride), count: part(j + 1) - part(j), ..next }
        };
        for from in (0..s).step_by(block) {
            let here = from..s.min(from + block);
            let (part, stride) = k.read(part_of_keys(&here), d, &mut scratch.converted);
            for (j, scores) in scores.chunks_exact_mut(s).enumerate() {
                let ahead = if here.end < s { ahead(k, here.end, j) } else { ahead(v, 0, j) };
                score(&q.head(i, first + j)[..d], part, stride, ahead, &mut scores[here.clone()]);
            }
        }
        for (head, scores) in (first..).zip(scores.chunks_exact_mut(s)) {
            weigh(self, [i, head, 0], keys.clone(), scores);
            self.dropout_rows(Dropout::apply_from, [i, head, 0], keys.clone(), scores);
        }
        for from in (0..s).step_by(block) {
            let here = from..s.min(from + block);
            let (part, stride) = v.read(part_of_keys(&here), d, &mut scratch.converted);
            for (j, (weights, rows)) in scores.chunks_exact(s).zip(rows.iter_mut()).enumerate() {
                sum(&weights[here.clone()], part, stride, ahead(v, here.end, j), rows[0]);
            }
        }
    }
}

/// Rows to prefetch, in bytes.
#[derive(Clone, Copy)]
pub(super) struct Ahead {
    /// Beginning of the first row.
    pub base: *const u8,
    /// Number of rows.
    pub count: usize,
    /// Distance from one row to the next.
    pub stride: usize,
    /// Size of a row.
    pub size: usize,
}

impl Ahead {
    /// Prefetches one of at most `parts` parts of the rows.
    #[inline(always)]
    fn prefetch(self, part: usize, parts: usize) {
        let rows = self.count.div_ceil(parts);
        for row in part * rows..self.count.min((part + 1) * rows) {
            for line in (0..self.size).step_by(64) {
                prefetch(self.base.wrapping_add(row * self.stride + line));
            }
        }
    }
}

vectorized! {
    /// Computes the dot products of a query with keys.
    fn score<FUSED>(q: &[f32], k: &[f32], stride: usize, ahead: Ahead, scores: &mut [f32]) {
        let (chunks, rest) = q.as_chunks::<LANES>();
        let row = |i: usize| k[i * stride..][..q.len()].as_chunks::<LANES>();
        let (fours, last) = scores.as_chunks_mut::<4>();
        let count = fours.len();
        for (i, scores) in fours.iter_mut().enumerate() {
            let (k0, k1, k2, k3) = (row(4 * i).0, row(4 * i + 1).0, row(4 * i + 2).0, row(4 * i + 3).0);
            ahead.prefetch(i, count);
            let (mut s0, mut s1, mut s2, mut s3) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
            for ((((q, k0), k1), k2), k3) in chunks.iter().zip(k0).zip(k1).zip(k2).zip(k3) {
                s0 = add_products::<FUSED, LANES>(s0, k0, q);
                s1 = add_products::<FUSED, LANES>(s1, k1, q);
                s2 = add_products::<FUSED, LANES>(s2, k2, q);
                s3 = add_products::<FUSED, LANES>(s3, k3, q);
            }
            *scores = totals([s0, s1, s2, s3]);
        }
        for (i, score) in (4 * fours.len()..).zip(last) {
            let mut sum = [0.0; LANES];
            for (q, k) in chunks.iter().zip(row(i).0) {
                sum = add_products::<FUSED, LANES>(sum, k, q);
            }
            *score = totals([sum, [0.0; LANES], [0.0; LANES], [0.0; LANES]])[0];
        }
        if !rest.is_empty() {
            for (i, score) in scores.iter_mut().enumerate() {
                for (q, k) in rest.iter().zip(row(i).1) {
                    *score = fma::<FUSED>(*q, *k, *score);
                }
            }
        }
    }
}

/// Adds lanes of a sum until four are left.
#[inline(always)]
fn four_lanes(x: [f32; LANES]) -> [f32; 4] {
    let half: [f32; LANES / 2] = std::array::from_fn(|j| x[j] + x[j + LANES / 2]);
    std::array::from_fn(|j| half[j] + half[j + 4])
}

/// Returns the totals of four sums.
#[inline(always)]
fn totals(sums: [[f32; LANES]; 4]) -> [f32; 4] {
    // Hidden from the compiler, which would otherwise keep lanes of different sums in one register from the beginning.
    let sums = black_box(sums.map(four_lanes));
    sums.map(|[a, b, c, d]| (a + c) + (b + d))
}

vectorized! {
    /// Adds the weighted values.
    fn sum<FUSED>(weights: &[f32], v: &[f32], stride: usize, ahead: Ahead, row: &mut [f32]) {
        let (n, none) = (row.len(), Ahead { count: 0, ..ahead });
        // The first columns prefetch whole rows.
        let mut ahead = ahead;
        let mut next = || std::mem::replace(&mut ahead, none);
        let (wide, rest) = row.as_chunks_mut::<COLUMNS>();
        for (i, row) in wide.iter_mut().enumerate() {
            sum_columns::<FUSED, COLUMNS>(weights, &v[i * COLUMNS..], stride, next(), row);
        }
        let from = n - rest.len();
        let (narrow, rest) = rest.as_chunks_mut::<LANES>();
        for (i, row) in narrow.iter_mut().enumerate() {
            sum_columns::<FUSED, LANES>(weights, &v[from + i * LANES..], stride, next(), row);
        }
        let from = n - rest.len();
        for (i, row) in rest.iter_mut().enumerate() {
            sum_columns::<FUSED, 1>(weights, &v[from + i..], stride, next(), std::array::from_mut(row));
        }
    }
}

/// Adds the weighted values of `N` columns, whose sums stay in registers.
#[inline(always)]
fn sum_columns<const FUSED: bool, const N: usize>(
    weights: &[f32],
    v: &[f32],
    stride: usize,
    ahead: Ahead,
    row: &mut [f32; N],
) {
    let mut sum = *row;
    let value = |at: usize| -> &[f32; N] { v[at * stride..].first_chunk().expect("a row of values") };
    let (fours, rest) = weights.as_chunks::<4>();
    for (i, &[a, b, c, d]) in fours.iter().enumerate() {
        let (v0, v1, v2, v3) = (value(4 * i), value(4 * i + 1), value(4 * i + 2), value(4 * i + 3));
        ahead.prefetch(i, fours.len());
        let mut next = [0.0; N];
        for j in 0..N {
            let low = fma::<FUSED>(b, v1[j], fma::<FUSED>(a, v0[j], sum[j]));
            next[j] = low + fma::<FUSED>(d, v3[j], c * v2[j]);
        }
        sum = next;
    }
    for (i, &weight) in rest.iter().enumerate() {
        let v = value(4 * fours.len() + i);
        let mut next = [0.0; N];
        for j in 0..N {
            next[j] = fma::<FUSED>(weight, v[j], sum[j]);
        }
        sum = next;
    }
    *row = sum;
}
