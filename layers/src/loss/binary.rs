use super::{pair, step};
use burn::tensor::Tensor;
use grove_backend::Backend;

/// Computes the sigmoid cross entropy of independent binary predictions, in nats:
/// `-labels · log σ(logits) - (1 - labels) · log σ(-logits)` (`optax.sigmoid_binary_cross_entropy`). Values and gradients
/// are exact and finite for every finite logit.
///
/// # Shapes
/// - logits, any: unnormalised log-odds
/// - labels, the same: 0, 1, or a probability between
/// - output, the same
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Flex;
/// use grove_layers::loss::sigmoid_binary_cross_entropy;
///
/// let tensor = |x: [f32; 2]| Tensor::<Flex, 1>::from_data(x, &Default::default());
/// let loss = sigmoid_binary_cross_entropy(tensor([-1000.0, 1000.0]), tensor([1.0, 1.0]));
/// assert_eq!(loss.into_data().to_vec::<f32>().unwrap(), [1000.0, 0.0]);
/// ```
#[track_caller]
pub fn sigmoid_binary_cross_entropy<B: Backend, const D: usize>(
    logits: Tensor<B, D>,
    labels: Tensor<B, D>,
) -> Tensor<B, D> {
    let (logits, labels) = pair(("logits", logits), ("labels", labels));
    let step = step(&logits);
    let tail = (logits.clone() * sign(step.clone())).neg().exp().log1p(); // log(1 + exp(-|x|))
    cross_entropy(logits, labels, step, tail)
}

/// Computes the focal loss (Lin et al., 2017, <https://arxiv.org/abs/1708.02002>): the sigmoid cross entropy with lower
/// weights for well-classified examples, `α_t · (1 - p_t)^gamma · cross entropy` (`optax.sigmoid_focal_loss`). With the
/// probability p = `σ(logits)` and the label y, `1 - p_t = (1 - y) p + y (1 - p)` and
/// `α_t = alpha · y + (1 - alpha) (1 - y)`, or 1 without `alpha`. Values and gradients are finite for every finite logit
/// and every `gamma >= 0`.
///
/// Optax's defaults are `alpha` `None` and `gamma` 2. The paper uses 0.25 and 2.
///
/// # Shapes
/// - logits, any: unnormalised log-odds
/// - labels, the same: 0, 1, or a probability between
/// - output, the same
#[track_caller]
pub fn sigmoid_focal_loss<B: Backend, const D: usize>(
    logits: Tensor<B, D>,
    labels: Tensor<B, D>,
    alpha: Option<f64>,
    gamma: f64,
) -> Tensor<B, D> {
    let (logits, labels) = pair(("logits", logits), ("labels", labels));
    let step = step(&logits);
    let sign = sign(step.clone());
    let magnitude = logits.clone() * sign.clone(); // |x|
    let unlikely = magnitude.clone().neg().exp(); // ratio of the smaller to the larger class probability
    let tail = unlikely.clone().log1p();

    // log(1 - p_t) = log(wrong + (1 - wrong) · exp(-|x|)) - log(1 + exp(-|x|)), where `wrong` is the share of the label
    // that contradicts the more likely class. If `wrong` is 0, exp(-|x|) may underflow to 0, so its logarithm is set to
    // -|x|.
    let wrong = step.clone() - sign * labels.clone();
    let right = wrong.clone().equal_elem(0.0);
    let mixed = wrong.clone().mask_fill(right.clone(), 1.0) + wrong.neg().add_scalar(1.0) * unlikely;
    let log_miss = mixed.log().mask_where(right, magnitude.neg()) - tail.clone();
    let weight = log_miss.mul_scalar(gamma).exp();

    let loss = cross_entropy(logits, labels.clone(), step, tail) * weight;
    match alpha {
        None => loss,
        Some(alpha) => labels.mul_scalar(2.0 * alpha - 1.0).add_scalar(1.0 - alpha) * loss,
    }
}

/// Maps 1 to 1 and 0 to -1.
#[track_caller]
fn sign<B: Backend, const D: usize>(step: Tensor<B, D>) -> Tensor<B, D> {
    step.mul_scalar(2.0).sub_scalar(1.0)
}

/// `max(x, 0) - x·y + log(1 + exp(-|x|))`. The first two terms are a single product, which is exactly 0 for a confident
/// correct prediction, so the small last term keeps its precision in the value and in the gradient.
#[track_caller]
fn cross_entropy<B: Backend, const D: usize>(
    logits: Tensor<B, D>,
    labels: Tensor<B, D>,
    step: Tensor<B, D>,
    tail: Tensor<B, D>,
) -> Tensor<B, D> {
    logits * (step - labels) + tail
}
