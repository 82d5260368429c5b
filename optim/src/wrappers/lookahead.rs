use grove_backend::Backend;
use grove_tree::{Array, Tree};

use crate::{
    Count, GradientTransformation, Scalar,
    leafwise::{elementwise, widened, zeros_like},
    select,
    transformation::{bound, has_no_leaves, increment, zero_count},
};

/// See [`lookahead`].
#[derive(Clone, Debug)]
pub struct Lookahead<B: Backend, T> {
    /// The optimizer of the fast parameters.
    pub fast_optimizer: T,
    /// Number of steps between synchronisations of fast and slow parameters.
    pub sync_period: u64,
    /// Fraction of the distance to the fast parameters that the slow ones move at a synchronisation.
    pub slow_step_size: Scalar<B>,
    /// If true, resets the optimizer's state after each synchronisation. Default false.
    pub reset_state: bool,
}

/// Lookahead: after every `sync_period` steps of an optimizer, the slow parameters move towards the fast ones by the
/// fraction `slow_step_size` of their distance, and the fast parameters are set to the slow ones.
///
/// The parameters of the model are the fast ones. The slow ones are part of the state: use [`LookaheadState::slow`] for
/// evaluation. (In optax both are parameters, a `LookaheadParams`, and updates are pairs; the values are the same.)
///
/// Zhang et al., "Lookahead Optimizer: k steps forward, 1 step back" (2019).
///
/// # Panics
/// If `sync_period` is 0.
pub fn lookahead<B: Backend, T>(
    fast_optimizer: T,
    sync_period: u64,
    slow_step_size: impl Into<Scalar<B>>,
) -> Lookahead<B, T> {
    assert_ne!(sync_period, 0, "`sync_period` is 0: it must be at least 1");
    Lookahead { fast_optimizer, sync_period, slow_step_size: slow_step_size.into(), reset_state: false }
}

/// The optimizer's state, the step count and the slow parameters.
#[derive(Tree, Clone, Debug)]
pub struct LookaheadState<B: Backend, S, P> {
    /// The state of the optimizer.
    pub fast_state: S,
    /// Number of steps since the last synchronisation.
    pub steps_since_sync: Count<B>,
    /// The slow parameters, f32, or f64 for f64 parameters; absent for absent parameters.
    pub slow: P,
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for Lookahead<B, T> {
    type State = LookaheadState<B, T::State, P>;

    fn init(&self, params: &P) -> Self::State {
        LookaheadState {
            fast_state: self.fast_optimizer.init(params),
            steps_since_sync: zero_count(params),
            slow: widened(params),
        }
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        if has_no_leaves(&updates, &state.steps_since_sync) {
            return (updates, state);
        }
        let (updates, mut fast_state) = self.fast_optimizer.update(updates, state.fast_state, params);
        let steps = increment(state.steps_since_sync).val();
        let sync = steps.clone().greater_equal_elem(bound(self.sync_period));
        if self.reset_state {
            fast_state = select(&sync, self.fast_optimizer.init(params), fast_state);
        }
        // Distance of the fast parameters from the slow ones after this step; 0 unless this step synchronises them.
        let [distance, _, _] = elementwise([updates.clone(), params.clone(), state.slow.clone()], |[g, p, slow]| {
            [p.clone() + g - slow.clone(), p, slow]
        });
        let nothing = zeros_like(&distance);
        let distance = select(&sync, distance, nothing);
        let back = self.slow_step_size.complement();
        let [updates, _, slow] = elementwise([updates, distance, state.slow], |[g, distance, slow]| {
            let slow = slow + self.slow_step_size.times(distance.clone());
            [g - back.times(distance.clone()), distance, slow]
        });
        let steps_since_sync = Array::new(steps * sync.bool_not().int());
        (updates, LookaheadState { fast_state, steps_since_sync, slow })
    }
}
