use burn::tensor::Tensor;
use grove_backend::{Autodiff, Backend};
use grove_compile::{Traceable, Traced, jit};
use grove_optim::{GradientTransformation, device_of};
use grove_transform::from_inner;
use grove_tree::{Array, Filter, Key, Tree, filter, leaves};
use std::{collections::BTreeSet, sync::Arc};

use super::{Evaluation, FitOptions, Fitted, run::fit_by};
use crate::{
    Outcome, Result, StepOptions,
    data::Data,
    gradients::{Gradients, RankPart, gradients},
    ranks::scaled,
};

/// Type of a tree inside the loss of [`fit_jitted`]: traced, on the autodiff backend.
pub type Differentiated<B, T> = <<T as Traceable<B>>::OnTraced as Tree<Traced>>::On<Autodiff<Traced>>;

/// Loss of [`fit_jitted`], in two parts: conversion of a batch to arrays on the host, and the traced loss.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Autodiff;
/// use grove_compile::Traced;
/// use grove_train::{JitLoss, Outcome};
/// use grove_tree::{Array, Key};
/// # type B = burn_flex::Flex;
/// type A = Autodiff<Traced>;
/// let loss = JitLoss {
///     arrays: |_model: &Array<B, 1>, values: &Vec<f32>, _key: Key| {
///         (Array::<B, 1>::new(Tensor::from_floats(&values[..], &Default::default())), values.len() as f64)
///     },
///     loss: |model: Array<A, 1>, values: Array<A, 1>, _key: Key| {
///         Outcome::<Traced, Array<Traced, 1>>::new((values.val() - model.val()).square().mean())
///     },
/// };
/// let (values, count) = (loss.arrays)(&Array::absent([1]), &vec![1.0, 2.0], Key::new(0));
/// assert_eq!((values.shape(), count), ([2], 2.0));
/// ```
pub struct JitLoss<A, L> {
    /// Converts a batch to arrays, given the model and the key of the step. Also returns the number of items that the
    /// loss averages; see [`Outcome::weight`].
    pub arrays: A,
    /// Computes the loss from the model, these arrays and a key. A weight in its outcome is ignored.
    pub loss: L,
}

/// [`fit`](crate::fit) with a compiled gradient of the loss: traced once for each shape of a batch's arrays; see
/// [`jit`](grove_compile::jit()). All else is the same loop. [`fit`](crate::fit) is for losses that read values, and for
/// data whose batches differ in shape, such as packed texts.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_optim::{Sgd, sgd};
/// use grove_train::{FitOptions, JitLoss, Outcome, RunDuration, data::Examples, fit_jitted};
/// use grove_tree::{Array, Key};
/// use std::sync::Arc;
/// # type B = burn_flex::Flex;
/// let array = |values: &[f32]| Array::<B, 1>::new(Tensor::from_floats(values, &Default::default()));
/// let data = Arc::new(Examples::from_arrays((array(&[1.0, 2.0, 3.0]), array(&[2.0, 4.0, 6.0])), 2)?);
/// let loss = JitLoss {
///     arrays: |_: &Array<B, 1>, batch: &(Array<B, 1>, Array<B, 1>), _key| (batch.clone(), batch.0.shape()[0] as f64),
///     loss: |slope: Array<_, 1>, (x, y): (Array<_, 1>, Array<_, 1>), _key| {
///         Outcome::new((slope.val() * x.val() - y.val()).square().mean())
///     },
/// };
/// let options = FitOptions { length: RunDuration::Steps(50), ..FitOptions::default() };
/// let optimizer = sgd(0.1, Sgd::default());
/// let fitted = fit_jitted(array(&[0.0]), &optimizer, &data, loss, |_| Ok(Default::default()), Key::new(1), &options)?;
/// assert!((fitted.model.val().into_scalar() - 2.0).abs() < 1e-3);
/// # Ok::<(), grove_train::TrainError>(())
/// ```
///
/// # Errors
/// As [`fit`](crate::fit).
///
/// # Panics
/// As [`trace`](grove_compile::trace()): the loss must not read the values of arrays.
pub fn fit_jitted<B, M, T, D, X, A, L, O>(
    model: M,
    optimizer: &T,
    data: &Arc<D>,
    loss: JitLoss<A, L>,
    mut evaluate: impl FnMut(&M) -> Result<Evaluation>,
    key: Key,
    options: &FitOptions<B>,
) -> Result<Fitted<M>>
where
    B: Backend,
    M: Traceable<B>,
    T: GradientTransformation<B, M>,
    D: Data,
    X: Traceable<B>,
    A: Fn(&M, &D::Batch, Key) -> (X, f64),
    L: Fn(Differentiated<B, M>, Differentiated<B, X>, Key) -> O,
    O: Into<Outcome<Traced, M::OnTraced>>,
{
    let JitLoss { arrays, loss } = loss;
    // A filter may read values, which do not exist in a trace.
    let trained = leaves(&filter(model.clone(), &options.step.trainable)).into_iter();
    let trained: BTreeSet<String> = trained.filter_map(|(path, leaf)| leaf.is_present().then_some(path)).collect();
    let trainable = Filter::new(move |path, _| trained.contains(path.as_str()));
    let step = StepOptions { trainable, compute: options.step.compute };
    let loss = |model: Differentiated<B, M>, batch: &X::OnTraced, key: Key| {
        loss(model, from_inner::<Traced, _>(batch.clone()), key)
    };
    let program = jit(|(model, batch, key, factor): (M::OnTraced, X::OnTraced, Key, Option<Array<Traced, 1>>)| {
        let Gradients { grads, successor, measured: (loss, others), .. } =
            gradients(&model, &loss, &batch, key, &step, factor.as_ref(), &RankPart::default());
        (grads, successor, loss, others)
    });
    let gradients = |model: &M, batch: &D::Batch, key: Key, factor: Option<&Array<B, 1>>, part: &RankPart| {
        let (batch, weight) = arrays(model, batch, key);
        let (share, weight) = part.share(Some(weight));
        // Scale the loss, not the gradient, because layers all-reduce gradients inside the backward pass.
        let factor = match (factor, share) {
            (factor, 1.0) => factor.cloned(),
            (Some(factor), share) => Some(Array::new(factor.val().mul_scalar(share))),
            (None, share) => {
                Some(Array::new(Tensor::from_floats([share as f32], &device_of(model).unwrap_or_default())))
            }
        };
        let (grads, successor, loss, others) = program.call::<B>((model.clone(), batch, key, factor));
        let (grads, measured) = scaled(grads, (loss, others), share);
        Gradients { grads, successor, measured, weight, sums: None }
    };
    fit_by(model, optimizer, data, &gradients, &mut evaluate, key, options)
}
