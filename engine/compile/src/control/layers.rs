//! Layers of the same structure as a loop.

use grove_backend::Backend;
use grove_transform::{Scan, Stacked};
use grove_tree::{AnyArray, Tree, map};

use super::{is_traced, scan_with};

/// Applies layers of the same structure in sequence: a [`scan`](super::scan) over their stacked parameters, as Equinox's and
/// Flax's scan over layers. In a trace the graph contains the operations of one layer, whatever the number of layers, so it is
/// small and quick to compile.
///
/// [`Stacked::new`] stacks the layers of a model once. A model that stores its layers stacked is trained and saved like any
/// other tree.
///
/// Layers that need randomness take their key from the carry, `(x, key)`. A captured key gives the same numbers in every layer.
///
/// # Panics
/// In a trace, if the result of a layer differs from its input in structure, shape or dtype.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::{Traced, scan_layers, trace};
/// use grove_transform::Stacked;
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let layer = |x: f32| Array::<B, 1>::new(Tensor::from_floats([x, -x], &Default::default()));
/// let layers = Stacked::new(vec![layer(1.0), layer(2.0), layer(3.0)]);
/// let y = scan_layers(layers.clone(), layer(0.5), |layer, x| Array::<_, 1>::new(x.val() * layer.val()));
/// assert_eq!(y.val().to_data().to_vec::<f32>().unwrap(), [3.0, 3.0]);
///
/// let graph = trace(
///     |(layers, x): (Stacked<Traced, Array<Traced, 1>>, Array<Traced, 1>)| {
///         scan_layers(layers, x, |layer, x| Array::<_, 1>::new(x.val() * layer.val()))
///     },
///     &(layers, layer(0.5)),
/// );
/// assert_eq!(graph.counts().get("scan"), Some(&1));
/// ```
#[track_caller]
pub fn scan_layers<B: Backend, T: Tree<B>, C: Tree<B>>(layers: Stacked<B, T>, init: C, f: impl Fn(T, C) -> C) -> C {
    if !is_traced::<B>() {
        return layers.unstack().into_iter().fold(init, |x, layer| f(layer, x));
    }
    let options = Scan::new().length(layers.len());
    let (one, leaves) = layers.into_leaves();
    let step = |(), x: C, leaves: Vec<AnyArray<B>>| {
        let mut leaves = leaves.into_iter();
        (f(map(one.clone(), |leaf| leaves.next().unwrap_or(leaf)), x), ())
    };
    scan_with(options, &(), step, init, leaves).0
}
