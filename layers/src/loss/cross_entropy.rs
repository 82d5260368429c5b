use super::pair;
use burn::tensor::{Int, Tensor};
use grove_backend::{Backend, at_least_f32, ops};

/// Label of positions that the loss ignores.
pub const IGNORE_INDEX: i64 = -100;

/// Computes the cross entropy of distributions over the last axis, in nats: `-Σ_c labels[c] · log_softmax(logits)[c]`
/// (`optax.softmax_cross_entropy`). A class of label 0 contributes 0 even if its logit is `-inf`.
///
/// # Shapes
/// - logits `[..., classes]`, unnormalised
/// - labels `[..., classes]`, probabilities; one-hot or not
/// - output `[..., 1]`
#[track_caller]
pub fn softmax_cross_entropy<B: Backend, const D: usize>(logits: Tensor<B, D>, labels: Tensor<B, D>) -> Tensor<B, D> {
    let (logits, labels) = pair(("logits", logits), ("labels", labels));
    let log_probs = log_softmax(logits);
    // A masked class with label 0 would give 0 · -inf = NaN.
    let impossible = log_probs.clone().equal_elem(f64::NEG_INFINITY).bool_and(labels.clone().equal_elem(0.0));
    (labels * log_probs.mask_fill(impossible, 0.0)).sum_dim(D - 1).neg()
}

/// Logarithm of the softmax over the last axis. Maxima and sums pass through an unfused operation: if Burn 0.21 fuses a
/// reduction with later operations, it may confuse the layouts of output and input, and panic
/// (`reduce_broadcasted/launch.rs`).
#[track_caller]
fn log_softmax<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    let unfused = |statistics| ops::chunk(statistics, 1, D - 1).remove(0); // [..., 1]
    let max = unfused(x.clone().detach().max_dim(D - 1));
    let shifted = x - max;
    let log_sum = unfused(shifted.clone().exp().sum_dim(D - 1).log());
    shifted - log_sum
}

/// Computes the cross entropy of integer labels, in nats: `-log_softmax(logits)[label]`
/// (`optax.softmax_cross_entropy_with_integer_labels`). See [`CrossEntropy`] for labels to be ignored.
///
/// # Shapes
/// - logits `[..., classes]`, unnormalised
/// - labels `[...]`, one rank less, each in `0..classes`; not checked, because the check would wait for the device
/// - output `[...]`
#[track_caller]
pub fn softmax_cross_entropy_with_integer_labels<B: Backend, const D: usize, const L: usize>(
    logits: Tensor<B, D>,
    labels: Tensor<B, L, Int>,
) -> Tensor<B, L> {
    integer_labels(logits, labels, 0.0)
}

/// Mixes labels with the uniform distribution: `(1 - alpha) · labels + alpha / classes` (`optax.smooth_labels`; Müller et
/// al., 2019, <https://arxiv.org/abs/1906.02629>). For integer labels use [`CrossEntropy::label_smoothing`], which needs no
/// one-hot labels.
///
/// # Shapes
/// - labels `[..., classes]`, one-hot
/// - output `[..., classes]`
#[track_caller]
pub fn smooth_labels<B: Backend, const D: usize>(labels: Tensor<B, D>, alpha: f64) -> Tensor<B, D> {
    let classes = labels.dims()[D - 1];
    labels.mul_scalar(1.0 - alpha).add_scalar(alpha / classes as f64)
}

/// Cross entropy of integer labels with the options of `torch.nn.functional.cross_entropy`.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_backend::Flex;
/// use grove_layers::loss::{CrossEntropy, IGNORE_INDEX};
///
/// let device = Default::default();
/// let logits = Tensor::<Flex, 2>::zeros([3, 5], &device);
/// let labels = Tensor::<Flex, 1, Int>::from_data([1, IGNORE_INDEX, 4], &device);
/// let loss = CrossEntropy { label_smoothing: 0.1, ..Default::default() };
/// assert!((loss.mean(logits, labels).into_scalar() - 5f32.ln()).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Label smoothing: the share of each label that is distributed evenly over all classes, from 0 to 1. Default: 0.
    pub label_smoothing: f64,
    /// Label of positions to be ignored. Default: [`IGNORE_INDEX`].
    pub ignore_index: i64,
}

