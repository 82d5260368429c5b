use burn::tensor::Tensor;
use grove_backend::{Backend, Steps};
use grove_tree::{Array, Init, Key, Tree};

use super::{Cell, PackError, PackedSequence, Packing, RnnOptions, State, pack_padded_sequence, pad_packed_sequence};
use crate::dropout;

/// A stack of recurrent layers in one or two directions: [`Rnn`](super::Rnn), [`Gru`](super::Gru) and
/// [`Lstm`](super::Lstm).
#[derive(Tree, Clone, Debug)]
pub struct Recurrent<C> {
    /// The layers, from the first (lowest) to the last.
    pub layers: Vec<Directions<C>>,
    /// Number of layers, directions, dropout and layout.
    #[tree(static)]
    pub options: RnnOptions,
}

/// The cells of one layer.
#[derive(Tree, Clone, Debug)]
pub struct Directions<C> {
    /// Cell that reads each sequence from its start, or from its end with [`RnnOptions::reverse`].
    pub forward: C,
    /// Cell that reads each sequence from its end; `None` for unidirectional layers.
    pub backward: Option<C>,
}

impl<C> Recurrent<C> {
    /// Builds the layers. `n` is the output size of a cell.
    pub(super) fn build<B: Backend>(
        inputs: usize,
        n: usize,
        options: &RnnOptions,
        init: &Init<B>,
        cell: impl Fn(usize, &Init<B>) -> C,
    ) -> Self {
        let directions = if options.bidirectional { 2 } else { 1 };
        let layer = |i: usize| {
            let init = init.named("layers").fold_in(i as u32);
            let inputs = if i == 0 { inputs } else { n * directions };
            Directions {
                forward: cell(inputs, &init.named("forward")),
                backward: options.bidirectional.then(|| cell(inputs, &init.named("backward"))),
            }
        };
        Self { layers: (0..options.layers).map(layer).collect(), options: options.clone() }
    }

    /// Runs over a padded batch of sequences of equal length. The initial state is zero if `state` is `None`. With a `key`,
    /// dropout is applied between the layers.
    ///
    /// # Shapes
    /// - x `[t, b, inputs]`, or `[b, t, inputs]` with `batch_first`; t and b at least 1
    /// - initial and final states `[layers * directions, b, n]`
    /// - output `[t, b, directions * n]`, or `[b, t, …]`
    #[track_caller]
    pub fn forward<B: Backend, const S: usize>(
        &self,
        x: Tensor<B, 3>,
        state: Option<State<B, S, 3>>,
        key: Option<Key>,
    ) -> (Tensor<B, 3>, State<B, S, 3>)
    where
        C: Cell<B, S>,
    {
        let turned = |x: Tensor<B, 3>| if self.options.batch_first { x.swap_dims(0, 1) } else { x };
        let x = turned(x);
        let [t, b, inputs] = x.dims();
        assert!(t > 0 && b > 0, "a recurrent layer reads at least one step of one sequence, not {t} of {b}");
        let (y, state) = self.run(x.reshape([t * b, inputs]), &vec![b; t], state, key);
        let n = y.dims()[1];
        (turned(y.reshape([t, b, n])), state)
    }

    /// Runs over a padded batch of sequences of these lengths, in any order. The batch is packed, so that no padded step is
    /// computed. Outputs beyond the end of a sequence are 0, and the final states are those of the sequence's own last
    /// step.
    ///
    /// # Shapes
    /// As [`forward`](Self::forward).
    ///
    /// # Errors
    /// If a length is 0 or longer than the batch, or the number of lengths is not the number of sequences.
    #[track_caller]
    pub fn forward_lengths<B: Backend, const S: usize>(
        &self,
        x: Tensor<B, 3>,
        lengths: &[usize],
        state: Option<State<B, S, 3>>,
        key: Option<Key>,
    ) -> Result<(Tensor<B, 3>, State<B, S, 3>), PackError>
    where
        C: Cell<B, S>,
    {
        let batch_first = self.options.batch_first;
        let t = x.dims()[usize::from(batch_first)];
        let packed = pack_padded_sequence::<_, 3, 2, _>(x, lengths, batch_first, false)?;
        let (y, state) = self.forward_packed(&packed, state, key);
        let (y, _) = pad_packed_sequence::<_, 2, 3>(&y, batch_first, 0.0, Some(t))?;
        Ok((y, state))
    }

    /// Runs over a packed batch.
    ///
    /// # Shapes
    /// - x `[rows, inputs]`, packed
    /// - initial and final states `[layers * directions, b, n]`, in the order of the sequences before packing
    /// - output `[rows, directions * n]`, packed in the same way
    #[track_caller]
    pub fn forward_packed<B: Backend, const S: usize>(
        &self,
        x: &PackedSequence<Array<B, 2>>,
        state: Option<State<B, S, 3>>,
        key: Option<Key>,
    ) -> (PackedSequence<Array<B, 2>>, State<B, S, 3>)
    where
        C: Cell<B, S>,
    {
        let packing: &Packing = &x.packing;
        let state = state.map(|state| state.map(|state| Array::new(packing.sort(state.val(), 1))));
        let (y, state) = self.run(x.data.val(), packing.batch_sizes(), state, key);
        let state = state.map(|state| Array::new(packing.unsort(state.val(), 1)));
        (PackedSequence { data: Array::new(y), packing: packing.clone() }, state)
    }

    #[track_caller]
    fn run<B: Backend, const S: usize>(
        &self,
        mut x: Tensor<B, 2>,
        sizes: &[usize],
        state: Option<State<B, S, 3>>,
        key: Option<Key>,
    ) -> (Tensor<B, 2>, State<B, S, 3>)
    where
        C: Cell<B, S>,
    {
        let steps = [false, true].map(|reverse| Steps::new(sizes, reverse));
        let b = steps[0].batch();
        let mut after: [Vec<Tensor<B, 3>>; S] = std::array::from_fn(|_| vec![]);
        for (i, layer) in self.layers.iter().enumerate() {
            if i > 0 {
                x = dropout(x, self.options.dropout, key.map(|key| key.fold_in(i as u32)));
            }
            let cells =
                [Some((&layer.forward, self.options.reverse)), layer.backward.as_ref().map(|cell| (cell, true))];
            let mut outputs = vec![];
            for (cell, reverse) in cells.into_iter().flatten() {
                let index = after[0].len();
                let before = match &state {
                    Some(state) => state.each_ref().map(|all| Array::new(all.val().narrow(0, index, 1).squeeze_dim(0))),
                    None => cell.zeros(b, &x),
                };
                let (y, state) = cell.run(x.clone(), &steps[usize::from(reverse)], before);
                for (all, state) in after.iter_mut().zip(state) {
                    all.push(state.val().unsqueeze());
                }
                outputs.push(y);
            }
            x = if outputs.len() == 1 { outputs.remove(0) } else { Tensor::cat(outputs, 1) };
        }
        (x, after.map(|states| Array::new(Tensor::cat(states, 0))))
    }
}
