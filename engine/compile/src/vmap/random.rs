//! Batching rules of operations with random keys.

use grove_backend::{AnyTensor, Backend, ops::Spec};

use super::rules::{Batched, BatchingRules, Inputs};
use crate::{
    Primitive, control,
    eval::apply,
    sub_graph::{HigherOrder, ScanLoop, SubGraph},
    target::Target,
    traced::{Recording, outputs_at},
};

impl<B: Backend> BatchingRules<'_, B> {
    /// Loops over the examples, each of which samples with its own key.
    pub(super) fn one_by_one(
        &self,
        primitive: &Primitive,
        inputs: Inputs<B>,
        outputs: usize,
    ) -> Vec<Option<AnyTensor<B>>> {
        let arrays: Vec<_> = inputs.map(|x| self.expanded(x)).collect();
        let recording = Recording::start(self.target.types());
        let input = |x: &AnyTensor<B>| {
            let spec = Spec { shape: x.shape()[1..].to_vec().into(), dtype: x.dtype() };
            Some(recording.input("argument", spec))
        };
        let step = arrays.iter().map(input).collect();
        let device = recording.device();
        let results = apply(primitive, step, outputs, &Target::new(&device));
        let given: Vec<bool> = results.iter().map(Option::is_some).collect();
        let body = SubGraph::new(recording.finish(outputs_at("result", results.into_iter().flatten())));
        let scan = ScanLoop { body, length: self.examples, reverse: false, consts: 0, carries: 0 };
        let mut results = control::apply(&HigherOrder::Scan(scan), arrays, self.target.device).into_iter();
        given.into_iter().map(|given| if given { results.next() } else { None }).collect()
    }

    /// Folds integers `[examples, n]` or `[n]` into keys `[examples, 2]` or `[examples, n, 2]`, or into one shared key.
    pub(super) fn fold_in(&self, key: Batched<B>, data: Batched<B>) -> AnyTensor<B> {
        let data = self.expanded(data);
        let count = data.shape()[1];
        let rows = self.examples * count;
        let words = key.tensor.shape();
        let key = match (key.batched, words.num_dims()) {
            (false, 1) => key.tensor,
            (true, 2) => {
                let key = key.tensor.reshape([self.examples, 1, 2]);
                self.one(Primitive::BroadcastTo(vec![self.examples, count, 2]), [key]).reshape([rows, 2])
            }
            _ => self.expanded(key).reshape([rows, 2]),
        };
        let fold_in = Primitive::Grove(grove_backend::ops::Call::Run(grove_backend::ops::RandomFoldIn.into(), vec![]));
        self.one(fold_in, [key, data.reshape([rows])]).reshape([self.examples, count, 2])
    }
}
