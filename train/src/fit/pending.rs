//! Metrics that are being read.

use burn::tensor::TensorData;
use grove_backend::{Backend, PendingRead, ops};
use grove_tree::Array;

use crate::Metrics;

/// Metrics of a step, on their way from the device.
pub(super) struct Pending {
    /// From 1.
    pub step: u64,
    pub loss: PendingRead,
    pub grad_norm: PendingRead,
    pub others: Vec<(String, PendingRead)>,
    /// The factor of the loss.
    pub factor: Option<PendingRead>,
}

impl Pending {
    /// Starts to read them, behind what is queued so far.
    pub fn start<B: Backend>(step: u64, metrics: Metrics<B>, factor: Option<Array<B, 1>>) -> Self {
        let Metrics { loss, grad_norm, others } = metrics;
        let start = |value: Array<B, 1>| ops::start_read(value.val());
        Self {
            step,
            loss: start(loss),
            grad_norm: start(grad_norm),
            others: others.into_iter().map(|(name, value)| (name, start(value))).collect(),
            factor: factor.map(start),
        }
    }
}

/// The first of some elements.
pub(super) fn first(values: &TensorData) -> f64 {
    values.iter::<f64>().next().unwrap_or(f64::NAN)
}
