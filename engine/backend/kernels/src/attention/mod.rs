//! Multi-head attention, computed block by block with the scores in cache.

mod backward;
mod forward;
mod half;
mod key_heads;
mod once;
#[cfg(test)]
mod tests;

use std::ops::Range;

use crate::{
    Dropout,
    dispatch::{TASK, vectorized},
    math::LANES,
    matmul::{MR, NR},
    softmax::softmax_row,
};
pub use key_heads::KeyHeads;

/// Queries, keys or values of all heads. Component `c` at a position of sequence `i` and `head` is at index
/// `i * strides[0] + head * strides[1] + position * strides[2] + c`.
#[derive(Clone, Copy)]
pub struct Heads<'a, T = f32> {
    /// The elements, from the first one on.
    pub data: &'a [T],
    /// Elements from one sequence, head and position to the next.
    pub strides: [usize; 3],
}

impl<'a, T> Heads<'a, T> {
    fn head(&self, i: usize, head: usize) -> &'a [T] {
        &self.data[i * self.strides[0] + head * self.strides[1]..]
    }

    /// Returns the number of elements from one position to the next.
    fn stride(&self) -> usize {
        self.strides[2]
    }
}

/// Mask of keys: a query does not attend to a key if the element at
/// `i * strides[0] + head * strides[1] + query * strides[2] + key` is not 0. A stride of 0 broadcasts the mask.
#[derive(Clone, Copy)]
pub struct Hidden<'a> {
    /// The elements, from the first one on.
    pub data: &'a [u8],
    /// Elements from one sequence, head and query to the next.
    pub strides: [usize; 3],
}

/// Scaled dot-product attention, `softmax(q k^T * scale) v`. (Vaswani et al., "Attention Is All You Need", 2017.)
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    /// Batch size.
    pub b: usize,
    /// Number of query heads.
    pub n_head: usize,
    /// Number of key and value heads, a divisor of `n_head`. Each one is shared by `n_head / n_kv_head` consecutive
    /// query heads. (Ainslie et al., "GQA", 2023.)
    pub n_kv_head: usize,
    /// Number of queries.
    pub t: usize,
    /// Number of keys and values.
    pub s: usize,
    /// Head dimension.
    pub head_dim: usize,
    /// Scale of the scores.
    pub scale: f32,
    /// If true, the queries are the last `t` of `s` positions, and each attends to itself and the positions before it.
    pub causal: bool,
    /// Sliding window: with `causal`, a query attends to at most the last `window` keys, including its own.
    pub window: Option<usize>,
    /// Number of padding keys before each sequence, `[b]`, which no query attends to. With `causal`, a padding query attends
    /// to its own key.
    pub padding: Option<&'a [usize]>,
    /// Lengths of the sequences, `[b]`, including padding before them. No query attends to later keys.
    pub lengths: Option<&'a [usize]>,
    /// Additional mask of keys. A fully masked query returns 0.
    pub hidden: Option<Hidden<'a>>,
    /// Dropout of the weights, `[b, n_head, t, s]`.
    pub dropout: Option<Dropout>,
}

impl<'a> Attention<'a> {
    /// Returns the maximum number of keys that the queries of a block attend to together.
    fn reach(&self) -> usize {
        self.window.map_or(self.s, |window| window.saturating_add(16 * MR).min(self.s))
    }

    /// Returns the number of queries per block. Their scores stay in the second-level cache.
    fn block(&self) -> usize {
        ((1 << 15) / self.reach().max(1)).clamp(MR, 16 * MR) / MR * MR
    }

    /// Returns the number of heads that form a task.
    fn heads_per_task(&self) -> usize {
        (2 * TASK).div_ceil((self.t * self.reach() * self.head_dim).max(1))
    }

    /// Returns the number of query heads that share a key head.
    fn group(&self) -> usize {
        self.n_head / self.n_kv_head.max(1)
    }

    /// Returns the keys that a query of sequence `i` attends to. Neither end decreases from one query to the next.
    fn visible(&self, i: usize, query: usize) -> Range<usize> {
        let padding = self.padding.map_or(0, |padding| padding[i]);
        let length = self.lengths.map_or(self.s, |lengths| lengths[i].min(self.s));
        let (start, end) = if self.causal {
            let end = self.s - self.t + query + 1;
            let window = self.window.map_or(0, |window| end.saturating_sub(window));
            (padding.max(window).min(end - 1), end.min(length))
        } else {
            (padding, length)
        };
        start.min(end)..end
    }

    /// Returns the keys whose scores are computed for `n` queries from `query` on: all keys that these attend to, and a few
    /// before them, so that the range starts at a panel. Empty if the queries attend to nothing.
    fn keys(&self, i: usize, query: usize, n: usize) -> Range<usize> {
        let (first, last) = (self.visible(i, query), self.visible(i, query + n - 1));
        if first.start == last.end { 0..0 } else { first.start / NR * NR..last.end }
    }

