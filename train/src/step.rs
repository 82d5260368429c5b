use grove_backend::{Autodiff, Backend};
use grove_optim::{GradientTransformation, global_norm};
use grove_tree::{Array, Key, Tree};
use std::collections::BTreeMap;

use crate::{
    Outcome, StepOptions,
    gradients::{Gradients, RankPart, gradients},
};

/// Metrics of a step. The values are still on the device.
#[derive(Tree, Clone, Debug)]
pub struct Metrics<B: Backend> {
    /// Loss before the step, `[1]`.
    pub loss: Array<B, 1>,
    /// Global norm of the gradients, before the optimizer, `[1]`.
    pub grad_norm: Array<B, 1>,
    /// Metrics of the loss function.
    pub others: BTreeMap<String, Array<B, 1>>,
}

impl<B: Backend> Metrics<B> {
    /// Creates the metrics of a step from its loss, other metrics and gradients.
    pub(crate) fn new<P: Tree<B>>(loss: Array<B, 1>, others: BTreeMap<String, Array<B, 1>>, grads: &P) -> Self {
        let grad_norm = Array::new(global_norm(grads).unwrap_or_else(|| loss.val().zeros_like()));
        Self { loss, grad_norm, others }
    }
}

/// Returns a train step: a pure function `(model, opt_state, batch, key) -> (model, opt_state, metrics)`. The options
/// select the trainable part of the model and the compute dtype.
///
/// The loss function takes the model on the autodiff backend, the batch and the key, and returns the loss or an
/// [`Outcome`]. For a [`Trainable`] model it is `M::loss`. A custom training loop takes three lines:
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_optim::{GradientTransformation, sgd, Sgd};
/// use grove_train::{StepOptions, train_step};
/// use grove_tree::{Array, Key};
/// # type B = burn_flex::Flex;
/// let mut model = Array::<B, 1>::new(Tensor::from_floats([5.0], &Default::default()));
/// let optimizer = sgd(0.1, Sgd::default());
/// let loss = |m: Array<_, 1>, target: &f64, _key| (m.val() - *target).powf_scalar(2.0);
/// let step = train_step(loss, &optimizer, StepOptions::default());
///
/// let mut state = optimizer.init(&model);
/// for i in 0..100 {
///     (model, state, _) = step(model, state, &3.0, Key::new(0).fold_in(i));
/// }
/// assert!((model.val().into_scalar() - 3.0).abs() < 1e-3);
/// ```
///
/// Training only a part of a model:
///
/// ```
/// # use burn::tensor::Tensor;
/// # use grove_optim::{GradientTransformation, Sgd, sgd};
/// # use grove_train::{StepOptions, train_step};
/// # use grove_tree::{Array, Key, by_path};
/// # type B = burn_flex::Flex;
/// let one = || Array::<B, 1>::new(Tensor::from_floats([1.0], &Default::default()));
/// let (model, optimizer) = (vec![one(), one()], sgd(0.1, Sgd::default()));
/// let options = StepOptions { trainable: by_path("1"), ..Default::default() };
/// let step = train_step(|m: Vec<Array<_, 1>>, _: &(), _key| m[0].val() * m[1].val(), &optimizer, options);
/// let state = optimizer.init(&model);
/// let (model, _state, _metrics) = step(model, state, &(), Key::new(0));
/// assert_eq!(model[0].val().into_scalar(), 1.0);
/// assert!((model[1].val().into_scalar() - 0.9).abs() < 1e-6);
/// ```
#[allow(clippy::type_complexity)]
pub fn train_step<'a, B, M, T, D: ?Sized, O>(
    loss_fn: impl Fn(M::On<Autodiff<B>>, &D, Key) -> O + 'a,
    optimizer: &'a T,
    options: StepOptions<B>,
) -> impl Fn(M, T::State, &D, Key) -> (M, T::State, Metrics<B>) + 'a
where
    B: Backend,
    M: Tree<B>,
    T: GradientTransformation<B, M>,
    O: Into<Outcome<B, M>>,
{
    move |model, state, batch, key| {
        let Gradients { grads, successor, measured: (loss, others), .. } =
            gradients(&model, &loss_fn, batch, key, &options, None, &RankPart::default());
        let metrics = Metrics::new(loss, others, &grads);
        let (model, state) = optimizer.step(grads, state, successor.unwrap_or(model));
        (model, state, metrics)
    }
}

/// Model with its own loss: the only bound of a function that trains any model.
///
/// Such a function would otherwise need a bound on the model and another on the model of the autodiff backend. This
/// trait has the loss on the latter, so that one bound is enough:
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::{Autodiff, Backend};
/// use grove_optim::{Adamw, GradientTransformation, adamw};
/// use grove_train::{Outcome, StepOptions, Trainable, train_step};
/// use grove_tree::{Array, Key, Tree};
///
/// #[derive(Tree, Clone, Debug)]
/// struct Line<B: Backend> {
///     slope: Array<B, 1>,
/// }
///
/// impl<B: Backend> Trainable<B> for Line<B> {
///     type Batch = [(f64, f64)];
///
///     fn loss(model: Line<Autodiff<B>>, batch: &Self::Batch, _: Key) -> Outcome<B, Self> {
///         let losses = batch.iter().map(|(x, y)| (model.slope.val() * *x - *y).square());
///         Outcome::new(losses.reduce(|sum, loss| sum + loss).expect("a batch of one point or more"))
///     }
/// }
///
/// fn train<B: Backend, M: Trainable<B>>(mut model: M, batch: &M::Batch, steps: u32) -> M {
///     let optimizer = adamw(0.1, Adamw::default());
///     let mut state = optimizer.init(&model);
///     let step = train_step(M::loss, &optimizer, StepOptions::default());
///     for i in 0..steps {
///         (model, state, _) = step(model, state, batch, Key::new(0).fold_in(i));
///     }
///     model
/// }
///
/// # type B = burn_flex::Flex;
/// let line = Line::<B> { slope: Array::new(Tensor::from_floats([0.0], &Default::default())) };
/// let line = train(line, [(1.0, 2.0), (2.0, 4.0)].as_slice(), 200);
/// assert!((line.slope.val().into_scalar() - 2.0).abs() < 0.05);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not define its loss on the backend `{B}`",
    label = "no `Trainable`",
    note = "implement `Trainable<B>` for it, with `fn loss(model: Self::On<Autodiff<B>>, batch, key)`, or give \
            `train_step` or `fit` a closure"
)]
pub trait Trainable<B: Backend>: Tree<B> {
    /// Type of a batch.
    type Batch: ?Sized;

    /// Computes the loss of a batch, and optional metrics and buffers; see [`Outcome`].
    fn loss(model: Self::On<Autodiff<B>>, batch: &Self::Batch, key: Key) -> Outcome<B, Self>;
}
