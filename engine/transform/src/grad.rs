use burn::tensor::{Tensor, ops::FloatTensor};
use grove_backend::{
    AnyTensor, Autodiff, Backend,
    ops::{self, GradientListener},
};
use grove_tree::{AnyArray, Filter, Path, Tree};
use std::{marker::PhantomData, sync::Arc};

use crate::{
    recompute::{NoRecompute, Recompute},
    tape::{Tape, lift_leaf, lower_leaf},
};

/// Options of reverse-mode differentiation.
///
/// ```
/// use grove_transform::{Balanced, GradOptions};
/// use grove_tree::{Array, by_path};
/// # use burn::tensor::Tensor;
/// # type B = burn_flex::Flex;
/// # let x = Array::<B, 1>::new(Tensor::from_floats([3.0], &Default::default()));
/// # let model = vec![x.clone(); 2];
/// let options = GradOptions::new().only(by_path("1")).recompute::<Balanced>();
/// let (loss, grads) = options.value_and_grad_with(&model, &x, |m, x| (m[0].val() * m[1].val() * x.val()).sum());
/// assert!(!grads[0].is_present());
/// assert_eq!((loss.into_scalar(), grads[1].val().into_scalar()), (27.0, 9.0));
/// ```
pub struct GradOptions<B: Backend, S: Recompute = NoRecompute> {
    only: Option<Filter<B>>,
    buffers: bool,
    listener: Option<GradientListener<B>>,
    strategy: PhantomData<S>,
}

impl<B: Backend> GradOptions<B> {
    /// Differentiates with respect to all parameters, without recomputation.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self { only: None, buffers: false, listener: None, strategy: PhantomData }
    }
}

impl<B: Backend, S: Recompute> GradOptions<B, S> {
    /// Differentiates only with respect to the parameters that pass a filter. The other gradients are absent and not
    /// computed.
    pub fn only(self, filter: Filter<B>) -> Self {
        Self { only: Some(filter), ..self }
    }

    /// Also differentiates with respect to buffers that pass the filter: floating-point leaves in fields marked
    /// `#[tree(buffer)]`, such as running statistics. For buffers alone: `only(is_buffer()).with_buffers()`.
    pub fn with_buffers(self) -> Self {
        Self { buffers: true, ..self }
    }

    /// Calls a function with each gradient as soon as it is complete, during the backward pass and on its thread. The arguments
    /// are the index of the leaf among all leaves of the tree and its gradient. Distributed training can send gradients to
    /// other processes from this function while the backward pass continues.
    ///
    /// The function is called only for leaves that are used exactly once, by one of grove's own operations ([`ops`]) or
    /// by one function with a custom derivative. The result of the differentiation contains all gradients.
    pub fn on_gradient(self, listener: impl Fn(usize, AnyTensor<B>) + Send + Sync + 'static) -> Self {
        Self { listener: Some(Arc::new(listener)), ..self }
    }

    /// Sets the recomputation strategy: the residuals that the backward pass keeps from the forward pass.
    pub fn recompute<R: Recompute>(self) -> GradOptions<B, R> {
        GradOptions { only: self.only, buffers: self.buffers, listener: self.listener, strategy: PhantomData }
    }

    fn differentiates(&self, path: &Path, leaf: &AnyArray<B>) -> bool {
        leaf.dtype().is_float()
            && (self.buffers || !path.is_buffer())
            && self.only.as_ref().is_none_or(|filter| filter.passes(path, leaf))
    }

    /// Returns the value of a function of a tree and data, and its gradient with respect to the tree, as the function
    /// [`value_and_grad_with`] does.
    ///
    /// # Panics
    /// Same as [`value_and_grad_aux`](Self::value_and_grad_aux).
    #[track_caller]
    pub fn value_and_grad_with<T: Tree<B>, D: Tree<B>>(
        &self,
        tree: &T,
        data: &D,
        f: impl FnOnce(T::On<Autodiff<B, S>>, D::On<Autodiff<B, S>>) -> Tensor<Autodiff<B, S>, 1>,
    ) -> (Tensor<B, 1>, T) {
        let constants = data.clone().lift(&mut Path::root(), &mut |_, leaf| lift_leaf::<B, S>(leaf, None));
        let (value, grads, ()) = self.value_and_grad_aux(tree, |tree| (f(tree, constants), ()));
        (value, grads)
    }

