use burn::tensor::Tensor;
use std::{ops::Range, sync::Arc};

use super::{Values, primitive};
use crate::Backend;

/// Rows of a packed batch by step, as in PyTorch's `PackedSequence`: the sequences are sorted, longest first. The rows of
/// step 0 come first, then those of step 1, and so on, each with only the sequences that are long enough.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(try_from = "StepsFields", into = "StepsFields")]
pub struct Steps {
    sizes: Arc<[usize]>,
    reverse: bool,
}

/// Serialised form of [`Steps`].
#[derive(serde::Serialize, serde::Deserialize)]
struct StepsFields {
    sizes: Vec<usize>,
    reverse: bool,
}

impl From<Steps> for StepsFields {
    fn from(steps: Steps) -> Self {
        Self { sizes: steps.sizes.to_vec(), reverse: steps.reverse }
    }
}

impl TryFrom<StepsFields> for Steps {
    type Error = String;

    fn try_from(fields: StepsFields) -> Result<Self, String> {
        Self::checked(fields.sizes.into(), fields.reverse)
    }
}

impl Steps {
    /// Creates the steps from the number of sequences that reach each step. With `reverse` each sequence is processed from
    /// its own end.
    ///
    /// # Panics
    /// If there are no steps, the sizes increase, or a size is 0.
    pub fn new(sizes: impl Into<Arc<[usize]>>, reverse: bool) -> Self {
        match Self::checked(sizes.into(), reverse) {
            Ok(steps) => steps,
            Err(text) => panic!("{text}"),
        }
    }

    fn checked(sizes: Arc<[usize]>, reverse: bool) -> Result<Self, String> {
        let falling = sizes.windows(2).all(|pair| pair[0] >= pair[1]);
        match falling && sizes.last().is_some_and(|&size| size > 0) {
            true => Ok(Self { sizes, reverse }),
            false => Err(format!(
                "there must be at least one batch size, and batch sizes must be positive and never increase: {sizes:?}"
            )),
        }
    }

    /// Number of sequences that reach each step.
    pub fn sizes(&self) -> &[usize] {
        &self.sizes
    }

    /// Returns true if each sequence is processed from its end.
    pub fn is_reverse(&self) -> bool {
        self.reverse
    }

    /// Number of sequences.
    pub fn batch(&self) -> usize {
        self.sizes[0]
    }

    /// Number of packed rows: the sum of the lengths.
    pub fn rows(&self) -> usize {
        self.sizes.iter().sum()
    }

    /// Steps in processing order, with their row ranges.
    pub fn walk(&self) -> Vec<(usize, Range<usize>)> {
        let mut start = 0;
        let mut steps = Vec::with_capacity(self.sizes.len());
        for (step, &size) in self.sizes.iter().enumerate() {
            steps.push((step, start..start + size));
            start += size;
        }
        if self.reverse {
            steps.reverse();
        }
        steps
    }

    /// Returns the first step of all sequences.
    pub(super) fn first(&self) -> Self {
        Self { sizes: [self.batch()].into(), reverse: false }
    }

    /// Returns the inputs of a layer's first step: the layer's inputs, with the first rows of `x`.
    pub(in super::super) fn first_of_inputs<B: Backend>(&self, mut inputs: Values<B>) -> Values<B> {
        self.narrow(&mut inputs, 0, self.batch());
        inputs
    }

    /// Returns the residuals and the gradient of a layer's first step: the inputs, the output with the final states, and
    /// the saved values.
    pub(in super::super) fn first_of_residuals<B: Backend>(
        &self,
        mut residuals: Values<B>,
        mut grads: Values<B>,
    ) -> (Values<B>, Values<B>) {
        let batch = self.batch();
        let of_states = grads.shape(0)[0] - self.rows();
        self.narrow(&mut residuals, 0, batch);
        let output = 4 + of_states / batch;
        self.narrow(&mut residuals, output, batch + of_states);
        for saved in output + 1..residuals.len() {
            self.narrow(&mut residuals, saved, batch);
        }
        self.narrow(&mut grads, 0, batch + of_states);
        (residuals, grads)
    }

    fn narrow<B: Backend>(&self, values: &mut Values<B>, position: usize, rows: usize) {
        let first = values.take_tensor::<2>(position).narrow(0, 0, rows);
        values.put_float(position, primitive(first));
    }

    /// Values of each sequence before each step, for all packed rows: the `packed` rows of the previous step, and `initial`
    /// for sequences at their first step.
    pub(super) fn before<B: Backend>(&self, packed: &Tensor<B, 2>, initial: &Tensor<B, 2>) -> Tensor<B, 2> {
        let mut parts = vec![];
        let mut earlier = 0..0;
        for (step, rows) in self.walk() {
            let held = earlier.len().min(rows.len());
            if held > 0 {
                parts.push((step, packed.clone().narrow(0, earlier.start, held)));
            }
            if held < rows.len() {
                parts.push((step, initial.clone().narrow(0, held, rows.len() - held)));
            }
            earlier = rows;
        }
        in_order(parts)
    }
}

/// Joins parts, created in processing order, as rows in step order. Parts of one step keep their order.
pub(super) fn in_order<B: Backend>(mut parts: Vec<(usize, Tensor<B, 2>)>) -> Tensor<B, 2> {
    parts.sort_by_key(|(step, _)| *step);
    Tensor::cat(parts.into_iter().map(|(_, part)| part).collect(), 0)
}

/// Replaces the first rows of a state.
pub(super) fn replace<B: Backend>(state: Tensor<B, 2>, first: Tensor<B, 2>) -> Tensor<B, 2> {
    let (all, new) = (state.dims()[0], first.dims()[0]);
    if new == all { first } else { Tensor::cat(vec![first, state.narrow(0, new, all - new)], 0) }
}
