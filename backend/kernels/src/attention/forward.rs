use rayon::prelude::*;

use super::{Attention, Heads, place, rows_of_heads, zeros};
use crate::{
    dispatch::vectorized,
    math::{dot, fma},
    matmul::{Layout, Panels},
};

/// What a thread holds of a head.
#[derive(Default)]
struct Scratch {
    /// Of a block of queries.
    scores: Vec<f32>,
    /// What they gather.
    gathered: Vec<f32>,
}

impl Attention<'_> {
    /// What each query gathers is written to `output`, `[b, t, n_head, head_dim]`.
    ///
    /// # Panics
    /// If the sizes do not fit each other.
    pub fn forward(&self, q: Heads<'_>, k: Heads<'_>, v: Heads<'_>, output: &mut [f32]) {
        self.check(q, k, v);
        assert_eq!(output.len(), self.b * self.t * self.n_head * self.head_dim);
        if output.is_empty() || self.s == 0 {
            return output.fill(0.0);
        }
        let rows = rows_of_heads(output, self, self.t);
        rows.into_par_iter().with_min_len(self.heads_per_task()).enumerate().for_each_init(
            Scratch::default,
            |scratch, (at, mut rows)| {
                let (i, head) = (at / self.n_head, at % self.n_head);
                let kv_head = head / (self.n_head / self.n_kv_head);
                let q = (q.head(i, head), q.stride());
                let [k, v] = [k, v].map(|x| (x.head(i, kv_head), x.stride()));
                match &mut rows[..] {
                    // Packing keys and values would take longer than the products.
                    [row] => self.gather_once([i, head], q.0, k, v, &mut scratch.scores, row),
                    rows => self.gather([i, head], q, k, v, scratch, rows),
                }
            },
        );
    }

    fn gather(
        &self,
        [i, head]: [usize; 2],
        (q, q_stride): (&[f32], usize),
        (k, k_stride): (&[f32], usize),
        (v, v_stride): (&[f32], usize),
        scratch: &mut Scratch,
        rows: &mut [&mut [f32]],
    ) {
        let (s, d, block) = (self.s, self.head_dim, self.block());
        let keys = Panels::new(k, d, s, Layout { stride: k_stride, transposed: true });
        let values = Panels::new(v, s, d, Layout { stride: v_stride, transposed: false });
        for (j, rows) in rows.chunks_mut(block).enumerate() {
            let (query, n) = (j * block, rows.len());
            let scores = zeros(&mut scratch.scores, n * s);
            // Nobody looks beyond what the last of these queries sees.
            let seen = if self.causal { s - self.t + query + n } else { s };
            keys.add_corner(d, seen, &q[query * q_stride..], q_stride, n, scores, s);
            self.weigh(scores, i, head, query);
            if let Some(factors) = self.factors(i, head, query, n) {
                scores.iter_mut().zip(factors).for_each(|(weight, factor)| *weight *= factor);
            }
            let gathered = zeros(&mut scratch.gathered, n * d);
            values.add_corner(seen, d, scores, s, n, gathered, d);
            place(rows, gathered, d);
        }
    }

    /// The same for a single query.
    fn gather_once(
        &self,
        [i, head]: [usize; 2],
        q: &[f32],
        (k, k_stride): (&[f32], usize),
        (v, v_stride): (&[f32], usize),
        scores: &mut Vec<f32>,
        row: &mut [f32],
    ) {
        let scores = zeros(scores, self.s);
        score_once(&q[..self.head_dim], k, k_stride, scores);
        self.weigh(scores, i, head, 0);
        if let Some(factors) = self.factors(i, head, 0, 1) {
            scores.iter_mut().zip(factors).for_each(|(weight, factor)| *weight *= factor);
        }
        sum_once(scores, v, v_stride, row);
    }
}

vectorized! {
    fn score_once<_FUSED>(q: &[f32], k: &[f32], stride: usize, scores: &mut [f32]) {
        for (i, score) in scores.iter_mut().enumerate() {
            *score = dot(q, &k[i * stride..][..q.len()]);
        }
    }
}

vectorized! {
    fn sum_once<FUSED>(weights: &[f32], v: &[f32], stride: usize, row: &mut [f32]) {
        row.fill(0.0);
        for (i, &weight) in weights.iter().enumerate() {
            for (sum, &value) in row.iter_mut().zip(&v[i * stride..]) {
                *sum = fma::<FUSED>(weight, value, *sum);
            }
        }
    }
}