    /// Returns the value of a function, its gradient and its auxiliary output (`jax.value_and_grad` with
    /// `has_aux=True`).
    ///
    /// The function receives the tree on the autodiff backend and returns the loss, `[1]`, and an auxiliary tree. The
    /// gradient has the same type as the tree. The gradient of a leaf that is absent or not differentiated is absent.
    /// If the loss does not depend on a leaf, the gradient of the leaf is zero.
    ///
    /// # Panics
    /// If the loss does not have exactly one value, or a pattern of the filter matches no path of the tree (see
    /// [`Filter::check`]).
    #[track_caller]
    pub fn value_and_grad_aux<T: Tree<B>, A: Tree<Autodiff<B, S>>>(
        &self,
        tree: &T,
        f: impl FnOnce(T::On<Autodiff<B, S>>) -> (Tensor<Autodiff<B, S>, 1>, A),
    ) -> (Tensor<B, 1>, T, A::On<B>) {
        if let Some(Err(error)) = self.only.as_ref().map(|filter| filter.check(tree)) {
            panic!("nothing to differentiate for a part of the filter: {error}");
        }
        let mut tape = Tape::new();
        // Handles of the tracked leaves, in order. `f` may replace the leaves of the model.
        let (mut tracked, mut holders) = (Vec::new(), Vec::new());
        let lifted = tree.clone().lift(&mut Path::root(), &mut |path, leaf| {
            let track = self.differentiates(path, &leaf);
            let leaf = lift_leaf::<B, S>(leaf, track.then_some(&mut tape));
            tracked.push(leaf.value().filter(|_| track).cloned());
            // Minus one for the model's own handle, which `f` drops.
            holders.push(tracked.last().and_then(Option::as_ref).and_then(holders_of).map(|count| count - 1));
            leaf
        });
        let takes_part: Vec<bool> = tracked.iter().map(Option::is_some).collect();
        let (loss, aux) = f(lifted);
        one_number(&loss);
        let value = loss.clone().inner();
        tape.on(Some(value.device()));
        let aux = aux.lift(&mut Path::root(), &mut |_, leaf| lower_leaf::<B, S>(leaf));
        let awaited = self.listener.as_ref().map(|listener| {
            // If anything else holds the leaf, it may be used again or may have been used already.
            let used_once = tracked.iter().zip(holders).enumerate().filter_map(|(i, (leaf, holders))| match leaf {
                Some(leaf) if holders_of(leaf) == holders.map(|count| count + 1) => Some((i, float(leaf)?)),
                _ => None,
            });
            ops::await_gradients::<B, S>(used_once, listener)
        });
        let grads = tape.gradients(Some(loss.into()), vec![tracked]);
        drop(awaited);
        let mut grads = takes_part.into_iter().zip(grads.into_iter().flatten());
        let grads = tree.clone().map(&mut Path::root(), &mut |_, leaf| match grads.next() {
            Some((true, Some(grad))) => AnyArray::present(grad),
            // The loss does not depend on this parameter.
            Some((true, None)) => leaf.zeros_like(),
            _ => leaf.into_absent(),
        });
        (value, grads, aux)
    }
}

fn float<C: burn::tensor::backend::Backend>(leaf: &AnyTensor<C>) -> Option<&FloatTensor<C>> {
    match leaf {
        AnyTensor::Float(x) => Some(x),
        _ => None,
    }
}

/// Returns the number of handles of a leaf's graph node.
fn holders_of<B: Backend, S: Recompute>(leaf: &AnyTensor<Autodiff<B, S>>) -> Option<usize> {
    float(leaf).map(ops::count_of_holders::<B, S>)
}

/// Rejects a loss that is not a single value. Burn would sum the values.
#[track_caller]
pub(crate) fn one_number<C: burn::tensor::backend::Backend>(loss: &Tensor<C, 1>) {
    let [count] = loss.dims();
    assert!(count == 1, "the loss has shape [{count}], but must be one value: return its sum or its mean");
}

