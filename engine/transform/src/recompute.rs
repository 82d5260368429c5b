//! Strategies for the residuals of the backward pass.

use burn_autodiff::checkpoint::strategy::{BalancedCheckpointing, CheckpointStrategy, NoCheckpointing};

/// Recomputation strategy: determines the residuals that the backward pass keeps from the forward pass. Either
/// [`NoRecompute`] or [`Balanced`].
pub trait Recompute: CheckpointStrategy {}

/// Keeps every intermediate result that the backward pass needs. The fastest strategy.
pub type NoRecompute = NoCheckpointing;

/// Keeps the results of compute-bound operations and recomputes memory-bound ones (chains of element-wise operations),
/// which saves memory.
pub type Balanced = BalancedCheckpointing;

impl<S: CheckpointStrategy> Recompute for S {}