impl Default for CrossEntropy {
    fn default() -> Self {
        Self { label_smoothing: 0.0, ignore_index: IGNORE_INDEX }
    }
}

impl CrossEntropy {
    /// Computes the loss of each position; 0 for ignored ones (`reduction="none"`).
    ///
    /// # Shapes
    /// - logits `[..., classes]`, unnormalised
    /// - labels `[...]`, one rank less, each in `0..classes` or `ignore_index`
    /// - output `[...]`
    #[track_caller]
    pub fn per_example<B: Backend, const D: usize, const L: usize>(
        &self,
        logits: Tensor<B, D>,
        labels: Tensor<B, L, Int>,
    ) -> Tensor<B, L> {
        let ignored = labels.clone().equal_elem(self.ignore_index);
        let losses = integer_labels(logits, labels.mask_fill(ignored.clone(), 0), self.label_smoothing);
        // Filled, not multiplied by 0: the loss of an ignored row may be infinite.
        losses.mask_fill(ignored, 0.0)
    }

    /// Computes the mean over the positions that are not ignored (`reduction="mean"`). NaN if all are ignored, as in
    /// PyTorch.
    ///
    /// # Shapes
    /// - logits `[..., classes]`, unnormalised
    /// - labels `[...]`, one rank less, each in `0..classes` or `ignore_index`
    /// - output `[1]`
    #[track_caller]
    pub fn mean<B: Backend, const D: usize, const L: usize>(
        &self,
        logits: Tensor<B, D>,
        labels: Tensor<B, L, Int>,
    ) -> Tensor<B, 1> {
        let counted = labels.clone().not_equal_elem(self.ignore_index).float();
        let losses = self.per_example(logits, labels);
        let count = counted.cast(losses.dtype()).sum();
        losses.sum() / count
    }
}

/// Computes the mean cross entropy of integer labels, in nats: `-log_softmax(logits)[label]`, over the rows whose label is
/// not [`IGNORE_INDEX`]. NaN if all are ignored, as in PyTorch. Equal to [`CrossEntropy::mean`] with the default options.
///
/// # Shapes
/// - logits `[n, classes]`, unnormalised
/// - labels `[n]`, each in `0..classes` or [`IGNORE_INDEX`]
/// - output `[1]`
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_layers::loss::cross_entropy;
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// let logits = Tensor::<B, 2>::zeros([2, 4], &device);
/// let labels = Tensor::<B, 1, Int>::from_ints([0, 3], &device);
/// assert!((cross_entropy(logits, labels).into_scalar() - 4f32.ln()).abs() < 1e-6);
/// ```
#[track_caller]
pub fn cross_entropy<B: Backend>(logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> Tensor<B, 1> {
    CrossEntropy::default().mean(logits, labels)
}

/// Weighted sum of `-log_softmax(logits)[label]` (weight `1 - smoothing`) and the mean of `-log_softmax(logits)` over the
/// classes (weight `smoothing`).
#[track_caller]
fn integer_labels<B: Backend, const D: usize, const L: usize>(
    logits: Tensor<B, D>,
    labels: Tensor<B, L, Int>,
    smoothing: f64,
) -> Tensor<B, L> {
    const { assert!(D == L + 1, "the labels of [..., classes] logits have the shape [...], one rank less") };
    let (rows, expected) = (labels.dims(), &logits.dims()[..L]);
    assert_eq!(rows, expected, "labels {rows:?} do not fit logits {:?}", logits.dims());

    let logits = at_least_f32(logits);
    let (count, classes) = (rows.iter().product::<usize>(), logits.dims()[D - 1]);
    let (losses, _) = ops::nll(logits.clone().reshape([count, classes]), labels.clone().reshape([count]));
    let losses = losses.reshape(rows);
    if smoothing == 0.0 {
        return losses;
    }
    // Adds `smoothing` times the difference of the label's logit and the mean logit.
    let label = logits.clone().gather(D - 1, labels.unsqueeze_dim::<D>(L)); // [..., 1]
    // The loss of a label with probability 0 is already infinite.
    let impossible = label.clone().equal_elem(f32::NEG_INFINITY);
    let difference = (label - logits.mean_dim(D - 1)).mask_fill(impossible, 0.0);
    losses + difference.squeeze_dim::<L>(L).mul_scalar(smoothing)
}