/// Returns the value and the gradient of a function of a tree (`jax.value_and_grad`).
///
/// The function receives the tree on the autodiff backend and returns the loss, `[1]`. The gradient has the same type
/// as the tree. Only parameters have a gradient: it is absent for leaves that are not floating-point, are absent, or
/// are in fields marked `#[tree(buffer)]` (running statistics). To differentiate with respect to a part of the tree,
/// call [`partition`](grove_tree::partition) first and `combine` inside the function, or use [`GradOptions::only`]. To
/// differentiate with respect to buffers, use [`GradOptions::with_buffers`].
///
/// Several threads may differentiate at the same time, including rayon's workers. On a CPU, the backward pass that
/// starts first uses all threads. A backward pass that starts during another one uses a single thread, so the order of
/// its sums may differ.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::value_and_grad;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0, 3.0], &Default::default()));
/// let (loss, grad) = value_and_grad(&x, |x| x.val().powf_scalar(2.0).sum());
/// assert_eq!(loss.into_scalar(), 14.0);
/// assert_eq!(grad.val().to_data().to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
/// ```
///
/// # Panics
/// If the loss does not have exactly one value.
#[track_caller]
pub fn value_and_grad<B: Backend, T: Tree<B>>(
    tree: &T,
    f: impl FnOnce(T::On<Autodiff<B>>) -> Tensor<Autodiff<B>, 1>,
) -> (Tensor<B, 1>, T) {
    let (value, grads, ()) = value_and_grad_aux(tree, |tree| (f(tree), ()));
    (value, grads)
}

/// Returns the value of a function of a tree and data, and its gradient with respect to the tree. The function receives
/// both on the autodiff backend; the data is constant.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::value_and_grad_with;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let vector = |x: [f32; 2]| Array::<B, 1>::new(Tensor::from_floats(x, &Default::default()));
/// let (weight, batch) = (vector([1.0, 2.0]), (vector([3.0, 4.0]), vector([0.0, 1.0])));
/// let loss = |w: Array<_, 1>, (x, y): (Array<_, 1>, Array<_, 1>)| (w.val() * x.val() - y.val()).square().sum();
/// let (loss, grad) = value_and_grad_with(&weight, &batch, loss);
/// assert_eq!(loss.into_scalar(), 58.0);
/// assert_eq!(grad.val().into_data().to_vec::<f32>().unwrap(), [18.0, 56.0]);
/// ```
///
/// # Panics
/// If the loss does not have exactly one value.
#[track_caller]
pub fn value_and_grad_with<B: Backend, T: Tree<B>, D: Tree<B>>(
    tree: &T,
    data: &D,
    f: impl FnOnce(T::On<Autodiff<B>>, D::On<Autodiff<B>>) -> Tensor<Autodiff<B>, 1>,
) -> (Tensor<B, 1>, T) {
    GradOptions::new().value_and_grad_with(tree, data, f)
}

/// Like [`value_and_grad`], for a function that also returns an auxiliary tree, such as metrics or a model with updated
/// running statistics.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::value_and_grad_aux;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0, 3.0], &Default::default()));
/// let (loss, _grad, squares) = value_and_grad_aux(&x, |x| {
///     let squares = x.val().powf_scalar(2.0);
///     (squares.clone().sum(), Array::<_, 1>::new(squares))
/// });
/// assert_eq!(loss.into_scalar(), 14.0);
/// assert_eq!(squares.val().to_data().to_vec::<f32>().unwrap(), [1.0, 4.0, 9.0]);
/// ```
///
/// # Panics
/// Same as [`value_and_grad`].
#[track_caller]
pub fn value_and_grad_aux<B: Backend, T: Tree<B>, A: Tree<Autodiff<B>>>(
    tree: &T,
    f: impl FnOnce(T::On<Autodiff<B>>) -> (Tensor<Autodiff<B>, 1>, A),
) -> (Tensor<B, 1>, T, A::On<B>) {
    GradOptions::new().value_and_grad_aux(tree, f)
}

