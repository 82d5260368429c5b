use grove_backend::Backend;
use grove_tree::{NamedLeaves, Tree, leaves, map_with_path, skeleton};
use std::{fmt, sync::Arc};

use crate::{GradientTransformation, apply_updates};

/// A transformation with an erased type, for chains that are built from a configuration.
///
/// The state contains the leaves of the inner state by path. The paths are those of the inner state, so that a state
/// saved with either can be loaded with the other. A vector of boxed transformations is a chain.
///
/// ```
/// use grove_optim::{Adam, Boxed, GradientTransformation, adam, boxed, clip_by_global_norm};
/// use grove_tree::{Array, paths};
/// # type B = burn_flex::Flex;
/// let clip = Some(1.0);
/// let mut parts: Vec<Boxed<B, Array<B, 2>>> = Vec::new();
/// if let Some(max_norm) = clip {
///     parts.push(boxed(clip_by_global_norm(max_norm)));
/// }
/// parts.push(boxed(adam(1e-3, Adam::default())));
/// let state = parts.init(&Array::absent([2, 3]));
/// assert_eq!(paths::<B, _>(&state), ["1.0.count", "1.0.mu", "1.0.nu"]);
/// ```
#[derive(Clone)]
pub struct Boxed<B: Backend, P: Tree<B>> {
    inner: Arc<dyn GradientTransformation<B, P, State = NamedLeaves<B>> + Send + Sync>,
}

/// Erases the type of a transformation and of its state; see [`Boxed`].
pub fn boxed<B, P, T>(inner: T) -> Boxed<B, P>
where
    B: Backend,
    P: Tree<B>,
    T: GradientTransformation<B, P> + Send + Sync + 'static,
{
    Boxed { inner: Arc::new(Named(inner)) }
}

impl<B: Backend, P: Tree<B>> fmt::Debug for Boxed<B, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Boxed")
    }
}

/// A transformation whose state has the leaves of the inner state by path.
struct Named<T>(T);

/// Rebuilds a state from its leaves.
fn state_of<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>>(
    inner: &T,
    mut leaves: NamedLeaves<B>,
    params: &P,
) -> T::State {
    // Only the structure of the state is needed, and absent leaves allocate nothing.
    let frame = inner.init(&skeleton(params.clone()));
    let state = map_with_path(frame, |path, _| {
        leaves.remove(path.as_str()).unwrap_or_else(|| {
            panic!("the state does not belong to this chain, which needs a leaf `{path}`: create it with `init`")
        })
    });
    if let Some(path) = leaves.keys().next() {
        panic!("the state does not belong to this chain, which has no leaf `{path}`: create it with `init`");
    }
    state
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for Named<T> {
    type State = NamedLeaves<B>;

    fn init(&self, params: &P) -> Self::State {
        named(&self.0.init(params))
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        let (updates, inner) = self.0.update(updates, state_of(&self.0, state, params), params);
        (updates, named(&inner))
    }

    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        let state = state_of(&self.0, state, &params);
        let (params, inner) = self.0.step(updates, state, params);
        (params, named(&inner))
    }
}

/// Returns all leaves by path, including absent ones.
fn named<B: Backend, S: Tree<B>>(state: &S) -> NamedLeaves<B> {
    leaves(state).into_iter().collect()
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for Boxed<B, P> {
    type State = NamedLeaves<B>;

    fn init(&self, params: &P) -> Self::State {
        self.inner.init(params)
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        self.inner.update(updates, state, params)
    }

    fn step(&self, updates: P, state: Self::State, params: P) -> (P, Self::State) {
        self.inner.step(updates, state, params)
    }
}

/// A vector is a chain of transformations of one type, such as [`Boxed`].
impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for Vec<T> {
    type State = Vec<T::State>;

    fn init(&self, params: &P) -> Self::State {
        self.iter().map(|inner| inner.init(params)).collect()
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        update_all(self, updates, state, params)
    }

    fn step(&self, mut updates: P, mut state: Self::State, params: P) -> (P, Self::State) {
        check(self, &state);
        let (Some((last, before)), Some(last_state)) = (self.split_last(), state.pop()) else {
            return (apply_updates(params, updates), state);
        };
        let mut next;
        (updates, next) = update_all(before, updates, state, &params);
        let (params, last_state) = last.step(updates, last_state, params);
        next.push(last_state);
        (params, next)
    }
}

fn check<T, S>(chain: &[T], state: &[S]) {
    assert_eq!(chain.len(), state.len(), "the state does not belong to this chain: it is for another number of parts");
}

/// Applies the transformations one after the other.
fn update_all<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>>(
    chain: &[T],
    mut updates: P,
    state: Vec<T::State>,
    params: &P,
) -> (P, Vec<T::State>) {
    check(chain, &state);
    let mut next = Vec::with_capacity(state.len());
    for (inner, state) in chain.iter().zip(state) {
        let (new, state) = inner.update(updates, state, params);
        updates = new;
        next.push(state);
    }
    (updates, next)
}
