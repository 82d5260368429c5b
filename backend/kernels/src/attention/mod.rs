//! Attention of several heads, each computed where its scores stay in cache.

mod backward;
mod forward;
#[cfg(test)]
mod tests;

use crate::{
    dispatch::{TASK, vectorized},
    matmul::HEIGHT,
    softmax::softmax_row,
};

/// Queries, keys or values of all heads: component `c` of what text `i` has for `head` at a position lies at
/// `i * strides[0] + head * strides[1] + position * strides[2] + c`.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    /// Where the first is, and what follows.
    pub data: &'a [f32],
    /// Elements from one text, head and position to the next.
    pub strides: [usize; 3],
}

impl<'a> Heads<'a> {
    fn head(&self, i: usize, head: usize) -> &'a [f32] {
        &self.data[i * self.strides[0] + head * self.strides[1]..]
    }

    /// Elements from one position to the next.
    fn stride(&self) -> usize {
        self.strides[2]
    }
}

/// Which keys are hidden from which queries: not 0 at `i * strides[0] + head * strides[1] + query * strides[2] + key`.
/// A stride of 0 is one mask for all.
#[derive(Clone, Copy)]
pub struct Hidden<'a> {
    /// The first element, and what follows.
    pub data: &'a [u8],
    /// Elements from one text, head and query to the next.
    pub strides: [usize; 3],
}

/// Scaled dot-product attention, `softmax(q k^T * scale) v`.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Texts.
    pub b: usize,
    /// Heads.
    pub n_head: usize,
    /// Heads of keys and values, each of which serves as many heads of queries.
    pub n_kv_head: usize,
    /// Queries.
    pub t: usize,
    /// Keys and values.
    pub s: usize,
    /// Components of each.
    pub head_dim: usize,
    /// What scores are multiplied by.
    pub scale: f32,
    /// The queries are the last `t` of `s` positions, and each sees itself and those before it.
    pub causal: bool,
    /// Keys that are hidden besides. A query from which all are hidden gathers nothing: 0.
    pub hidden: Option<Hidden<'a>>,
    /// What weights are multiplied by, `[b, n_head, t, s]`: dropout.
    pub factors: Option<&'a [f32]>,
}

impl<'a> Attention<'a> {
    /// Queries whose scores are held at once: they stay in the second-level cache.
    fn block(&self) -> usize {
        ((1 << 15) / self.s.max(1)).clamp(HEIGHT, 16 * HEIGHT) / HEIGHT * HEIGHT
    }

    /// Heads that make a task.
    fn heads_per_task(&self) -> usize {
        (2 * TASK).div_ceil((self.t * self.s * self.head_dim).max(1))
    }

    /// The factors of some queries of a head.
    fn factors(&self, i: usize, head: usize, query: usize, count: usize) -> Option<&'a [f32]> {
        let row = (i * self.n_head + head) * self.t + query;
        self.factors.map(|factors| &factors[row * self.s..][..count * self.s])
    }

    /// Scores of the queries from `query` on to weights, before dropout.
    fn weigh(&self, scores: &mut [f32], i: usize, head: usize, query: usize) {
        let first = self.causal.then(|| self.s - self.t + query + 1);
        let hidden = self.hidden.map(|Hidden { data, strides }| {
            (&data[i * strides[0] + head * strides[1] + query * strides[2]..], strides[2])
        });
        weigh(scores, self.s, self.scale, first, hidden);
    }

    fn check(&self, q: Heads<'_>, k: Heads<'_>, v: Heads<'_>) {
        let weights = self.b * self.n_head * self.t * self.s;
        assert!(self.n_kv_head > 0 && self.n_head.is_multiple_of(self.n_kv_head), "{} heads", self.n_head);
        assert!(!self.causal || self.t <= self.s, "{} queries of {} keys", self.t, self.s);
        assert!(self.factors.is_none_or(|factors| factors.len() == weights), "factors of {weights} weights");
        for (x, positions) in [(q, self.t), (k, self.s), (v, self.s)] {
            let enough = positions * self.head_dim == 0 || x.stride() >= self.head_dim;
            assert!(enough, "{} elements from one position to the next", x.stride());
        }
    }
}

vectorized! {
    fn weigh<FUSED>(
        scores: &mut [f32], columns: usize, scale: f32, first: Option<usize>, hidden: Option<(&[u8], usize)>,
    ) {
        for (i, row) in scores.chunks_exact_mut(columns).enumerate() {
            let (row, beyond) = row.split_at_mut(first.map_or(columns, |first| first + i));
            beyond.fill(0.0);
            if let Some((hidden, stride)) = hidden {
                let hidden = &hidden[i * stride..][..row.len()];
                // What is hidden is the least after the product with the scale.
                let least = f32::NEG_INFINITY * scale.signum();
                let mut seen = 0;
                for (value, &hidden) in row.iter_mut().zip(hidden) {
                    *value = if hidden == 0 { *value } else { least };
                    seen += u32::from(hidden == 0);
                }
                if seen == 0 {
                    row.fill(0.0);
                    continue;
                }
            }
            softmax_row::<FUSED>(row, scale);
        }
    }
}

/// The rows of each head, in the order of texts and heads, of `[b, positions, n_head, head_dim]`.
fn rows_of_heads<'a>(x: &'a mut [f32], sizes: &Attention<'_>, positions: usize) -> Vec<Vec<&'a mut [f32]>> {
    let mut rows: Vec<Vec<&mut [f32]>> = Vec::new();
    rows.resize_with(sizes.b * sizes.n_head, || Vec::with_capacity(positions));
    for (at, row) in x.chunks_exact_mut(sizes.head_dim.max(1)).enumerate() {
        let (text, head) = (at / (positions * sizes.n_head), at % sizes.n_head);
        rows[text * sizes.n_head + head].push(row);
    }
    rows
}

/// Copies rows that lie side by side to where they belong.
fn place(rows: &mut [&mut [f32]], values: &[f32], size: usize) {
    for (row, values) in rows.iter_mut().zip(values.chunks_exact(size)) {
        row.copy_from_slice(values);
    }
}

/// As many zeros.
fn zeros(x: &mut Vec<f32>, len: usize) -> &mut [f32] {
    x.clear();
    x.resize(len, 0.0);
    x
}
