use super::{pair, step};
use burn::tensor::Tensor;
use grove_backend::Backend;

/// Computes `(predictions - targets)²` (`optax.squared_error`). Its mean is the mean squared error.
///
/// # Shapes
/// - predictions, any
/// - targets, the same
/// - output, the same
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Flex;
/// use grove_layers::loss::{huber_loss, l2_loss, squared_error};
///
/// let tensor = |x: [f32; 2]| Tensor::<Flex, 1>::from_data(x, &Default::default());
/// let (predictions, targets) = (tensor([1.0, 5.0]), tensor([1.5, 2.0]));
/// let list = |x: Tensor<Flex, 1>| x.into_data().to_vec::<f32>().unwrap();
/// assert_eq!(list(squared_error(predictions.clone(), targets.clone())), [0.25, 9.0]);
/// assert_eq!(list(l2_loss(predictions.clone(), targets.clone())), [0.125, 4.5]);
/// assert_eq!(list(huber_loss(predictions, targets, 1.0)), [0.125, 2.5]);
/// ```
#[track_caller]
pub fn squared_error<B: Backend, const D: usize>(predictions: Tensor<B, D>, targets: Tensor<B, D>) -> Tensor<B, D> {
    errors(predictions, targets).square()
}

/// Computes `½ (predictions - targets)²` (`optax.l2_loss`): half of [`squared_error`], so that the gradient is the error.
///
/// # Shapes
/// - predictions, any
/// - targets, the same
/// - output, the same
#[track_caller]
pub fn l2_loss<B: Backend, const D: usize>(predictions: Tensor<B, D>, targets: Tensor<B, D>) -> Tensor<B, D> {
    squared_error(predictions, targets).mul_scalar(0.5)
}

/// Computes the Huber loss (Huber, 1964; `optax.huber_loss`): quadratic near zero and linear beyond. With
/// `e = |predictions - targets|`, the loss is `½ e²` if `e <= delta`, else `½ delta² + delta (e - delta)`. Its gradient is
/// that of [`l2_loss`], clipped to `-delta..delta`. Optax's default for `delta` is 1.
///
/// # Shapes
/// - predictions, any
/// - targets, the same
/// - output, the same
#[track_caller]
pub fn huber_loss<B: Backend, const D: usize>(
    predictions: Tensor<B, D>,
    targets: Tensor<B, D>,
    delta: f64,
) -> Tensor<B, D> {
    let magnitude = errors(predictions, targets).abs();
    let quadratic = magnitude.clone().clamp_max(delta);
    let linear = magnitude - quadratic.clone();
    quadratic.square().mul_scalar(0.5) + linear.mul_scalar(delta)
}

/// Computes `log(cosh(e))` of the errors `e = predictions - targets` (`optax.log_cosh`; Chen et al., 2019,
/// <https://openreview.net/pdf?id=rkglvsC9Ym>): close to `½ e²` near zero and to `|e| - log 2` beyond, and smooth
/// everywhere.
///
/// # Shapes
/// - predictions, any
/// - targets, the same
/// - output, the same
#[track_caller]
pub fn log_cosh<B: Backend, const D: usize>(predictions: Tensor<B, D>, targets: Tensor<B, D>) -> Tensor<B, D> {
    let errors = errors(predictions, targets);
    let sign = step(&errors).mul_scalar(2.0).sub_scalar(1.0);
    let magnitude = errors * sign;
    // cosh itself overflows f32 for errors above 89.
    let tail = magnitude.clone().mul_scalar(-2.0).exp().log1p();
    magnitude + tail.sub_scalar(std::f64::consts::LN_2)
}

#[track_caller]
fn errors<B: Backend, const D: usize>(predictions: Tensor<B, D>, targets: Tensor<B, D>) -> Tensor<B, D> {
    let (predictions, targets) = pair(("predictions", predictions), ("targets", targets));
    predictions - targets
}
