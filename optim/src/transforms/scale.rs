use grove_backend::Backend;
use grove_tree::Tree;

use crate::{
    Count, GradientTransformation, Scalar, ScalarOrSchedule, Schedule,
    leafwise::{elementwise, precision},
    transformation::{has_no_leaves, increment, zero_count},
};

/// See [`identity`].
#[derive(Clone, Copy, Debug)]
pub struct Identity;

/// Returns updates unchanged.
pub fn identity() -> Identity {
    Identity
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for Identity {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        (updates, ())
    }
}

/// See [`set_to_zero`].
#[derive(Clone, Copy, Debug)]
pub struct SetToZero;

/// Replaces updates by zeros, including NaN and infinity.
pub fn set_to_zero() -> SetToZero {
    SetToZero
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for SetToZero {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        let [updates] = elementwise([updates], |[g]| [g.zeros_like()]);
        (updates, ())
    }
}

/// See [`stateless`].
#[derive(Clone, Copy, Debug)]
pub struct Stateless<F>(F);

/// Creates a transformation without state from a function of updates and parameters.
pub fn stateless<F>(f: F) -> Stateless<F> {
    Stateless(f)
}

impl<B: Backend, P: Tree<B>, F: Fn(P, &P) -> P> GradientTransformation<B, P> for Stateless<F> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), params: &P) -> (P, ()) {
        ((self.0)(updates, params), ())
    }
}

/// See [`gradient_transformation`].
#[derive(Clone, Copy, Debug)]
pub struct FromFunctions<I, U> {
    init: I,
    update: U,
}

/// Creates a transformation from its two functions, like optax's `GradientTransformation(init, update)`.
///
/// ```
/// use grove_backend::Backend;
/// use grove_optim::{GradientTransformation, gradient_transformation, increment, zero_count};
/// use grove_tree::{Array, Tree, map};
/// # use burn::tensor::Tensor;
///
/// /// Replaces gradients by their signs, and counts the steps.
/// fn sign<B: Backend, P: Tree<B>>() -> impl GradientTransformation<B, P> {
///     gradient_transformation(zero_count, |updates: P, count, _| (map(updates, |g| g.sign()), increment(count)))
/// }
///
/// # type B = burn_flex::Flex;
/// let params = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// let grads = Array::new(Tensor::from_floats([3.0, -4.0], &Default::default()));
/// let optimizer = sign::<B, _>();
/// let (params, _state) = optimizer.step(grads, optimizer.init(&params), params);
/// params.val().to_data().assert_approx_eq::<f32>(&[2.0f32, 1.0].into(), Default::default());
/// ```
pub fn gradient_transformation<P, S, I: Fn(&P) -> S, U: Fn(P, S, &P) -> (P, S)>(
    init: I,
    update: U,
) -> FromFunctions<I, U> {
    FromFunctions { init, update }
}

impl<B: Backend, P: Tree<B>, S: Tree<B>, I: Fn(&P) -> S, U: Fn(P, S, &P) -> (P, S)> GradientTransformation<B, P>
    for FromFunctions<I, U>
{
    type State = S;

    fn init(&self, params: &P) -> S {
        (self.init)(params)
    }

    fn update(&self, updates: P, state: S, params: &P) -> (P, S) {
        (self.update)(updates, state, params)
    }
}

/// See [`scale`].
#[derive(Clone, Debug)]
pub struct Scale<B: Backend>(Scalar<B>);

/// Multiplies updates by a factor.
pub fn scale<B: Backend>(step_size: impl Into<Scalar<B>>) -> Scale<B> {
    Scale(step_size.into())
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for Scale<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        let [updates] = elementwise([updates], |[g]| [self.0.times(g)]);
        (updates, ())
    }
}

/// See [`scale_by_schedule`].
#[derive(Clone, Debug)]
pub struct ScaleBySchedule(Schedule);

/// Multiplies updates by the value of a schedule at the current step. The state is the step count.
pub fn scale_by_schedule(step_size: impl Into<Schedule>) -> ScaleBySchedule {
    ScaleBySchedule(step_size.into())
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleBySchedule {
    type State = Count<B>;

    fn init(&self, params: &P) -> Count<B> {
        zero_count(params)
    }

    fn update(&self, updates: P, count: Count<B>, _params: &P) -> (P, Count<B>) {
        if has_no_leaves(&updates, &count) {
            return (updates, count);
        }
        let factor = Scalar::Array(self.0.at_in(count.val(), precision(&updates)));
        let [updates] = elementwise([updates], |[g]| [factor.times(g)]);
        (updates, increment(count))
    }
}

/// See [`scale_by_learning_rate`].
#[derive(Clone, Debug)]
pub struct ScaleByLearningRate<B: Backend> {
    learning_rate: ScalarOrSchedule<B>,
    flip_sign: bool,
}

/// Multiplies updates by the negative learning rate: the last part of an optimizer that minimises. The state is the
/// step count if the learning rate is a schedule, and `None` otherwise.
pub fn scale_by_learning_rate<B: Backend>(learning_rate: impl Into<ScalarOrSchedule<B>>) -> ScaleByLearningRate<B> {
    ScaleByLearningRate { learning_rate: learning_rate.into(), flip_sign: true }
}

impl<B: Backend> ScaleByLearningRate<B> {
    /// Returns the factor of updates at this step, and the count for the next one.
    pub(crate) fn factor<P: Tree<B>>(&self, count: Option<Count<B>>, updates: &P) -> (Scalar<B>, Option<Count<B>>) {
        let (rate, count) = self.learning_rate.step(count, updates);
        (if self.flip_sign { rate.negated() } else { rate }, count)
    }

    /// Sets the sign. If true, the default, updates are multiplied by the negative learning rate, otherwise by the
    /// learning rate.
    pub fn flip_sign(self, flip_sign: bool) -> Self {
        Self { flip_sign, ..self }
    }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ScaleByLearningRate<B> {
    type State = Option<Count<B>>;

    fn init(&self, params: &P) -> Self::State {
        self.learning_rate.init(params)
    }

    fn update(&self, updates: P, count: Self::State, _params: &P) -> (P, Self::State) {
        let (factor, count) = self.factor(count, &updates);
        let [updates] = elementwise([updates], |[g]| [factor.times(g)]);
        (updates, count)
    }
}
