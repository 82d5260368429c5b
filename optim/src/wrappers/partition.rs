use grove_backend::Backend;
use grove_tree::{AnyArray, Filter, Path, Tree};
use std::{collections::BTreeMap, sync::Arc};

use super::{Masked, NamedChain, masked};
use crate::GradientTransformation;

type Labels<B> = dyn Fn(&Path, &AnyArray<B>) -> String + Send + Sync;

/// See [`partition`].
#[derive(Clone)]
pub struct Partition<B: Backend, T> {
    parts: NamedChain<Masked<B, T>>,
    labels: Arc<Labels<B>>,
}

/// Applies different transformations to different leaves: each leaf gets the transformation whose name is its label.
/// Transformations of several types are [`boxed`](crate::boxed). Paths in the state begin with the names,
/// `head.0.count`.
///
/// ```
/// use grove_optim::{Adamw, GradientTransformation, adamw, partition};
/// use grove_tree::{Array, paths};
/// # type B = burn_flex::Flex;
/// let with = |weight_decay: f64| adamw(1e-3, Adamw::default().weight_decay(weight_decay));
/// let optimizer = partition([("decay", with(0.1)), ("rest", with(0.0))], |_, leaf| {
///     if leaf.shape().len() > 1 { "decay" } else { "rest" }
/// });
/// let params = (Array::<B, 1>::absent([3]), Array::<B, 2>::absent([2, 3]));
/// let state = optimizer.init(&params);
/// assert!(paths::<B, _>(&state).contains(&"decay.0.mu.1".to_owned()));
/// ```
///
/// # Panics
/// If two transformations have the same name; `init` panics if the label of a present leaf is not one of the names.
pub fn partition<B: Backend, T, L: Into<String>>(
    transforms: impl IntoIterator<Item = (impl Into<String>, T)>,
    param_labels: impl Fn(&Path, &AnyArray<B>) -> L + Send + Sync + 'static,
) -> Partition<B, T> {
    let labels: Arc<Labels<B>> = Arc::new(move |path, leaf| param_labels(path, leaf).into());
    let parts = transforms.into_iter().map(|(name, part)| {
        let (labels, name): (_, String) = (labels.clone(), name.into());
        let label = name.clone();
        let mask = Filter::new(move |path, leaf| leaf.dtype().is_float() && labels(path, leaf) == label);
        (name, masked(part, mask))
    });
    Partition { parts: NamedChain::new(parts, "transformations"), labels }
}

impl<B: Backend, T> Partition<B, T> {
    fn check_labels<P: Tree<B>>(&self, params: &P) {
        // Absent leaves may belong to another part of the optimizer.
        let mut check = |path: &Path, leaf: &AnyArray<B>| {
            if !leaf.dtype().is_float() || path.is_buffer() || !leaf.is_present() {
                return;
            }
            let (label, names) = ((self.labels)(path, leaf), self.parts.names());
            assert!(
                names.contains(&label.as_str()),
                "the parameter `{path}` has the label `{label}`, but no transformation has this name; the names are: {}",
                names.join(", ")
            );
        };
        params.visit(&mut Path::root(), &mut check);
    }
}

impl<B: Backend, P: Tree<B>, T: GradientTransformation<B, P>> GradientTransformation<B, P> for Partition<B, T> {
    type State = BTreeMap<String, T::State>;

    fn init(&self, params: &P) -> Self::State {
        self.check_labels(params);
        self.parts.init(params)
    }

    fn update(&self, updates: P, state: Self::State, params: &P) -> (P, Self::State) {
        self.parts.update(updates, state, params)
    }
}
