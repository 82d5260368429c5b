//! Losses.

use burn::tensor::{Int, Tensor, activation};
use grove_backend::Backend;

/// The label of a position that does not count.
pub const IGNORED: i64 = -100;

/// Mean cross entropy of integer labels, in nats: `-log softmax(logits)[label]`, over the rows whose label is not
/// [`IGNORED`]. NaN where all are ignored, as in PyTorch.
///
/// # Shapes
/// - logits `[n, classes]`
/// - labels `[n]`, each in `0..classes` or [`IGNORED`]
/// - output `[1]`
pub fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    let ignored = labels.clone().equal_elem(IGNORED); // [n]
    let safe = labels.mask_fill(ignored.clone(), 0).unsqueeze_dim::<2>(1); // [n, 1]
    let losses = activation::log_softmax(logits, 1).gather(1, safe).squeeze_dim::<1>(1).neg(); // [n]
    let counted = ignored.clone().bool_not().float().cast(losses.dtype());
    // Filled, not multiplied by 0: the loss of a row that does not count may be infinite.
    losses.mask_fill(ignored, 0.0).sum() / counted.sum()
}
