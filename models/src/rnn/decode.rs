use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::rnn::{PackedSequence, Packing};
use grove_tree::{Array, Tree};

use super::{RnnLm, RnnState, pack::embed};
use crate::Decoder;

/// The decoding state.
#[derive(Tree, Clone, Debug)]
pub struct RnnDecoding<B: Backend> {
    /// The layers' state; `None` before the first position.
    pub state: Option<RnnState<B>>,
    /// Positions read, padding included.
    pub seen: usize,
}

impl<B: Backend> RnnLm<B> {
    /// Reads rows that begin with `pad[row]` padding positions each. Padding leaves the state unchanged. A row may
    /// consist of padding alone.
    fn skip_padding(&self, ids: Tensor<B, 2, Int>, pad: &[usize], state: Option<RnnState<B>>) -> RnnState<B> {
        let ([b, t], device) = (ids.dims(), ids.device());
        // A sequence has at least one step: that of a row of padding alone is undone below.
        let lengths: Vec<usize> = pad.iter().map(|&pad| (t - pad).max(1)).collect();
        let packing = Packing::new(&lengths, false).expect("every row has at least one step");
        let rows: Vec<i64> = packing.positions().map(|(i, step)| (i * t + t - lengths[i] + step) as i64).collect();
        let count = rows.len();
        let rows = Tensor::<B, 1, Int>::from_data(TensorData::new(rows, [count]), &device);
        let ids = ids.reshape([b * t]).select(0, rows); // [rows]
        let x = PackedSequence { data: Array::new(embed(&self.encoder, ids)), packing };
        let (_, after) = self.rnn.forward_packed(&x, state, None);
        if pad.iter().all(|&pad| pad < t) {
            return after;
        }
        // Rows that have read no token yet keep the initial state, which is zeros.
        let read: Vec<i64> = pad.iter().map(|&pad| (t - pad) as i64).collect();
        let untouched = Tensor::<B, 1, Int>::from_data(TensorData::new(read, [b]), &device).equal_elem(0); // [b]
        let clear = |x: Array<B, 3>| {
            let untouched = untouched.clone().reshape([1, b, 1]).expand(x.shape());
            Array::new(x.val().mask_fill(untouched, 0.0))
        };
        RnnState { h: clear(after.h), c: after.c.map(clear) }
    }
}

impl<B: Backend> Decoder<B> for RnnLm<B> {
    type State = RnnDecoding<B>;

    fn start(&self, _room: usize) -> RnnDecoding<B> {
        RnnDecoding { state: None, seen: 0 }
    }

    fn decode(
        &self,
        ids: Tensor<B, 2, Int>,
        padding: &[usize],
        state: RnnDecoding<B>,
    ) -> (Tensor<B, 2>, RnnDecoding<B>) {
        let ([b, t], seen) = (ids.dims(), state.seen);
        let here: Vec<usize> = padding.iter().map(|&pad| pad.saturating_sub(seen).min(t)).collect();
        let after = if here.iter().all(|&pad| pad == 0) {
            self.run(ids, state.state, None).1
        } else {
            self.skip_padding(ids, &here, state.state)
        };
        // The last layer's state is its output at each row's last step.
        let (layers, n) = (self.config.num_layers, self.config.hidden_size);
        let last = after.h.val().narrow(0, layers - 1, 1).reshape([b, n]);
        (self.logits(last), RnnDecoding { state: Some(after), seen: seen + t })
    }

    fn vocab_size(&self) -> usize {
        self.config.vocab_size
    }

    fn context(&self) -> Option<usize> {
        None
    }

    fn device(&self) -> B::Device {
        self.encoder.weight.val().device()
    }

    fn end_tokens(&self) -> Vec<u32> {
        self.config.eos_token_id.into_iter().collect()
    }
}
