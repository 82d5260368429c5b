//! The mean over the batches of a step, each of which counts by its weight.

use grove_backend::Backend;
use grove_tree::{Array, Tree, map};
use std::collections::BTreeMap;

use crate::{Metrics, gradients::sum, outcome::Measured};

/// Sums over the batches of a step. Weights are taken relative to the first that is not 0, so that batches of one weight
/// are only added, and none is scaled beyond the range of its type by a large count.
pub(crate) struct Accumulated<B: Backend, M> {
    grads: Option<M>,
    measured: Vec<(Measured<B>, f64)>,
    /// The weight that counts 1; 0 as long as all weights are.
    unit: f64,
    /// The sum of the weights relative to it.
    total: f64,
}

impl<B: Backend, M: Tree<B>> Accumulated<B, M> {
    pub(crate) fn new() -> Self {
        Self { grads: None, measured: Vec::new(), unit: 0.0, total: 0.0 }
    }

    /// Adds a batch: its gradients, what it measured, and its weight.
    ///
    /// A batch of weight 0 has nothing to say, and its mean over nothing may be NaN, so it is left out; unless there is
    /// no other.
    pub(crate) fn add(&mut self, grads: M, measured: Measured<B>, weight: f64) {
        if weight == 0.0 {
            if self.grads.is_none() {
                (self.grads, self.measured) = (Some(grads), vec![(measured, 1.0)]);
                self.total = 1.0;
            }
            return;
        }
        if self.unit == 0.0 {
            *self = Self { unit: weight, ..Self::new() };
        }
        let weight = weight / self.unit;
        self.grads = Some(match self.grads.take() {
            Some(total) if weight == 1.0 => sum(total, grads),
            Some(total) => sum(total, scaled(grads, weight)),
            None => grads,
        });
        self.measured.push((measured, weight));
        self.total += weight;
    }

    /// The mean gradient, and the means of what was measured; `None` where nothing was added.
    pub(crate) fn finish(self, unscale: impl FnOnce(M) -> M) -> Option<(M, Metrics<B>)> {
        let grads = self.grads?;
        let grads = unscale(if self.total == 1.0 { grads } else { scaled(grads, 1.0 / self.total) });
        let (mut losses, mut named) = (Mean::default(), BTreeMap::<String, Mean<B>>::new());
        for ((loss, others), weight) in self.measured {
            losses.add(loss, weight);
            for (name, value) in others {
                named.entry(name).or_default().add(value, weight);
            }
        }
        let others = named.into_iter().filter_map(|(name, mean)| Some((name, mean.finish()?))).collect();
        let metrics = Metrics::new(losses.finish()?, others, &grads);
        Some((grads, metrics))
    }
}

/// The mean of weighted numbers, which need not come with every batch.
struct Mean<B: Backend> {
    sum: Option<Array<B, 1>>,
    total: f64,
}

impl<B: Backend> Default for Mean<B> {
    fn default() -> Self {
        Self { sum: None, total: 0.0 }
    }
}

impl<B: Backend> Mean<B> {
    fn add(&mut self, value: Array<B, 1>, weight: f64) {
        let value = if weight == 1.0 { value.val() } else { value.val() * weight };
        self.sum = Some(Array::new(match self.sum.take() {
            Some(sum) => sum.val() + value,
            None => value,
        }));
        self.total += weight;
    }

    fn finish(self) -> Option<Array<B, 1>> {
        let sum = self.sum?;
        Some(if self.total == 1.0 { sum } else { Array::new(sum.val() / self.total) })
    }
}

fn scaled<B: Backend, M: Tree<B>>(grads: M, factor: f64) -> M {
    map(grads, |leaf| leaf.widen().mul_scalar(factor))
}
