use super::pair;
use burn::tensor::Tensor;
use grove_backend::Backend;

/// Computes the cosine similarity of vectors along the last axis: `Σ a·b / (‖a‖ ‖b‖)` (`optax.cosine_similarity`).
///
/// `epsilon` is a lower bound of the **squared** norms in the denominator, as in optax, whose default is 0. A zero vector
/// has similarity 0 and a finite gradient, even with `epsilon` 0, for which optax gives NaN.
///
/// # Shapes
/// - predictions `[..., dim]`
/// - targets `[..., dim]`
/// - output `[..., 1]`
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Flex;
/// use grove_layers::loss::{cosine_distance, cosine_similarity};
///
/// let tensor = |x: [f32; 2]| Tensor::<Flex, 1>::from_data(x, &Default::default());
/// let (a, b) = (tensor([3.0, 4.0]), tensor([0.0, 2.0]));
/// assert!((cosine_similarity(a.clone(), b.clone(), 0.0).into_scalar() - 0.8).abs() < 1e-6);
/// assert!((cosine_distance(a, b, 0.0).into_scalar() - 0.2).abs() < 1e-6);
/// ```
#[track_caller]
pub fn cosine_similarity<B: Backend, const D: usize>(
    predictions: Tensor<B, D>,
    targets: Tensor<B, D>,
    epsilon: f64,
) -> Tensor<B, D> {
    let (predictions, targets) = pair(("predictions", predictions), ("targets", targets));
    (unit(predictions, epsilon) * unit(targets, epsilon)).sum_dim(D - 1)
}

/// Computes `1 - ` [`cosine_similarity`] (`optax.cosine_distance`): 0 for equal directions, 2 for opposite ones and 1 for a
/// zero vector.
///
/// # Shapes
/// - predictions `[..., dim]`
/// - targets `[..., dim]`
/// - output `[..., 1]`
#[track_caller]
pub fn cosine_distance<B: Backend, const D: usize>(
    predictions: Tensor<B, D>,
    targets: Tensor<B, D>,
    epsilon: f64,
) -> Tensor<B, D> {
    cosine_similarity(predictions, targets, epsilon).neg().add_scalar(1.0)
}

#[track_caller]
fn unit<B: Backend, const D: usize>(x: Tensor<B, D>, epsilon: f64) -> Tensor<B, D> {
    let squared = x.clone().square().sum_dim(D - 1); // [..., 1]
    let small = squared.clone().lower_equal_elem(epsilon);
    // Filled before the square root, because the gradient of the root at 0 is infinite.
    let least = if epsilon > 0.0 { epsilon } else { 1.0 };
    x / squared.mask_fill(small, least).sqrt()
}
