use grove_backend::Backend;
use grove_tree::Tree;
use std::collections::BTreeMap;

use crate::GradientTransformation;

/// See [`named_chain`].
#[derive(Clone, Debug)]
pub struct NamedChain<T> {
    parts: Vec<(String, T)>,
}

/// A chain of transformations whose states have names: `clip.count` instead of `0.count`. Unlike indices, names do
/// not change when a part is added to the chain. Transformations of several types are [`boxed`](crate::boxed).
///
/// ```
/// use grove_optim::{Adam, GradientTransformation, adam, boxed, clip_by_global_norm, named_chain};
/// use grove_tree::{Array, paths};
/// # type B = burn_flex::Flex;
/// let optimizer = named_chain([("clip", boxed(clip_by_global_norm(1.0))), ("adam", boxed(adam(1e-3, Adam::default())))]);
/// let state = optimizer.init(&Array::<B, 1>::absent([3]));
/// assert_eq!(paths::<B, _>(&state), ["adam.0.count", "adam.0.mu", "adam.0.nu"]);
/// ```
///
/// # Panics
/// If two parts have the same name.
pub fn named_chain<T>(parts: impl IntoIterator<Item = (impl Into<String>, T)>) -> NamedChain<T> {
    NamedChain::new(parts, "parts of the chain")
}

impl<T> NamedChain<T> {
    /// Creates a chain. `what` describes the parts in the message of the panic.
    pub(super) fn new(parts: impl IntoIterator<Item = (impl Into<String>, T)>, what: &str) -> Self {
        let parts: Vec<(String, T)> = parts.into_iter().map(|(name, part)| (name.into(), part)).collect();
        for (i, (name, _)) in parts.iter().enumerate() {
            assert!(parts[..i].iter().all(|(other, _)| other != name), "two {what} are called `{name}`");
        }
        Self { parts }
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.parts.iter().map(|(name, _)| name.as_str()).collect()
    }
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for NamedChain<T> {
    type State = BTreeMap<String, T::State>;

    fn init(&self, params: &P) -> Self::State {
        self.parts.iter().map(|(name, inner)| (name.clone(), inner.init(params))).collect()
    }

    fn update(&self, mut updates: P, mut state: Self::State, params: &P) -> (P, Self::State) {
        let mut next = BTreeMap::new();
        for (name, inner) in &self.parts {
            let state = state
                .remove(name)
                .unwrap_or_else(|| panic!("the state does not belong to this chain: there is nothing for `{name}`"));
            let (new, state) = inner.update(updates, state, params);
            updates = new;
            next.insert(name.clone(), state);
        }
        (updates, next)
    }
}
