//! Attention of several heads, each computed where its scores stay in cache.

mod backward;
mod forward;
mod once;
#[cfg(test)]
mod tests;

use crate::{
    Dropout,
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

/// Scaled dot-product attention, `softmax(q k^T * scale) v`. (Vaswani et al., "Attention Is All You Need", 2017.)
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Texts.
    pub b: usize,
    /// Heads of queries.
    pub n_head: usize,
    /// Heads of keys and values, a divisor of the former: as many heads of queries as there are for each follow each other
    /// and share it. (Ainslie et al., "GQA", 2023.)
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
    /// Dropout of the weights, `[b, n_head, t, s]`.
    pub dropout: Option<Dropout>,
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

    /// Heads of queries that share keys and values.
    fn group(&self) -> usize {
        self.n_head / self.n_kv_head.max(1)
    }

    /// Keys that the queries before this one see.
    fn seen(&self, query: usize) -> usize {
        if self.causal { self.s - self.t + query } else { self.s }
    }

    /// Index of the weight of a query of a head for the first key.
    fn weight_index(&self, i: usize, head: usize, query: usize) -> usize {
        ((i * self.n_head + head) * self.t + query) * self.s
    }

    /// Drops some of the weights that queries have for the first `seen` keys.
    fn drop(&self, weights: &mut [f32], seen: usize, i: usize, head: usize, query: usize) {
        let Some(dropout) = self.dropout else { return };
        for (row, weights) in (query..).zip(weights.chunks_exact_mut(seen)) {
            dropout.apply_from(self.weight_index(i, head, row), weights);
        }
    }

    /// The factors by which [`drop`](Self::drop) multiplies; nothing without dropout.
    fn dropout_factors(&self, factors: &mut [f32], seen: usize, i: usize, head: usize, query: usize) {
        let Some(dropout) = self.dropout else { return };
        for (row, factors) in (query..).zip(factors.chunks_exact_mut(seen)) {
            dropout.fill_from(self.weight_index(i, head, row), factors);
        }
    }

    /// Scores of the queries from `query` on and the first `seen` keys to weights, before dropout.
    fn weigh(&self, scores: &mut [f32], seen: usize, i: usize, head: usize, query: usize) {
        let first = self.causal.then(|| self.s - self.t + query + 1);
        let hidden = self.hidden.map(|Hidden { data, strides }| {
            (&data[i * strides[0] + head * strides[1] + query * strides[2]..], strides[2])
        });
        weigh(scores, seen, self.scale, first, hidden);
    }

    fn check(&self, q: Heads<'_>, k: Heads<'_>, v: Heads<'_>) {
        let grouped = self.n_head == 0 || self.n_kv_head > 0 && self.n_head.is_multiple_of(self.n_kv_head);
        assert!(grouped, "{} heads of queries for {} of keys", self.n_head, self.n_kv_head);
        assert!(!self.causal || self.t <= self.s, "{} queries of {} keys", self.t, self.s);
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

/// The rows of a head, wherever they lie.
type Rows<'a> = Vec<&'a mut [f32]>;

/// The rows of each head, in the order of texts and heads, of `[b, positions, heads, head_dim]`.
fn rows_of_heads(x: &mut [f32], [b, positions, heads, head_dim]: [usize; 4]) -> Vec<Rows<'_>> {
    let mut rows: Vec<Rows<'_>> = Vec::new();
    rows.resize_with(b * heads, || Vec::with_capacity(positions));
    for (at, row) in x.chunks_exact_mut(head_dim.max(1)).enumerate() {
        let (text, head) = (at / (positions * heads), at % heads);
        rows[text * heads + head].push(row);
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
