use super::pair;
use burn::tensor::Tensor;
use grove_backend::Backend;

/// Computes the Kullback-Leibler divergence of predicted distributions from target distributions over the last axis, in
/// nats: `Σ_c targets[c] · (log targets[c] - log_predictions[c])` (`optax.kl_divergence`; Kullback and Leibler, 1951).
///
/// A class of target 0 contributes 0 and gets gradient 0, even if its predicted probability is 0 (`-inf`), for which optax
/// gives NaN.
///
/// # Shapes
/// - log_predictions `[..., classes]`, normalised, as from `log_softmax`
/// - targets `[..., classes]`, probabilities
/// - output `[..., 1]`
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Flex;
/// use grove_layers::loss::kl_divergence;
///
/// let tensor = |x: [f32; 2]| Tensor::<Flex, 1>::from_data(x, &Default::default());
/// let loss = kl_divergence(tensor([0.5, 0.5]).log(), tensor([0.0, 1.0]));
/// assert!((loss.into_scalar() - 2f32.ln()).abs() < 1e-6);
/// ```
#[track_caller]
pub fn kl_divergence<B: Backend, const D: usize>(log_predictions: Tensor<B, D>, targets: Tensor<B, D>) -> Tensor<B, D> {
    let (log_predictions, targets) = pair(("log_predictions", log_predictions), ("targets", targets));
    let nothing = targets.clone().equal_elem(0.0);
    // Also filled before the logarithm: the gradient of log at 0 is infinite, and 0 times infinity is NaN.
    let log_targets = targets.clone().mask_fill(nothing.clone(), 1.0).log();
    let ratio = (log_targets - log_predictions).mask_fill(nothing, 0.0);
    (targets * ratio).sum_dim(D - 1)
}

/// Computes [`kl_divergence`] with targets as logarithms: `Σ_c exp(log_targets[c]) · (log_targets[c] - log_predictions[c])`
/// (`optax.losses.kl_divergence_with_log_targets`).
///
/// A class of log target `-inf` contributes 0; optax gives NaN.
///
/// # Shapes
/// - log_predictions `[..., classes]`, normalised, as from `log_softmax`
/// - log_targets `[..., classes]`, likewise
/// - output `[..., 1]`
#[track_caller]
pub fn kl_divergence_with_log_targets<B: Backend, const D: usize>(
    log_predictions: Tensor<B, D>,
    log_targets: Tensor<B, D>,
) -> Tensor<B, D> {
    let (log_predictions, log_targets) = pair(("log_predictions", log_predictions), ("log_targets", log_targets));
    let nothing = log_targets.clone().equal_elem(f64::NEG_INFINITY);
    let ratio = (log_targets.clone() - log_predictions).mask_fill(nothing, 0.0);
    (log_targets.exp() * ratio).sum_dim(D - 1)
}
