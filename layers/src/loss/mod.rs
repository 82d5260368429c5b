//! Losses. Names, arguments and defaults are optax's; [`CrossEntropy`] and [`cross_entropy`] are PyTorch's.
//!
//! Functions with optax's names return one loss per example and reduce nothing: the caller takes `.mean()`. Elementwise
//! losses have the shape of their inputs. Losses over the last axis keep that axis with size 1, as Burn's `sum_dim` does,
//! because Rust cannot express the rank `D - 1` of a result. Losses of integer labels have the labels' shape. Shapes must
//! be equal: combinations that another library would broadcast silently, such as `[n, 1]` with `[n, n]`, are an error.
//!
//! f16 and bf16 inputs are converted to f32 first and the loss is f32, as in PyTorch under autocast: a mean over thousands
//! of examples, or a sum over thousands of classes, exceeds the precision of an 8-bit significand. Gradients have the
//! inputs' dtypes.
//!
//! ```
//! use burn::tensor::{Int, Tensor};
//! use grove_backend::Flex;
//! use grove_layers::loss;
//!
//! let device = Default::default();
//! let logits = Tensor::<Flex, 2>::from_data([[2.0, 0.5, -1.0], [0.1, 0.2, 0.3]], &device);
//! let labels = Tensor::<Flex, 1, Int>::from_data([0i64, 2], &device);
//! let each = loss::softmax_cross_entropy_with_integer_labels(logits.clone(), labels.clone()); // [2]
//! assert_eq!(each.dims(), [2]);
//! let mean = loss::cross_entropy(logits, labels); // [1]
//! assert!((mean.into_scalar() - each.mean().into_scalar()).abs() < 1e-6);
//! ```

mod binary;
mod cosine;
mod cross_entropy;
mod kl;
mod regression;

pub use binary::{sigmoid_binary_cross_entropy, sigmoid_focal_loss};
pub use cosine::{cosine_distance, cosine_similarity};
pub use cross_entropy::{
    CrossEntropy, IGNORE_INDEX, cross_entropy, smooth_labels, softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
};
pub use kl::{kl_divergence, kl_divergence_with_log_targets};
pub use regression::{huber_loss, l2_loss, log_cosh, squared_error};

use burn::tensor::Tensor;
use grove_backend::{Backend, at_least_f32};

/// Checks that both tensors have the same shape, and converts them to at least f32.
#[track_caller]
fn pair<B: Backend, const D: usize>(
    (a_name, a): (&str, Tensor<B, D>),
    (b_name, b): (&str, Tensor<B, D>),
) -> (Tensor<B, D>, Tensor<B, D>) {
    let (a_shape, b_shape) = (a.dims(), b.dims());
    assert_eq!(
        a_shape, b_shape,
        "{a_name} {a_shape:?} and {b_name} {b_shape:?} need one shape; call .reshape(..) or .expand(..) on one of them"
    );
    (at_least_f32(a), at_least_f32(b))
}

/// 1 where `x >= 0`, else 0, without a gradient. `|x|` and `max(x, 0)` written with this step have consistent slopes at 0.
/// The backends' own functions have slope 0 there, so the gradient of a sum such as `max(x, 0) + log1p(exp(-|x|))` would be
/// wrong.
#[track_caller]
fn step<B: Backend, const D: usize>(x: &Tensor<B, D>) -> Tensor<B, D> {
    x.clone().greater_equal_elem(0.0).float().cast(x.dtype())
}
