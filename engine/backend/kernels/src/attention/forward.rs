use rayon::prelude::*;

use super::{Attention, Heads, KeyHeads, Rows, key_heads::Keys, place, rows_of_heads, weigh, zeros};
use crate::{
    Dropout,
    matmul::{Layout, PackedB, PanelRows},
};

/// Buffers of a thread.
#[derive(Default)]
pub(super) struct Scratch {
    /// Packed keys and values of a head.
    keys: PanelRows,
    values: PanelRows,
    /// Keys or values that were converted to f32.
    pub converted: Vec<f32>,
    /// Scores of a block of queries.
    pub scores: Vec<f32>,
    /// Outputs of a block of queries.
    gathered: Vec<f32>,
}

impl Attention<'_> {
    /// Writes the attention output of each query to `output`, `[b, t, n_head, head_dim]`.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn forward<'a>(
        &self,
        q: Heads<'_>,
        k: impl Into<KeyHeads<'a>>,
        v: impl Into<KeyHeads<'a>>,
        output: &mut [f32],
    ) {
        let (k, v) = (k.into(), v.into());
        self.check([q.stride(), k.stride(), v.stride()]);
        assert_eq!(output.len(), self.b * self.t * self.n_head * self.head_dim);
        if output.is_empty() || self.s == 0 {
            return output.fill(0.0);
        }
        let mut rows = rows_of_heads(output, [self.b, self.t, self.n_head, self.head_dim]);
        let together = self.together();
        let min = self.heads_per_task().div_ceil(together);
        rows.par_chunks_mut(together).with_min_len(min).enumerate().for_each_init(
            Scratch::default,
            |scratch, (at, rows)| {
                let group = self.group();
                let mut at = at * together;
                let mut rows = rows;
                while !rows.is_empty() {
                    let (of_group, rest) = rows.split_at_mut(rows.len().min(group - at % group));
                    let (i, first) = (at / self.n_head, at % self.n_head);
                    let [k, v] = [k, v].map(|x| x.head(i, first / group));
                    if self.t == 1 {
                        // Packing keys and values would take longer than the products.
                        self.gather_once([i, first], q, k, v, scratch, of_group);
                    } else {
                        self.gather([i, first], q, k, v, scratch, of_group);
                    }
                    (at, rows) = (at + of_group.len(), rest);
                }
            },
        );
    }

    /// Returns the number of consecutive query heads that form a task: a whole group if this leaves no thread idle, otherwise
    /// the heads of a thread. Keys and values are packed or read once for all heads of a group in a task.
    fn together(&self) -> usize {
        let (groups, threads) = (self.b * self.n_kv_head, rayon::current_num_threads());
        match groups.is_multiple_of(threads) || groups >= 4 * threads {
            true => self.group(),
            false => (self.b * self.n_head).div_ceil(threads),
        }
    }

    /// Computes the heads of a group from `first` on.
    fn gather(
        &self,
        [i, first]: [usize; 2],
        q: Heads<'_>,
        k: Keys<'_>,
        v: Keys<'_>,
        scratch: &mut Scratch,
        rows: &mut [Rows<'_>],
    ) {
        let (s, d, block) = (self.s, self.head_dim, self.block());
        let [keys, values] = [&mut scratch.keys, &mut scratch.values].map(std::mem::take);
        let (k, stride) = k.read(0..s, d, &mut scratch.converted);
        let keys = PackedB::reusing(keys, k, d, s, Layout { stride, transposed: true });
        let (v, stride) = v.read(0..s, d, &mut scratch.converted);
        let values = PackedB::reusing(values, v, s, d, Layout { stride, transposed: false });
        for (head, rows) in (first..).zip(rows) {
            for (j, rows) in rows.chunks_mut(block).enumerate() {
                let (query, n) = (j * block, rows.len());
                let seen = self.keys(i, query, n);
                let gathered = zeros(&mut scratch.gathered, n * d);
                if !seen.is_empty() {
                    let scores = zeros(&mut scratch.scores, n * seen.len());
                    let queries = &q.head(i, head)[query * q.stride()..];
                    keys.add_block(0..d, seen.clone(), queries, q.stride(), n, scores, seen.len());
                    weigh(self, [i, head, query], seen.clone(), scores);
                    self.dropout_rows(Dropout::apply_from, [i, head, query], seen.clone(), scores);
                    values.add_block(seen.clone(), 0..d, scores, seen.len(), n, gathered, d);
                }
                place(rows, gathered, d);
            }
        }
        (scratch.keys, scratch.values) = (keys.into_memory(), values.into_memory());
    }
}
