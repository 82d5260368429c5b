use burn::tensor::{Bool, FloatDType, Tensor};
use grove_backend::Backend;
use grove_tree::{Array, Tree};

use crate::{
    Count, GradientTransformation, Scalar, Schedule, all_finite, global_norm,
    leafwise::{elementwise, precision, zeros_like},
    select,
    transformation::{bound, has_no_leaves, increment, steps, zero_count},
};

/// Gradient accumulation: averages the gradients of several steps and makes one step of an optimizer with the mean,
/// equivalent to a larger batch that would not fit into memory. Updates in between are 0. See [`multi_steps`].
///
/// All gradients have the same weight, as in optax. If their losses are means over different numbers of items, the
/// result is not the mean over all items. `grove_train::fit` has its own accumulation, which weights gradients by
/// `Outcome::weight`.
///
/// [`update`](GradientTransformation::update) is one function of arrays, independent of the position in the cycle: it
/// always computes the inner step, and then selects or discards it. `fit` computes the inner step once per step.
#[derive(Clone, Debug)]
pub struct MultiSteps<T> {
    /// The optimizer.
    pub inner: T,
    /// Number of gradients per step.
    pub every_k: EveryK,
    /// If true, the default, the optimizer gets the mean of the gradients, otherwise the sum.
    pub use_grad_mean: bool,
    /// Criterion for skipped gradients. Default: none are skipped.
    pub skip: SkipUpdates,
}

/// Number of gradients per step.
#[derive(Clone, Debug, PartialEq)]
pub enum EveryK {
    /// Constant.
    Steps(u64),
    /// Function of the number of completed steps.
    Schedule(Schedule),
}

impl From<u64> for EveryK {
    fn from(steps: u64) -> Self {
        Self::Steps(steps)
    }
}

impl From<Schedule> for EveryK {
    fn from(schedule: Schedule) -> Self {
        Self::Schedule(schedule)
    }
}

/// Criterion for gradients that are neither accumulated nor counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum SkipUpdates {
    /// No gradient is skipped.
    #[default]
    Never,
    /// Gradients with a non-finite element are skipped.
    NotFinite,
    /// Gradients whose squared global norm is not below the bound are skipped.
    Large {
        /// The bound.
        max_squared_norm: f64,
    },
}

/// Makes one step of an optimizer for each `every_k` gradients, with their mean; see [`MultiSteps`].
///
/// ```
/// use grove_optim::{Adam, GradientTransformation, adam, multi_steps};
/// # use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let optimizer = multi_steps(adam(1e-3, Adam::default()), 4);
/// # optimizer.init(&Array::<B, 1>::absent([3]));
/// ```
///
/// # Panics
/// If `every_k` is 0.
pub fn multi_steps<T>(inner: T, every_k: impl Into<EveryK>) -> MultiSteps<T> {
    let every_k = every_k.into();
    assert_ne!(every_k, EveryK::Steps(0), "`every_k` is 0: it must be at least 1");
    MultiSteps { inner, every_k, use_grad_mean: true, skip: SkipUpdates::Never }
}

/// State of [`MultiSteps`]: counts, the inner state and the accumulated gradients.
#[derive(Tree, Clone, Debug)]
pub struct MultiStepsState<B: Backend, S, P> {
    /// Number of gradients accumulated for the next step.
    pub mini_step: Count<B>,
    /// Number of completed steps.
    pub gradient_step: Count<B>,
    /// The state of the optimizer.
    pub inner_opt_state: S,
    /// Mean or sum of the accumulated gradients, f32, or f64 for f64 parameters.
    pub acc_grads: P,
}

impl<B: Backend, S, P> MultiStepsState<B, S, P> {
    /// Returns `[1]`, true if the last update was a step of the optimizer.
    pub fn has_updated(&self) -> Tensor<B, 1, Bool> {
        self.mini_step.val().equal_elem(0).bool_and(self.gradient_step.val().greater_elem(0))
    }
}

impl<T> MultiSteps<T> {
    /// Adds gradients to the accumulated ones. Returns the result twice: as updates, absent where the given updates
    /// are, and as state.
    fn collect<B: Backend, P: Tree<B>>(&self, updates: P, acc_grads: P, mini_step: &Count<B>) -> [P; 2] {
        let part = Scalar::Array(steps(mini_step, precision(&updates)).add_scalar(1.0).recip());
        elementwise([updates, acc_grads], |[g, acc]| {
            let acc = match self.use_grad_mean {
                true => acc.clone() + part.times(g - acc),
                false => acc + g,
            };
            [acc.clone(), acc]
        })
    }

    /// Returns `[1]`, true if the gradients are skipped; `None` if gradients are never skipped.
    fn skipped<B: Backend, P: Tree<B>>(&self, updates: &P) -> Option<Tensor<B, 1, Bool>> {
        match self.skip {
            SkipUpdates::Never => None,
            SkipUpdates::NotFinite => all_finite(updates).map(Tensor::bool_not),
            SkipUpdates::Large { max_squared_norm } => {
                global_norm(updates).map(|norm| (norm.clone() * norm).lower_elem(max_squared_norm).bool_not())
            }
        }
    }
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for MultiSteps<T> {
    type State = MultiStepsState<B, T::State, P>;

    fn init(&self, params: &P) -> Self::State {
        MultiStepsState {
            mini_step: zero_count(params),
            gradient_step: zero_count(params),
            inner_opt_state: self.inner.init(params),
            acc_grads: zeros_like(params),
        }
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.mini_step) {
            return (updates, state);
        }
        let skipped = self.skipped(&updates);
        let before = skipped.as_ref().map(|_| state.clone());
        let collected = increment(state.mini_step.clone());
        let emit = match &self.every_k {
            EveryK::Steps(every_k) => collected.val().greater_equal_elem(bound(*every_k)),
            EveryK::Schedule(schedule) => {
                // A schedule returns f32, but `every_k` is an integer.
                let every_k = schedule.at(state.gradient_step.val()).round();
                steps(&collected, FloatDType::F32).greater_equal(every_k)
            }
        };
        let [mean, acc_grads] = self.collect(updates, state.acc_grads, &state.mini_step);
        let (updates, inner) = self.inner.update(mean, state.inner_opt_state.clone(), params);
        let (zero_updates, zero_grads) = (zeros_like(&updates), zeros_like(&acc_grads));
        let updates = select(&emit, updates, zero_updates.clone());
        let state = MultiStepsState {
            mini_step: Array::new(collected.val() * emit.clone().bool_not().int()),
            gradient_step: Array::new(state.gradient_step.val() + emit.clone().int()),
            inner_opt_state: select(&emit, inner, state.inner_opt_state),
            acc_grads: select(&emit, zero_grads, acc_grads),
        };
        match (skipped, before) {
            (Some(skipped), Some(before)) => (select(&skipped, zero_updates, updates), select(&skipped, before, state)),
            _ => (updates, state),
        }
    }
}
