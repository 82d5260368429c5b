use rayon::prelude::*;

use super::{Attention, Heads, Rows, place, rows_of_heads, weigh, zeros};
use crate::{
    Dropout,
    matmul::{Layout, MR, PackedB},
    softmax,
};

/// Buffers of a thread, for one head.
#[derive(Default)]
struct Scratch {
    /// Attention weights of a block of queries.
    weights: Vec<f32>,
    /// Dropout mask of the block.
    factors: Vec<f32>,
    /// Weights of the block after dropout.
    dropped: Vec<f32>,
    /// Gradients of the weights after dropout, then of the scores.
    grad: Vec<f32>,
    /// Gradients of a block of queries. `dk` and `dv` are those of all keys and values.
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
    /// Packed transposed left-hand matrices.
    packed_a: Vec<[f32; MR]>,
}

impl Attention<'_> {
    /// Computes the gradients of queries, `[b, t, n_head, head_dim]`, keys and values, `[b, s, n_kv_head, head_dim]`, if
    /// needed, from the gradient of the output of [`forward`](Self::forward). The weights are recomputed.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn backward(&self, q: Heads<'_>, k: Heads<'_>, v: Heads<'_>, grad: Heads<'_>, grads: [Option<&mut [f32]>; 3]) {
        self.check([q.stride(), k.stride(), v.stride()]);
        let (b, d, n_kv_head, group) = (self.b, self.head_dim, self.n_kv_head, self.group());
        let mut rows = Vec::with_capacity(3);
        let sizes = [[b, self.t, self.n_head, d], [b, self.s, n_kv_head, d], [b, self.s, n_kv_head, d]];
        for (grad, sizes) in grads.into_iter().zip(sizes) {
            rows.push(match grad {
                Some(grad) => {
                    assert_eq!(grad.len(), sizes.iter().product::<usize>());
                    // Without queries no task writes the gradients of the keys.
                    grad.fill(0.0);
                    rows_of_heads(grad, sizes)
                }
                // Empty if not needed.
                None => (0..b * sizes[2]).map(|_| Rows::new()).collect(),
            });
        }
        if b * self.n_head * self.t * self.s * d == 0 {
            return;
        }
        let [mut dq, dk, dv] = <[Vec<Rows<'_>>; 3]>::try_from(rows).unwrap_or_else(|_| unreachable!("three were made"));
        // A task is a key head with all query heads that share it, in order, so that the summation order is fixed.
        let rows = dq.par_chunks_mut(group).zip(dk).zip(dv).with_min_len(self.heads_per_task().div_ceil(group));
        rows.enumerate().for_each_init(Scratch::default, |scratch, (at, ((dq, mut dk), mut dv))| {
            let (i, kv_head) = (at / n_kv_head, at % n_kv_head);
            let [k, v] = [k, v].map(|x| (x.head(i, kv_head), x.stride()));
            let packed = self.pack(k, v);
            scratch.dk.clear();
            scratch.dk.resize(self.s * d, 0.0);
            scratch.dv.clear();
            scratch.dv.resize(self.s * d, 0.0);
            let needed = [!dk.is_empty(), !dv.is_empty()];
            for (head, dq) in (kv_head * group..).zip(dq) {
                let [q, grad] = [q, grad].map(|x| (x.head(i, head), x.stride()));
                self.head_backward([i, head], [q, grad], &packed, scratch, dq, needed);
            }
            place(&mut dk, &scratch.dk, d);
            place(&mut dv, &scratch.dv, d);
        });
    }

    /// Packs the keys and values that a group of query heads shares: both as columns, and the keys also as rows.
    fn pack(&self, (k, k_stride): (&[f32], usize), (v, v_stride): (&[f32], usize)) -> [PackedB; 3] {
        let (s, d) = (self.s, self.head_dim);
        let columns = |x, stride| PackedB::new(x, d, s, Layout { stride, transposed: true });
        [
            columns(k, k_stride),
            columns(v, v_stride),
            PackedB::new(k, s, d, Layout { stride: k_stride, transposed: false }),
        ]
    }

    /// Computes the gradients of a head's queries and adds the head's contribution to those of keys and values.
    fn head_backward(
        &self,
        [i, head]: [usize; 2],
        [(q, q_stride), (g, g_stride)]: [(&[f32], usize); 2],
        [keys_transposed, values_transposed, keys]: &[PackedB; 3],
        scratch: &mut Scratch,
        dq_rows: &mut Rows<'_>,
        [keys_needed, values_needed]: [bool; 2],
    ) {
        let (d, block) = (self.head_dim, self.block());
        let Scratch { weights, factors, dropped, grad, dq, dk, dv, packed_a } = scratch;
        let rows = |x, stride, n| PackedB::new(x, n, d, Layout { stride, transposed: false });
        for query in (0..self.t).step_by(block) {
            let n = block.min(self.t - query);
            let keys_seen = self.keys(i, query, n);
            if keys_seen.is_empty() {
                continue;
            }
            let (first, seen) = (keys_seen.start, keys_seen.len());
            let (q, g) = (&q[query * q_stride..], &g[query * g_stride..]);
            let weights = zeros(weights, n * seen);
            keys_transposed.add_block(0..d, keys_seen.clone(), q, q_stride, n, weights, seen);
            weigh(self, [i, head, query], keys_seen.clone(), weights);
            // Generated once for both uses.
            let factors = zeros(factors, if self.dropout.is_some() { n * seen } else { 0 });
            self.dropout_rows(Dropout::fill_from, [i, head, query], keys_seen.clone(), factors);
            if values_needed {
                let used = if self.dropout.is_some() {
                    dropped.clear();
                    dropped.extend(weights.iter().zip(&*factors).map(|(weight, factor)| weight * factor));
                    &dropped[..]
                } else {
                    &*weights
                };
                rows(g, g_stride, n).add_transposed(used, seen, seen, &mut dv[first * d..], d, packed_a);
            }
            if dq_rows.is_empty() && !keys_needed {
                continue;
            }
            let grad = zeros(grad, n * seen);
            values_transposed.add_block(0..d, keys_seen.clone(), g, g_stride, n, grad, seen);
            grad.iter_mut().zip(&*factors).for_each(|(grad, factor)| *grad *= factor);
            softmax::backward(weights, grad, seen, self.scale);
            if keys_needed {
                rows(q, q_stride, n).add_transposed(grad, seen, seen, &mut dk[first * d..], d, packed_a);
            }
            if !dq_rows.is_empty() {
                let dq = zeros(dq, n * d);
                keys.add_block(keys_seen, 0..d, grad, seen, n, dq, d);
                place(&mut dq_rows[query..query + n], dq, d);
            }
        }
    }
}