    /// Calls a method of the dropout with the index of the first weight of each query, and with a row for `keys`. `at` is the
    /// sequence, the head and the first query. Does nothing without dropout.
    fn dropout_rows(&self, method: Method, at: [usize; 3], keys: Range<usize>, rows: &mut [f32]) {
        let (Some(dropout), [i, head, query]) = (self.dropout, at) else { return };
        for (query, row) in (query..).zip(rows.chunks_exact_mut(keys.len())) {
            method(&dropout, ((i * self.n_head + head) * self.t + query) * self.s + keys.start, row);
        }
    }

    /// Checks the sizes. `strides` are those from one query, key and value to the next.
    fn check(&self, strides: [usize; 3]) {
        let grouped = self.n_head == 0 || self.n_kv_head > 0 && self.n_head.is_multiple_of(self.n_kv_head);
        assert!(grouped, "{} heads of queries for {} of keys", self.n_head, self.n_kv_head);
        assert!(!self.causal || self.t <= self.s, "{} queries of {} keys", self.t, self.s);
        assert!(self.window.is_none_or(|window| window > 0 && self.causal), "a window of {:?} keys", self.window);
        for numbers in [self.padding, self.lengths].into_iter().flatten() {
            assert!(numbers.len() == self.b, "{} numbers for {} sequences", numbers.len(), self.b);
        }
        for (stride, positions) in strides.into_iter().zip([self.t, self.s, self.s]) {
            let enough = positions * self.head_dim == 0 || stride >= self.head_dim;
            assert!(enough, "{stride} elements from one position to the next");
        }
    }
}

// Both ranges start at a multiple of `LANES`, so that a row is summed in the same lanes as a row of all keys.
const _: () = assert!(NR.is_multiple_of(LANES));

vectorized! {
    /// Computes the weights, before dropout, from the scores of queries and `keys`. `at` is the sequence, the head and the
    /// first query.
    fn weigh<FUSED>(attention: &Attention<'_>, at: [usize; 3], keys: Range<usize>, scores: &mut [f32]) {
        let [i, head, query] = at;
        let scale = attention.scale;
        // The product with the scale turns a masked score into minus infinity.
        let least = f32::NEG_INFINITY * scale.signum();
        for (query, row) in (query..).zip(scores.chunks_exact_mut(keys.len())) {
            let visible = attention.visible(i, query);
            let from = visible.start / LANES * LANES;
            let (before, row) = row.split_at_mut(from - keys.start);
            let (row, beyond) = row.split_at_mut(visible.end - from);
            before.fill(0.0);
            beyond.fill(0.0);
            let mut seen = visible.len();
            if let Some(Hidden { data, strides }) = attention.hidden {
                let hidden = &data[i * strides[0] + head * strides[1] + query * strides[2]..][visible.clone()];
                seen = 0;
                for (value, &hidden) in row[visible.start - from..].iter_mut().zip(hidden) {
                    *value = if hidden == 0 { *value } else { least };
                    seen += usize::from(hidden == 0);
                }
            }
            if seen == 0 {
                row.fill(0.0);
                continue;
            }
            row[..visible.start - from].fill(least);
            softmax_row::<FUSED>(row, scale);
        }
    }
}

/// [`Dropout::apply_from`] or [`Dropout::fill_from`].
type Method = fn(&Dropout, usize, &mut [f32]);

/// Rows of a head, not necessarily contiguous.
type Rows<'a, T = f32> = Vec<&'a mut [T]>;

/// Returns the rows of each head of `[b, positions, heads, head_dim]`, in the order of sequences and heads.
fn rows_of_heads<T>(x: &mut [T], [b, positions, heads, head_dim]: [usize; 4]) -> Vec<Rows<'_, T>> {
    let mut rows: Vec<Rows<'_, T>> = Vec::new();
    rows.resize_with(b * heads, || Vec::with_capacity(positions));
    for (at, row) in x.chunks_exact_mut(head_dim.max(1)).enumerate() {
        let (text, head) = (at / (positions * heads), at % heads);
        rows[text * heads + head].push(row);
    }
    rows
}

/// Copies contiguous rows to their destinations.
fn place<T: Copy>(rows: &mut [&mut [T]], values: &[T], size: usize) {
    for (row, values) in rows.iter_mut().zip(values.chunks_exact(size)) {
        row.copy_from_slice(values);
    }
}

/// Resizes the buffer to `len` zeros.
fn zeros(x: &mut Vec<f32>, len: usize) -> &mut [f32] {
    x.clear();
    x.resize(len, 0.0);
    x
}
