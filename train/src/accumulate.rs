//! Gradient accumulation: the weighted mean over the batches of a step.

use grove_backend::Backend;
use grove_tree::{Array, Tree, map};
use std::collections::BTreeMap;

use crate::{Metrics, gradients::sum, outcome::Measured};

/// Running sums over the batches of a step. Weights are relative to the first non-zero weight. Batches of equal weight
/// are therefore added without scaling, and a large count does not scale a gradient beyond the range of its dtype.
pub(crate) struct Accumulated<B: Backend, M> {
    grads: Option<M>,
    measured: Vec<(Measured<B>, f64)>,
    /// First non-zero weight; 0 until there is one.
    unit: f64,
    /// Sum of the weights, relative to `unit`.
    total: f64,
}

impl<B: Backend, M: Tree<B>> Accumulated<B, M> {
    pub(crate) fn new() -> Self {
        Self { grads: None, measured: Vec::new(), unit: 0.0, total: 0.0 }
    }

    /// Adds a batch: its gradients, its metrics and its weight.
    ///
    /// A batch of weight 0 is used only if all batches have weight 0: its mean over no items may be NaN.
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

    /// Returns the mean gradient and the mean metrics; `None` if no batch was added.
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

/// Weighted mean of a metric. Batches may lack the metric.
#[derive(Default)]
struct Mean<B: Backend> {
    sum: Option<Array<B, 1>>,
    total: f64,
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
