use grove_backend::Backend;
use grove_tree::{FlatTree, NamedLeaves, Tree};

use crate::{Boxed, GradientTransformation};

/// A transformation for trees of any type, compiled once for each backend: it sees the leaves of a tree as a
/// [`FlatTree`]. See [`OptimizerConfig::build_for_any_tree`](crate::OptimizerConfig::build_for_any_tree).
#[derive(Clone, Debug)]
pub struct ForAnyTree<B: Backend> {
    inner: Boxed<B, FlatTree<B>>,
}

impl<B: Backend> ForAnyTree<B> {
    /// Creates a transformation from one of flat trees.
    pub fn new(inner: Boxed<B, FlatTree<B>>) -> Self {
        Self { inner }
    }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ForAnyTree<B> {
    type State = NamedLeaves<B>;

    fn init(&self, params: &P) -> Self::State {
        self.inner.init(&FlatTree::split(params.clone()).1)
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        let (frame, updates) = FlatTree::split(updates);
        let (updates, state) = self.inner.update(updates, state, &FlatTree::split(params.clone()).1);
        (updates.join(frame), state)
    }

    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        let (frame, params) = FlatTree::split(params);
        let (params, state) = self.inner.step(FlatTree::split(updates).1, state, params);
        (params.join(frame), state)
    }
}
