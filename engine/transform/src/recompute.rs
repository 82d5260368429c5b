//! What a backward pass keeps of the forward pass.

use burn_autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy, NoCheckpointing};

/// Strategy of what the backward pass keeps of the forward pass: [`NoRecompute`] or [`Balanced`].
pub trait Recompute: CheckpointStrategy {}

/// Keeps every intermediate result that the backward pass needs; the fastest.
pub type NoRecompute = NoCheckpointing;

/// Keeps results that are costly to compute, and recomputes memory-bound ones (chains of element-wise operations),
/// which saves memory.
pub type Balanced = BalancedCheckpointing;

impl<S: CheckpointStrategy> Recompute for S {}
