use rayon::prelude::*;

use super::{Attention, Heads, place, rows_of_heads, zeros};
use crate::{
    matmul::{HEIGHT, Layout, Panels},
    softmax,
};

/// What a thread holds of a head.
#[derive(Default)]
struct Scratch {
    /// Of a block of queries: the weights, …
    weights: Vec<f32>,
    /// … those after dropout, and …
    dropped: Vec<f32>,
    /// … the gradients of the latter, then of the scores.
    grad: Vec<f32>,
    /// The gradients of the queries of a block, and of all keys and values.
    dq: Vec<f32>,
    dk: Vec<f32>,
    dv: Vec<f32>,
    /// For products with a transposed matrix.
    turned: Vec<[f32; HEIGHT]>,
}

/// Where the gradients of a head's queries, keys or values go; empty where they are not needed.
type Rows<'a> = Vec<&'a mut [f32]>;

impl Attention<'_> {
    /// The gradients of queries, `[b, t, n_head, head_dim]`, keys and values, `[b, s, n_head, head_dim]`, as far as they
    /// are needed, given that of what [`forward`](Self::forward) gave. The weights are computed again.
    ///
    /// # Panics
    /// If the sizes do not fit each other, or heads share keys and values.
    pub fn backward(&self, q: Heads<'_>, k: Heads<'_>, v: Heads<'_>, grad: Heads<'_>, grads: [Option<&mut [f32]>; 3]) {
        self.check(q, k, v);
        assert_eq!(self.n_kv_head, self.n_head, "each head has its own gradients");
        let (heads, d) = (self.b * self.n_head, self.head_dim);
        let mut rows = Vec::with_capacity(3);
        for (grad, positions) in grads.into_iter().zip([self.t, self.s, self.s]) {
            rows.push(match grad {
                Some(grad) => {
                    assert_eq!(grad.len(), heads * positions * d);
                    // Where there are no queries, nobody writes the gradients of the keys.
                    grad.fill(0.0);
                    rows_of_heads(grad, self, positions)
                }
                None => (0..heads).map(|_| Rows::new()).collect(),
            });
        }
        if heads * self.t * self.s * d == 0 {
            return;
        }
        let [dq, dk, dv] = <[Vec<Rows<'_>>; 3]>::try_from(rows).unwrap_or_else(|_| unreachable!("three were made"));
        let rows = dq.into_par_iter().zip(dk).zip(dv).with_min_len(self.heads_per_task());
        rows.enumerate().for_each_init(Scratch::default, |scratch, (at, ((dq, dk), dv))| {
            let (i, head) = (at / self.n_head, at % self.n_head);
            let parts = [q, k, v, grad].map(|x| (x.head(i, head), x.stride()));
            self.head_backward([i, head], parts, scratch, [dq, dk, dv]);
        });
    }

    fn head_backward(
        &self,
        [i, head]: [usize; 2],
        [(q, q_stride), (k, k_stride), (v, v_stride), (g, g_stride)]: [(&[f32], usize); 4],
        scratch: &mut Scratch,
        [mut dq_rows, mut dk_rows, mut dv_rows]: [Rows<'_>; 3],
    ) {
        let (s, d, block) = (self.s, self.head_dim, self.block());
        let Scratch { weights, dropped, grad, dq, dk, dv, turned } = scratch;
        let columns = |x, stride| Panels::new(x, d, s, Layout { stride, transposed: true });
        let rows = |x, stride, n| Panels::new(x, n, d, Layout { stride, transposed: false });
        let (keys_turned, values_turned, keys) = (columns(k, k_stride), columns(v, v_stride), rows(k, k_stride, s));
        let (dk, dv) = (zeros(dk, s * d), zeros(dv, s * d));
        for query in (0..self.t).step_by(block) {
            let n = block.min(self.t - query);
            let (q, g) = (&q[query * q_stride..], &g[query * g_stride..]);
            let weights = zeros(weights, n * s);
            keys_turned.add(0, keys_turned.count(), q, q_stride, n, weights, s);
            self.weigh(weights, i, head, query);
            let factors = self.factors(i, head, query, n);
            if !dv_rows.is_empty() {
                let used = match factors {
                    Some(factors) => {
                        dropped.clear();
                        dropped.extend(weights.iter().zip(factors).map(|(weight, factor)| weight * factor));
                        &dropped[..]
                    }
                    None => &*weights,
                };
                rows(g, g_stride, n).add_transposed(used, s, s, dv, d, turned);
            }
            if dq_rows.is_empty() && dk_rows.is_empty() {
                continue;
            }
            let grad = zeros(grad, n * s);
            values_turned.add(0, values_turned.count(), g, g_stride, n, grad, s);
            if let Some(factors) = factors {
                grad.iter_mut().zip(factors).for_each(|(grad, factor)| *grad *= factor);
            }
            softmax::backward(weights, grad, s, self.scale);
            if !dk_rows.is_empty() {
                rows(q, q_stride, n).add_transposed(grad, s, s, dk, d, turned);
            }
            if !dq_rows.is_empty() {
                let dq = zeros(dq, n * d);
                keys.add(0, keys.count(), grad, s, n, dq, d);
                place(&mut dq_rows[query..query + n], dq, d);
            }
        }
        place(&mut dk_rows, dk, d);
        place(&mut dv_rows, dv, d);
    }
}
