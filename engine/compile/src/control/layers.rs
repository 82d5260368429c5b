//! Layers of the same structure as a loop.

use grove_backend::{AnyTensor, Backend};
use grove_transform::{Scan, Stack, Stacked, Unstack};
use grove_tree::{AnyArray, Node, Path, Tree, Visitor, map};

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
    let step = |(), x: C, Leaves(leaves): Leaves<B>| {
        let mut leaves = leaves.into_iter();
        (f(map(one.clone(), |leaf| leaves.next().unwrap_or(leaf)), x), ())
    };
    scan_with(options, &(), step, init, Leaves(leaves)).0
}

/// The leaves of one layer, or the stacked leaves of all layers.
#[derive(Clone)]
struct Leaves<B: Backend>(Vec<AnyArray<B>>);

impl<B: Backend> Tree<B> for Leaves<B> {
    type On<C: Backend> = Leaves<C>;

    fn visit(&self, path: &mut Path, visitor: &mut dyn Visitor<B>) {
        visitor.enter(path, Node::Sequence);
        for (i, leaf) in self.0.iter().enumerate() {
            path.within_index(i, |path| {
                visitor.enter(path, Node::Leaf);
                visitor.leaf(path, leaf);
                visitor.exit(path, Node::Leaf);
            });
        }
        visitor.exit(path, Node::Sequence);
    }

    fn map(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<B>) -> Self {
        self.lift(path, f)
    }

    fn lift<C: Backend>(self, path: &mut Path, f: &mut dyn FnMut(&Path, AnyArray<B>) -> AnyArray<C>) -> Leaves<C> {
        let leaves = self.0.into_iter().enumerate();
        Leaves(leaves.map(|(i, leaf)| path.within_index(i, |path| f(path, leaf))).collect())
    }
}

impl<B: Backend> Stack<B> for Leaves<B> {
    type Stacked = Self;

    fn stack(steps: Vec<Self>, _: &mut Path) -> Self {
        let length = steps.len();
        let mut columns: Vec<_> = steps.into_iter().map(|Self(leaves)| leaves.into_iter()).collect();
        let mut stacked = Vec::new();
        loop {
            let column: Vec<AnyArray<B>> = columns.iter_mut().filter_map(Iterator::next).collect();
            let Some(first) = column.first() else { return Self(stacked) };
            let absent = AnyArray::absent([&[length], first.shape()].concat(), first.dtype());
            let values: Option<Vec<_>> = column.into_iter().map(AnyArray::into_value).collect();
            stacked.push(values.map_or(absent, |values| AnyArray::present(AnyTensor::stack(values))));
        }
    }
}

impl<B: Backend> Unstack<B> for Leaves<B> {
    type Step = Self;

    fn unstack(self, steps: usize) -> Vec<Self> {
        let rows = self.0.into_iter().map(|leaf| {
            let absent = AnyArray::absent(&leaf.shape()[1..], leaf.dtype());
            match leaf.into_value() {
                Some(value) => value.unstack().into_iter().map(AnyArray::present).collect(),
                None => vec![absent; steps],
            }
        });
        let mut rows: Vec<_> = rows.map(Vec::into_iter).collect();
        (0..steps).map(|_| Self(rows.iter_mut().filter_map(Iterator::next).collect())).collect()
    }
}
