//! Attention of bf16 whose products are products of tiles.

use rayon::prelude::*;
use std::ops::Range;

use super::{Attention, Heads, Rows, place, rows_of_heads, weigh};
use crate::{
    Dropout,
    half::{HalfFormat, narrow_part},
    matmul::{Matrix, multiplies_tiles, tile_product_in},
};

/// Minimum number of queries: fewer, such as those of a draft, are computed like a single one, so that a text does not depend on
/// how many of its tokens are processed at once.
const QUERIES: usize = 32;
/// Maximum number of queries of a block.
const BLOCK: usize = 256;
/// Maximum number of scores of a block, if it has more than [`QUERIES`] queries: 1 MiB, which stays in the second-level cache.
const SCORES: usize = 1 << 18;

/// Buffers of a thread.
#[derive(Default)]
struct Scratch {
    scores: Vec<f32>,
    weights: Vec<u16>,
    output: Vec<u16>,
}

impl Attention<'_> {
    /// Returns the attention output of each query, `[b, t, n_head, head_dim]`, for queries, keys and values of bf16. Scores are
    /// computed in f32; weights are rounded to bf16. Returns `None` if this CPU does not multiply tiles, or for few queries.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn forward_bf16(&self, q: Heads<'_, u16>, k: Heads<'_, u16>, v: Heads<'_, u16>) -> Option<Vec<u16>> {
        self.check([q.stride(), k.stride(), v.stride()]);
        if !multiplies_tiles() || self.t < QUERIES || self.s == 0 || self.head_dim == 0 {
            return None;
        }
        let mut output = vec![0; self.b * self.t * self.n_head * self.head_dim];
        let block = (SCORES / self.reach()).clamp(QUERIES, BLOCK);
        let mut tasks: Vec<([usize; 3], Rows<'_, u16>)> = vec![];
        for (at, rows) in
            rows_of_heads(&mut output, [self.b, self.t, self.n_head, self.head_dim]).into_iter().enumerate()
        {
            let mut rows = rows.into_iter();
            for query in (0..self.t).step_by(block) {
                tasks.push(([at / self.n_head, at % self.n_head, query], rows.by_ref().take(block).collect()));
            }
        }
        tasks.into_par_iter().for_each_init(Scratch::default, |scratch, (at, mut rows)| {
            self.block_bf16(at, q, k, v, scratch, &mut rows);
        });
        Some(output)
    }

    /// Computes some queries of a head. `at` is the sequence, the head and the first query.
    fn block_bf16(
        &self,
        at: [usize; 3],
        q: Heads<'_, u16>,
        k: Heads<'_, u16>,
        v: Heads<'_, u16>,
        scratch: &mut Scratch,
        rows: &mut [&mut [u16]],
    ) {
        let [i, head, query] = at;
        let (n, d, seen) = (rows.len(), self.head_dim, self.keys(i, query, rows.len()));
        if seen.is_empty() {
            return;
        }
        let Scratch { scores, weights, output } = scratch;
        let [k, v] = [k, v].map(|x| matrix(x.head(i, head / self.group()), x.stride(), seen.clone(), d));
        let q = matrix(q.head(i, head), q.stride(), query..query + n, d);
        let all = tile_product_in(q, k.transpose(), None, scores);
        assert!(all, "this CPU multiplies tiles");
        weigh(self, at, seen.clone(), scores);
        self.dropout_rows(Dropout::apply_from, at, seen.clone(), scores);
        weights.resize(scores.len(), 0);
        narrow_part(HalfFormat::Bf16, scores, weights);
        tile_product_in(Matrix::new(weights, n, seen.len()), v, None, output);
        place(rows, output, d);
    }
}

/// Returns some positions of a head as rows.
fn matrix(head: &[u16], stride: usize, positions: Range<usize>, columns: usize) -> Matrix<'_, u16> {
    Matrix { data: &head[positions.start * stride..], rows: positions.len(), columns, stride, transposed: false }
}
