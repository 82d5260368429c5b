use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::{
    CacheRows, dropout, named_key,
    rnn::{PackedSequence, Packing},
};
use grove_tree::{Array, Key, Tree};

use super::{RnnLm, RnnState, layers::embed};
use crate::DecodeCache;

/// State of a recurrent language model between positions.
#[derive(Tree, Clone, Debug)]
pub struct RnnCache<B: Backend> {
    /// State of the layers; `None` before the first position.
    pub state: Option<RnnState<B>>,
    /// Number of positions processed, including padding; 0 if positions are not counted.
    pub seen: usize,
    /// True if positions are counted. A traced step without counting serves every position.
    pub counts: bool,
}

impl<B: Backend> DecodeCache<B> for RnnCache<B> {
    fn seen(&self) -> usize {
        assert!(self.counts, "a cache of fixed size does not count positions, so that one program serves all of them");
        self.seen
    }

    /// Returns the cache if `len` is its own length, since earlier states are not stored.
    fn truncate(self, len: usize) -> Option<Self> {
        (self.counts && len == self.seen).then_some(self)
    }

    fn join(parts: Vec<CacheRows<Self>>, len: usize, _room: usize) -> Option<Self> {
        let counts = parts.iter().all(|part| part.cache.counts);
        let (mut h, mut c) = (vec![], vec![]);
        for CacheRows { cache, rows, .. } in parts {
            let rows: Vec<i64> = rows.into_iter().map(|row| row as i64).collect();
            let select = |x: Array<B, 3>| {
                let (x, count) = (x.val(), rows.len()); // [layers, b, n]
                let rows = Tensor::from_data(TensorData::new(rows.clone(), [count]), &x.device());
                x.select(1, rows)
            };
            let state = cache.state?;
            h.push(select(state.h));
            c.extend(state.c.map(select));
        }
        let join = |states: Vec<_>| (!states.is_empty()).then(|| Array::new(Tensor::cat(states, 1)));
        let c = join(c);
        Some(Self { state: join(h).map(|h| RnnState { h, c }), seen: if counts { len } else { 0 }, counts })
    }

    fn fixed(self, _capacity: usize, _device: &B::Device) -> Self {
        Self { counts: false, ..self }
    }
}

impl<B: Backend> RnnLm<B> {
    /// Processes rows that begin with `pad[row]` padding positions. Padding leaves the state unchanged. A row can
    /// consist of padding only.
    ///
    /// # Shapes
    /// - ids `[b, t]`
    /// - output `[b, t, hidden_size]`
    pub(super) fn skip_padding(
        &self,
        ids: Tensor<B, 2, Int>,
        pad: &[usize],
        state: Option<RnnState<B>>,
        key: Option<Key>,
    ) -> (Tensor<B, 3>, RnnState<B>) {
        let ([b, t], n, device) = (ids.dims(), self.config.hidden_size, ids.device());
        let integers = |values: Vec<i64>| {
            let count = values.len();
            Tensor::<B, 1, Int>::from_data(TensorData::new(values, [count]), &device)
        };
        // A sequence needs at least one step. The extra step of a row of padding is undone below.
        let lengths: Vec<usize> = pad.iter().map(|&pad| (t - pad).max(1)).collect();
        let packing = Packing::new(&lengths, false).expect("every row has at least one step");
        let rows: Vec<i64> = packing.positions().map(|(i, step)| (i * t + t - lengths[i] + step) as i64).collect();
        let mut packed_rows = vec![0; b * t];
        rows.iter().enumerate().for_each(|(row, &position)| packed_rows[position as usize] = row as i64);
        let x = embed(&self.encoder, ids.reshape([b * t]).select(0, integers(rows))); // [rows, embedding_size]
        let x =
            PackedSequence { data: Array::new(dropout(x, self.config.dropout, named_key(key, "embedding"))), packing };
        let (y, after) = self.rnn.forward_packed(&x, state, named_key(key, "layers")); // [rows, hidden_size]
        let hidden =
            dropout(y.data.val(), self.config.dropout, named_key(key, "output")).select(0, integers(packed_rows));
        let hidden = hidden.reshape([b, t, n]);
        if pad.iter().all(|&pad| pad < t) {
            return (hidden, after);
        }
        // Rows without a token so far keep the initial state, zeros.
        let untouched = integers(pad.iter().map(|&pad| (t - pad) as i64).collect()).equal_elem(0); // [b]
        let clear = |x: Array<B, 3>| {
            let untouched = untouched.clone().reshape([1, b, 1]).expand(x.shape());
            Array::new(x.val().mask_fill(untouched, 0.0))
        };
        (hidden, RnnState { h: clear(after.h), c: after.c.map(clear) })
    }
}
