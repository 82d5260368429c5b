use grove_backend::Backend;
use grove_tree::{Tree, paths};
use std::collections::BTreeMap;

use super::{Partition, partition};
use crate::{Scale, scale};

/// Layer-wise learning rate decay: multiplies the updates of a leaf by `factor` to the power of its depth below the
/// head, as in ELECTRA and BEiT. Place it after the optimizer in a chain.
///
/// `depth` returns the depth of a path, from 0 for the head to `deepest`.
///
/// ```
/// use grove_optim::{GradientTransformation, layer_decay};
/// use grove_tree::{Array, Init, Key};
/// # type B = burn_flex::Flex;
/// let updates = Init::<B>::new(Key::new(0), &Default::default()).normal([2], 1.0);
/// let params = (updates.clone(), updates.clone()); // paths 0, the layer below, and 1, the head
/// let decay = layer_decay::<B>(0.5, 1, |path| usize::from(path == "0"));
/// let (decayed, _) = decay.update(params.clone(), decay.init(&params), &params);
/// let values = |array: &Array<B, 1>| array.val().into_data().to_vec::<f32>().expect("floats");
/// assert_eq!(values(&decayed.0)[0], 0.5 * values(&params.0)[0]);
/// assert_eq!(values(&decayed.1), values(&params.1));
/// ```
///
/// # Panics
/// `init` panics if a depth is greater than `deepest`.
pub fn layer_decay<B: Backend>(
    factor: f64,
    deepest: usize,
    depth: impl Fn(&str) -> usize + Send + Sync + 'static,
) -> Partition<B, Scale<B>> {
    let slower = (0..=deepest).map(|depth| (depth.to_string(), scale(factor.powi(depth as i32))));
    partition(slower, move |path, _| depth(path.as_str()).to_string())
}

/// [`layer_decay`] for the parameters of a model. `depth` returns the depth of a path, from 0 for the head; it is
/// called once per path, and the maximum depth is found automatically.
pub fn layer_decay_of<B: Backend>(
    model: &impl Tree<B>,
    factor: f64,
    depth: impl Fn(&str) -> usize,
) -> Partition<B, Scale<B>> {
    let depths: BTreeMap<String, usize> = paths(model).into_iter().map(|path| (path.clone(), depth(&path))).collect();
    let deepest = depths.values().copied().max().unwrap_or(0);
    layer_decay(factor, deepest, move |path| depths.get(path).copied().unwrap_or(0))
}
