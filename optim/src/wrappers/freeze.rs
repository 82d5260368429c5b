use grove_backend::Backend;
use grove_tree::{Filter, Tree, filter};

use super::{Masked, masked};
use crate::{GradientTransformation, transformation::check_mask};

/// See [`freeze`].
#[derive(Clone)]
pub struct Freeze<B: Backend> {
    mask: Filter<B>,
}

/// Drops the updates of the leaves that pass a filter, so that their parameters do not change. (optax replaces these
/// updates by zeros; here they are absent, and later transformations skip them.)
///
/// Later transformations still have states for these leaves; use [`selective_transform`] to avoid that.
///
/// # Panics
/// [`init`](GradientTransformation::init) panics if a pattern of the filter matches no path of the parameters.
pub fn freeze<B: Backend>(mask: Filter<B>) -> Freeze<B> {
    Freeze { mask }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for Freeze<B> {
    type State = ();

    fn init(&self, params: &P) {
        check_mask(&self.mask, params);
    }

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        (filter(updates, &!self.mask.clone()), ())
    }
}

/// See [`selective_transform`].
#[derive(Clone)]
pub struct SelectiveTransform<B: Backend, T> {
    inner: Masked<B, T>,
    freeze: Freeze<B>,
}

/// Applies an optimizer to the leaves that do not pass a filter. Leaves that pass have no update and no state.
pub fn selective_transform<B: Backend, T>(optimizer: T, freeze_mask: Filter<B>) -> SelectiveTransform<B, T> {
    SelectiveTransform { inner: masked(optimizer, !freeze_mask.clone()), freeze: freeze(freeze_mask) }
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P>
    for SelectiveTransform<B, T>
{
    type State = T::State;

    fn init(&self, params: &P) -> Self::State {
        self.inner.init(params)
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        let (updates, ()) = self.freeze.update(updates, (), params);
        self.inner.update(updates, state, params)
    }
}
