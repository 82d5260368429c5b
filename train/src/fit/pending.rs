//! Metrics that are being copied from the device.

use grove_backend::{Backend, PendingRead, ops};
use grove_tree::Array;

use crate::Metrics;

/// Metrics of a step, in transfer from the device.
pub(super) struct Pending {
    /// 1-based step.
    pub step: u64,
    pub loss: PendingRead,
    pub grad_norm: PendingRead,
    pub others: Vec<(String, PendingRead)>,
    /// Loss scale of the step.
    pub factor: Option<PendingRead>,
}

impl Pending {
    /// Starts the transfers, after all queued operations.
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
