//! Attention of a single query per head, as in token-by-token decoding. Keys and values are read only once.

use super::{Attention, Heads, Rows, forward::Scratch, weigh, zeros};
use crate::{
    Dropout,
    dispatch::{prefetch, vectorized},
    math::{add_products, fma, total_of_products},
};

/// Number of keys or values that all heads of a group process before the next ones are read.
const BLOCK: usize = 64;

/// Distance in elements at which the first head of a group prefetches keys and values.
const AHEAD: usize = 1 << 11;

/// Number of lanes of a sum.
const LANES: usize = 8;

impl Attention<'_> {
    /// Computes some heads of a group, from `first` on, with one query each.
    pub(super) fn gather_once(
        &self,
        [i, first]: [usize; 2],
        q: Heads<'_>,
        (k, k_stride): (&[f32], usize),
        (v, v_stride): (&[f32], usize),
        scratch: &mut Scratch,
        rows: &mut [Rows<'_>],
    ) {
        rows.iter_mut().for_each(|rows| rows[0].fill(0.0));
        let keys = self.keys(i, 0, 1);
        if keys.is_empty() {
            return;
        }
        let (s, d) = (keys.len(), self.head_dim);
        let [k, v] = [&k[keys.start * k_stride..], &v[keys.start * v_stride..]];
        let scores = zeros(&mut scratch.scores, rows.len() * s);
        for from in (0..s).step_by(BLOCK) {
            for (head, scores) in (first..).zip(scores.chunks_exact_mut(s)) {
                let scores = &mut scores[from..s.min(from + BLOCK)];
                score(&q.head(i, head)[..d], &k[from * k_stride..], k_stride, head == first, scores);
            }
        }
        for (head, scores) in (first..).zip(scores.chunks_exact_mut(s)) {
            weigh(self, [i, head, 0], keys.clone(), scores);
            self.dropout_rows(Dropout::apply_from, [i, head, 0], keys.clone(), scores);
        }
        for from in (0..s).step_by(BLOCK) {
            for (j, (weights, rows)) in scores.chunks_exact(s).zip(rows.iter_mut()).enumerate() {
                sum(&weights[from..s.min(from + BLOCK)], &v[from * v_stride..], v_stride, j == 0, rows[0]);
            }
        }
    }
}

/// Prefetches four rows of `n` elements, [`AHEAD`] elements after `at`.
#[inline(always)]
fn prefetch_rows(data: &[f32], at: usize, stride: usize, n: usize) {
    for row in 0..4 {
        let row = data.as_ptr().wrapping_add(at + AHEAD + row * stride);
        for line in (0..n).step_by(16) {
            prefetch(row.wrapping_add(line));
        }
    }
}

vectorized! {
    /// Computes the dot products of a query with keys. If `far` is true, the keys are not in cache.
    fn score<FUSED>(q: &[f32], k: &[f32], stride: usize, far: bool, scores: &mut [f32]) {
        let (chunks, rest) = q.as_chunks::<LANES>();
        let (count, last) = (chunks.len(), scores.len().max(1) - 1);
        for (i, scores) in scores.chunks_mut(4).enumerate() {
            // If fewer than four keys are left, the last one is repeated.
            let row = |j: usize| {
                let row = &k[last.min(4 * i + j) * stride..][..q.len()];
                (&row.as_chunks::<LANES>().0[..count], &row[count * LANES..])
            };
            let ((k0, rest0), (k1, rest1), (k2, rest2), (k3, rest3)) = (row(0), row(1), row(2), row(3));
            if far {
                prefetch_rows(k, 4 * i * stride, stride, q.len());
            }
            let (mut s0, mut s1, mut s2, mut s3) = ([0.0; LANES], [0.0; LANES], [0.0; LANES], [0.0; LANES]);
            for c in 0..count {
                s0 = add_products::<FUSED, LANES>(s0, &k0[c], &chunks[c]);
                s1 = add_products::<FUSED, LANES>(s1, &k1[c], &chunks[c]);
                s2 = add_products::<FUSED, LANES>(s2, &k2[c], &chunks[c]);
                s3 = add_products::<FUSED, LANES>(s3, &k3[c], &chunks[c]);
            }
            let totals = [
                total_of_products::<FUSED, LANES>(s0, rest0, rest),
                total_of_products::<FUSED, LANES>(s1, rest1, rest),
                total_of_products::<FUSED, LANES>(s2, rest2, rest),
                total_of_products::<FUSED, LANES>(s3, rest3, rest),
            ];
            scores.copy_from_slice(&totals[..scores.len()]);
        }
    }
}

vectorized! {
    /// Adds the weighted values. If `far` is true, they are not in cache.
    fn sum<FUSED>(weights: &[f32], v: &[f32], stride: usize, far: bool, row: &mut [f32]) {
        let (fours, rest) = weights.as_chunks::<4>();
        for (i, &[a, b, c, d]) in fours.iter().enumerate() {
            let n = row.len();
            let value = |j: usize| &v[(4 * i + j) * stride..][..n];
            let (v0, v1, v2, v3) = (value(0), value(1), value(2), value(3));
            if far {
                prefetch_rows(v, 4 * i * stride, stride, n);
            }
            for j in 0..n {
                let low = fma::<FUSED>(b, v1[j], fma::<FUSED>(a, v0[j], row[j]));
                row[j] = low + fma::<FUSED>(d, v3[j], c * v2[j]);
            }
        }
        for (i, &weight) in rest.iter().enumerate() {
            for (sum, &value) in row.iter_mut().zip(&v[(4 * fours.len() + i) * stride..]) {
                *sum = fma::<FUSED>(weight, value, *sum);
            }
        }
    }
}
