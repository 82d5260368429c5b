use grove_backend::Backend;
use grove_tree::{Filter, Tree, combine, filter, partition};

use crate::{
    GradientTransformation,
    transformation::{check_mask, device_of},
};

/// See [`masked`].
#[derive(Clone)]
pub struct Masked<B: Backend, T> {
    inner: T,
    mask: Filter<B>,
}

/// Applies a transformation to the leaves that pass a filter. The other leaves are returned unchanged and have no
/// state. If no leaf passes, all updates are returned unchanged.
pub fn masked<B: Backend, T>(inner: T, mask: Filter<B>) -> Masked<B, T> {
    Masked { inner, mask }
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for Masked<B, T> {
    type State = T::State;

    fn init(&self, params: &P) -> Self::State {
        check_mask(&self.mask, params);
        self.inner.init(&filter(params.clone(), &self.mask))
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        let (updates, rest) = partition(updates, &self.mask);
        let params = filter(params.clone(), &self.mask);
        // A custom transformation may not expect a state without leaves.
        if device_of(&params).is_none() && device_of(&updates).is_none() {
            return (rest, state);
        }
        let (updates, state) = self.inner.update(updates, state, &params);
        (combine(updates, rest).expect("the parts of one tree"), state)
    }
}
