//! Results of loss functions, and options of a train step.

use burn::tensor::{FloatDType, Tensor};
use grove_backend::{Autodiff, Backend};
use grove_tree::{Array, Filter, Tree, is_param};
use std::collections::BTreeMap;

/// Result of a loss function: the loss and optional metrics. A bare loss converts with `into`.
///
/// ```
/// use grove_backend::Autodiff;
/// use grove_train::Outcome;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// fn loss(model: Array<Autodiff<B>, 1>, target: f64) -> Outcome<B, Array<B, 1>> {
///     let error = model.val() - target;
///     Outcome::new(error.clone().square().mean()).metric("error", error.abs().mean())
/// }
/// # let _ = loss;
/// ```
pub struct Outcome<B: Backend, M: Tree<B>> {
    pub(crate) loss: Tensor<Autodiff<B>, 1>,
    pub(crate) successor: Option<M::On<Autodiff<B>>>,
    pub(crate) metrics: BTreeMap<String, Array<Autodiff<B>, 1>>,
    /// `None` if the loss function does not set it.
    pub(crate) weight: Option<f64>,
}

impl<B: Backend, M: Tree<B>> Outcome<B, M> {
    /// Creates an outcome from a loss `[1]` to minimise.
    pub fn new(loss: Tensor<Autodiff<B>, 1>) -> Self {
        Self { loss, successor: None, metrics: BTreeMap::new(), weight: None }
    }

    /// Sets the number of items that the loss averages: examples, non-padding tokens or masked tokens. If
    /// [`fit`](crate::fit) accumulates several batches, the gradients, loss and metrics of the step are means weighted
    /// by this number, and so equal those of one large batch. Without a weight all batches count the same, and each
    /// rank's part of a batch counts by its examples. A batch of weight 0 is skipped, unless all batches of the step
    /// have weight 0.
    ///
    /// # Panics
    /// If `count` is negative, infinite or NaN.
    pub fn weight(self, count: f64) -> Self {
        assert!(
            count >= 0.0 && count.is_finite(),
            "the weight of a loss is {count}: give a number of items, 0 or more"
        );
        Self { weight: Some(count), ..self }
    }

    /// Sets the updated model of a model with buffers, such as running statistics. The step takes over its buffers.
    pub fn successor(self, model: M::On<Autodiff<B>>) -> Self {
        Self { successor: Some(model), ..self }
    }

    /// Adds a named metric `[1]` for the logs.
    pub fn metric(mut self, name: &str, value: Tensor<Autodiff<B>, 1>) -> Self {
        self.metrics.insert(name.to_owned(), Array::new(value));
        self
    }
}

impl<B: Backend, M: Tree<B>> From<Tensor<Autodiff<B>, 1>> for Outcome<B, M> {
    fn from(loss: Tensor<Autodiff<B>, 1>) -> Self {
        Self::new(loss)
    }
}

/// Loss and metrics of one batch of a step.
pub(crate) type Measured<B> = (Array<B, 1>, BTreeMap<String, Array<B, 1>>);

/// Options of a train step.
///
/// ```
/// use burn::tensor::FloatDType;
/// use grove_train::StepOptions;
/// use grove_tree::by_path;
/// # type B = burn_flex::Flex;
/// let options = StepOptions::<B> { trainable: by_path("head.**"), compute: Some(FloatDType::BF16) };
/// # let _ = options;
/// ```
#[derive(Clone)]
pub struct StepOptions<B: Backend> {
    /// Filter of the trainable leaves; frozen leaves have no gradients. Default: all parameters.
    pub trainable: Filter<B>,
    /// Compute dtype of the loss function; the parameters keep their dtype. Default: `None`, the dtype of the
    /// parameters.
    pub compute: Option<FloatDType>,
}

impl<B: Backend> Default for StepOptions<B> {
    fn default() -> Self {
        Self { trainable: is_param(), compute: None }
    }
}