/// Returns the gradient of a function of a tree (`jax.grad`); see [`value_and_grad`].
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::grad;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0, 3.0], &Default::default()));
/// let slope = grad(&x, |x| x.val().powf_scalar(2.0).sum());
/// assert_eq!(slope.val().to_data().to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0]);
/// ```
///
/// # Panics
/// Same as [`value_and_grad`].
#[track_caller]
pub fn grad<B: Backend, T: Tree<B>>(tree: &T, f: impl FnOnce(T::On<Autodiff<B>>) -> Tensor<Autodiff<B>, 1>) -> T {
    value_and_grad(tree, f).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Balanced;
    use burn_flex::Flex;
    use grove_backend::{GeluApproximation, ops};
    use grove_tree::{Array, combine, display, partition};

    #[derive(Tree, Clone, Debug)]
    struct Line<B: Backend> {
        slope: Array<B, 1>,
        offset: Array<B, 1>,
        #[tree(buffer)]
        seen: Array<B, 1>,
        name: String,
    }

    fn line() -> Line<Flex> {
        let leaf = |x: f32| Array::new(Tensor::from_floats([x], &Default::default()));
        Line { slope: leaf(2.0), offset: leaf(1.0), seen: leaf(5.0), name: "line".into() }
    }

    fn number(leaf: &Array<Flex, 1>) -> f32 {
        leaf.val().into_scalar()
    }

    #[test]
    fn gradients_have_the_models_type() {
        let (loss, grads) = value_and_grad(&line(), |m| (m.slope.val().powf_scalar(3.0) * 4.0 + m.offset.val()).sum());
        assert_eq!(loss.into_scalar(), 33.0);
        assert_eq!((number(&grads.slope), number(&grads.offset)), (48.0, 1.0));
        assert_eq!(display(&grads), display(&line()));
    }

    #[test]
    fn successors_come_back_as_auxiliary_output() {
        let (_, _, seen) = value_and_grad_aux(&line(), |m| {
            let seen = Array::<_, 1>::new(m.seen.val() + 1.0);
            (m.slope.val(), seen)
        });
        assert_eq!(number(&seen), 6.0);
    }

    #[test]
    fn a_part_of_the_tree() {
        let only_slope = grove_tree::by_path("slope");
        let f = |m: Line<Autodiff<Flex>>| (m.slope.val() * m.offset.val()).sum();
        let (_, grads, ()) = GradOptions::new().only(only_slope.clone()).value_and_grad_aux(&line(), |m| (f(m), ()));
        assert_eq!(number(&grads.slope), 1.0);
        assert!(!grads.offset.is_present() && !grads.seen.is_present());

        let (trained, frozen) = partition(line(), &only_slope);
        let frozen = frozen.lift(&mut Path::root(), &mut |_, leaf| lift_leaf::<Flex, NoRecompute>(leaf, None));
        let (_, grads) = value_and_grad(&trained, |m| f(combine(m, frozen).expect("parts of one tree")));
        assert_eq!(number(&grads.slope), 1.0);
        assert!(!grads.offset.is_present());
    }

    #[test]
    fn complete_gradients_are_reported_if_one_operation_uses_a_leaf() {
        let device = Default::default();
        let matrix = |seed: u32| {
            let values = (0..9).map(|i| ((i * 7 + seed * 5) % 11) as f32 / 4.0 - 1.0).collect::<Vec<_>>();
            Array::<Flex, 2>::new(Tensor::from_data(burn::tensor::TensorData::new(values, [3, 3]), &device))
        };
        let model: Vec<_> = (0..5).map(matrix).collect();
        // Leaf 0 is used once, 1 twice, 2 by one of Burn's operations, 3 never, and 4 once while a clone of it is
        // alive.
        let kept = std::cell::RefCell::new(None);
        let f = |m: Vec<Array<Autodiff<Flex>, 2>>| {
            let x = ops::linear(m[2].val() * 2.0, m[0].val(), None);
            let x = ops::linear(ops::linear(x, m[1].val(), None), m[1].val(), None);
            *kept.borrow_mut() = Some(m[4].clone());
            (ops::linear(x, m[4].val(), None).sum(), ())
        };
        let reported = Arc::new(std::sync::Mutex::new(Vec::new()));
        let heard = reported.clone();
        let options = GradOptions::new().on_gradient(move |leaf, gradient: AnyTensor<Flex>| {
            heard.lock().unwrap().push((leaf, gradient.into_data()));
        });
        let (_, grads, ()) = options.value_and_grad_aux(&model, f);
        kept.borrow_mut().take();
        assert_eq!(*reported.lock().unwrap(), vec![(0, grads[0].val().into_data())]);
        let (_, plain, ()) = GradOptions::new().value_and_grad_aux(&model, f);
        for (grad, plain) in grads.iter().zip(plain) {
            assert_eq!(grad.val().into_data(), plain.val().into_data());
        }
    }

    #[test]
    fn recomputing_gives_the_same_gradient() {
        let gelu =
            |x: Array<Autodiff<Flex, Balanced>, 1>| (ops::gelu(x.val(), GeluApproximation::Tanh).exp().sum(), ());
        let (_, grads, ()) = GradOptions::new().recompute::<Balanced>().value_and_grad_aux(&line().slope, gelu);
        let x = line().slope;
        let plain = grad(&x, |x| ops::gelu(x.val(), GeluApproximation::Tanh).exp().sum());
        assert_eq!(number(&grads), number(&plain));
    }
}
