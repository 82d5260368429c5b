use burn::tensor::{Bool, Tensor};
use grove_backend::Backend;
use grove_tree::{Array, Tree};

use crate::{
    Count, GradientTransformation, all_finite,
    leafwise::zeros_like,
    select,
    transformation::{bound, device_of, zero_count},
};

/// See [`apply_if_finite`].
#[derive(Clone, Debug)]
pub struct ApplyIfFinite<T> {
    inner: T,
    max_consecutive_errors: u64,
}

/// Ignores gradients that are not finite: the updates are 0 and the inner state stays unchanged. After
/// `max_consecutive_errors` such gradients in a row, further ones are applied, so that the failure becomes visible.
///
/// The condition is evaluated on the device without a read: the inner step is always computed, and then selected or
/// discarded. `grove_train::fit` ends a run at the first step that is not finite, unless its option `non_finite` is
/// `NonFinite::Optimizer`.
pub fn apply_if_finite<T>(inner: T, max_consecutive_errors: u64) -> ApplyIfFinite<T> {
    ApplyIfFinite { inner, max_consecutive_errors }
}

/// Counts of ignored gradients, and the inner state.
#[derive(Tree, Clone, Debug)]
pub struct ApplyIfFiniteState<B: Backend, S> {
    /// Number of consecutive non-finite steps so far.
    pub notfinite_count: Count<B>,
    /// True if the last step was finite, `[1]`.
    pub last_finite: Array<B, 1, Bool>,
    /// Total number of non-finite steps.
    pub total_notfinite: Count<B>,
    /// The state of the inner transformation.
    pub inner_state: S,
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for ApplyIfFinite<T> {
    type State = ApplyIfFiniteState<B, T::State>;

    fn init(&self, params: &P) -> Self::State {
        let last_finite = match device_of(params) {
            Some(device) => Array::new(Tensor::<B, 1>::zeros([1], &device).equal_elem(0.0)),
            None => Array::absent([1]),
        };
        ApplyIfFiniteState {
            notfinite_count: zero_count(params),
            last_finite,
            total_notfinite: zero_count(params),
            inner_state: self.inner.init(params),
        }
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        let Some(finite) = all_finite(&updates) else {
            let (updates, inner_state) = self.inner.update(updates, state.inner_state, params);
            return (updates, ApplyIfFiniteState { inner_state, ..state });
        };
        let failed = finite.clone().bool_not().int();
        let notfinite_count = (state.notfinite_count.val() + failed.clone()) * failed.clone();
        let total_notfinite = state.total_notfinite.val() + failed;
        let too_many = notfinite_count.clone().greater_elem(bound(self.max_consecutive_errors));
        let applied = finite.clone().bool_or(too_many);
        let (updates, inner_state) = self.inner.update(updates, state.inner_state.clone(), params);
        let zeros = zeros_like(&updates);
        let state = ApplyIfFiniteState {
            notfinite_count: Array::new(notfinite_count),
            last_finite: Array::new(finite),
            total_notfinite: Array::new(total_notfinite),
            inner_state: select(&applied, inner_state, state.inner_state),
        };
        (select(&applied, updates, zeros), state)
    }
}
