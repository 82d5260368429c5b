//! Vectorising map: batching functions of one example.

mod mapped;
mod modules;
mod per_example;
mod random;
mod rules;
mod whole;

use burn::tensor::TensorData;
use grove_backend::{AnyTensor, Backend};
use grove_transform::{Stack, Stacked, stack};
use grove_tree::{AnyArray, Key, Path, StaticValue, Tree, Visitor, key::traced::put_keys, map};
use std::{fmt, marker::PhantomData};

use crate::{
    Graph, Traced,
    eval::Program,
    graph::{Var, as_key, keys_of},
    trace::{Recorded, Returned, argument, captured_on, record_with},
    traced::Recording,
    types::Types,
    words::leaf_name,
};
pub use mapped::{Mapped, MappedLeaf, Over, Shared};
pub use per_example::per_example_grads;
pub(crate) use rules::{Batched, expanded, move_axis, run, run_batched};

/// Maps a function over a batch axis: `jax.vmap`.
///
/// The function takes one tree on the backend [`Traced`] (a tuple for several arguments) and returns one tree, both for a
/// single example. [`call`](Vmap::call) takes the trees of all examples, stacked along the first axis of each array, and
/// returns stacked results. Wrap arguments that all examples share in [`Shared`], and arrays with another batch axis in
/// [`Over`]; these correspond to `in_axes`.
///
/// The function is traced for one example, and the batching rule of each operation in the graph runs it for all examples: a
/// matrix-vector product becomes a matrix-matrix product, and a kernel of attention gets all examples as one batch. The result
/// therefore equals a loop over the examples up to rounding.
/// Captured arrays of an enclosing trace are shared by all examples. Mapped functions nest, and can be differentiated and
/// traced: call them on the backend of the outer transformation, as [`jit`](crate::jit()) in `jit(|xs| vmap(f).call::<Traced,
/// _>(xs))`.
///
/// If all examples share one key, such as a captured one, they draw the same random numbers. [`Keys`](grove_tree::Keys) among
/// the arguments give each example its own key; sampling then loops over the examples.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::{Shared, Traced, vmap};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let dot = |(a, b): (Array<Traced, 1>, Array<Traced, 1>)| Array::<_, 1>::new((a.val() * b.val()).sum());
/// let a = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// let b = Array::<B, 2>::new(Tensor::from_floats([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], &Default::default()));
/// let products = vmap(dot).call((Shared(a), b));
/// assert_eq!(products.val().to_data().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0]);
/// ```
pub fn vmap<In: Tree<Traced>, Out: Tree<Traced>, F: Fn(In) -> Out>(f: F) -> Vmap<In, Out, F> {
    Vmap { f, out_axes: vec![0], function: PhantomData }
}

/// A function mapped over a batch axis; see [`vmap`].
pub struct Vmap<In, Out, F> {
    f: F,
    out_axes: Vec<usize>,
    function: PhantomData<fn(In) -> Out>,
}

impl<In: Tree<Traced>, Out: Tree<Traced>, F: Fn(In) -> Out> Vmap<In, Out, F> {
    /// Sets the batch axes of the results (`out_axes` of `jax.vmap`): one for each array in the order of the tree, or a single
    /// one for all arrays. Default: 0.
    pub fn out_axes(self, axes: impl Into<Vec<usize>>) -> Self {
        Self { out_axes: axes.into(), ..self }
    }

    /// Calls the function for all examples.
    ///
    /// # Shapes
    /// - array of one example `[...]`; of the batch `[examples, ...]`
    /// - array of one result `[...]`; of the batch `[examples, ...]`
    ///
    /// # Panics
    /// Same as [`trace`](crate::trace()), and if arrays differ in the number of examples, no array has a batch axis, or an axis is
    /// out of range.
    #[track_caller]
    pub fn call<B: Backend, A: Mapped<B>>(&self, args: A) -> <Out::On<B> as Stack<B>>::Stacked
    where
        A::Example: Tree<B, On<Traced> = In>,
        Out::On<B>: Stack<B>,
    {
        let Results { shell, leaves, .. } = self.results(args, |_| true);
        let mut leaves = leaves.into_iter();
        map(stack(vec![shell]), |leaf| leaves.next().unwrap_or(leaf))
    }

    /// Like [`call`](Self::call), for results of any type, such as models.
    ///
    /// # Panics
    /// Same as [`call`](Self::call), and if a random key in the results differs between examples.
    #[track_caller]
    pub fn call_stacked<B: Backend, A: Mapped<B>>(&self, args: A) -> Stacked<B, Out::On<B>>
    where
        A::Example: Tree<B, On<Traced> = In>,
    {
        let Results { shell, leaves, examples } = self.results(args, same_for_all);
        Stacked::from_leaves(shell, leaves, examples)
    }

    #[track_caller]
    fn results<B: Backend, A: Mapped<B>>(&self, args: A, as_array: fn(Key) -> bool) -> Results<B, Out::On<B>>
    where
        A::Example: Tree<B, On<Traced> = In>,
    {
        let mut leaves = Vec::new();
        let shell = args.split(0, &mut Path::root(), &mut leaves);
        let examples = number_of_examples(&leaves);
        let device = leaves.iter().find_map(|leaf| leaf.array.device()).unwrap_or_default();
        // Random keys are the first arguments of the program.
        leaves.sort_by_key(|leaf| !leaf.keys);
        let (keys, arrays) = leaves.split_at(leaves.iter().take_while(|leaf| leaf.keys).count());
        let mut present = arrays.iter().map(|leaf| leaf.array.is_present());
        let lift = |recording: &Recording| {
            let mut own = keys.iter().map(|leaf| recording.key_array(leaf.path.clone()));
            let key = |(_, key): (_, Key)| if key == Key::stand_in() { own.next().unwrap_or(key) } else { key };
            put_keys(keys_of::<B, _>(&shell).into_iter().map(key).collect(), || {
                shell.lift::<Traced>(&mut Path::root(), &mut |path, leaf| match present.next() {
                    Some(true) => argument(recording, path, leaf.shape(), leaf.dtype()),
                    _ => AnyArray::absent(leaf.shape(), leaf.dtype()),
                })
            })
        };
        let recording = Recording::within(Types::of::<B>(Some(&device)), &device);
        let Recorded { graph, result, captured } = record_with(recording, lift, &self.f, as_array);
        let Returned { shell, present, .. } = result;
        let arguments = leaves.into_iter().filter_map(|leaf| {
            let tensor = leaf.array.into_value()?;
            Some(match leaf.axis {
                Some(axis) => Batched { tensor: move_axis(tensor, axis, 0), batched: true },
                None => Batched { tensor, batched: false },
            })
        });
        let captured = captured_on::<B>(&captured).into_iter().map(|tensor| Batched { tensor, batched: false });
        let arguments: Vec<_> = arguments.chain(captured).collect();
        let graph = whole::decomposed(graph, arguments.iter().map(|x| x.batched));
        let program = Program::new(graph.without_common_subexpressions());
        let results = match examples {
            0 => empty_results(program.graph(), &device),
            _ => run(&program, arguments, examples, &device),
        };
        let mut results = results.into_iter();
        let arrays: Vec<_> = results.by_ref().take(present.iter().filter(|present| **present).count()).collect();
        // The program returns random keys last; move them to their positions among the leaves.
        let (mut arrays, mut keys, mut present) = (arrays.into_iter(), results, present.into_iter());
        let mut leaves = Vec::new();
        for (path, absent) in leaf_paths(&shell) {
            leaves.push(match absent {
                Some(absent) => match present.next() {
                    Some(true) => self.out(&path, leaves.len(), arrays.next()),
                    _ => AnyArray::absent([&[examples], absent.shape()].concat(), absent.dtype()),
                },
                None => match keys.next() {
                    Some(words) => AnyArray::present(words),
                    None => continue,
                },
            });
        }
        let shell = shell.lift::<B>(&mut Path::root(), &mut |_, leaf| AnyArray::absent(leaf.shape(), leaf.dtype()));
        Results { shell, leaves, examples }
    }

    /// Moves the batch axis of a result to the requested position.
    #[track_caller]
    fn out<B: Backend>(&self, path: &Path, index: usize, result: Option<AnyTensor<B>>) -> AnyArray<B> {
        let Some(result) = result else {
            unreachable!("a graph has one result for each leaf that its function returns")
        };
        let axis = match self.out_axes[..] {
            [axis] => axis,
            _ => self.out_axes.get(index).copied().unwrap_or_else(|| {
                panic!(
                    "`out_axes` has {} axes, fewer than the results have leaves: give one for the {}",
                    self.out_axes.len(),
                    leaf_name("result", path.as_str())
                )
            }),
        };
        let rank = result.shape().num_dims();
        let name = leaf_name("result", path.as_str());
        assert!(
            axis < rank,
            "axis {axis} of `out_axes` is out of range for the {name}, which has {rank} axes including the batch axis"
        );
        AnyArray::present(move_axis(result, 0, axis))
    }
}

/// Returns false for a random key that all examples share; panics for other keys.
#[track_caller]
fn same_for_all(key: Key) -> bool {
    assert!(
        !key.is_array(),
        "a random key in the result of a mapped function differs between examples, but `call_stacked` returns one key \
         for all: use `call`, which returns `Keys`"
    );
    false
}

/// Returns the paths of the leaves and random keys of a tree, in order, with the leaves.
fn leaf_paths<O: Tree<Traced>>(tree: &O) -> Vec<(Path, Option<AnyArray<Traced>>)> {
    struct LeafPaths(Vec<(Path, Option<AnyArray<Traced>>)>);

    impl Visitor<Traced> for LeafPaths {
        fn leaf(&mut self, path: &Path, leaf: &AnyArray<Traced>) {
            self.0.push((path.clone(), Some(leaf.clone())));
        }

        fn constant(&mut self, path: &Path, value: &dyn StaticValue) {
            self.0.extend(as_key(value).map(|_| (path.clone(), None)));
        }
    }

    let mut leaf_paths = LeafPaths(Vec::new());
    tree.visit(&mut Path::root(), &mut leaf_paths);
    leaf_paths.0
}

/// Results of a mapped function.
struct Results<B: Backend, T> {
    /// Result for one example, with absent leaves.
    shell: T,
    leaves: Vec<AnyArray<B>>,
    examples: usize,
}

/// Returns the size of the batch axes.
#[track_caller]
fn number_of_examples<B: Backend>(leaves: &[MappedLeaf<B>]) -> usize {
    let size = |leaf: &MappedLeaf<B>| Some((leaf.array.shape()[leaf.axis?], leaf.path.clone()));
    let mut sizes = leaves.iter().filter_map(size);
    let Some((examples, first)) = sizes.next() else {
        panic!("no argument of a mapped function has a batch axis: at least one array must not be `Shared`")
    };
    if let Some((other, path)) = sizes.find(|(size, _)| *size != examples) {
        panic!(
            "the {} of a mapped function has {examples} examples, but the {} has {other}: the numbers must be equal; \
             wrap what all examples share in `Shared`",
            leaf_name("argument", &first),
            leaf_name("argument", &path)
        );
    }
    examples
}

/// Returns the results of a graph for a batch of size zero.
fn empty_results<B: Backend>(graph: &Graph, device: &B::Device) -> Vec<AnyTensor<B>> {
    let empty = |(_, var): &(String, Var)| {
        let shape = [&[0], &graph.shape(*var)[..]].concat();
        AnyTensor::from_data(TensorData::zeros::<f32, _>(shape).convert_dtype(graph.dtype(*var)), device)
    };
    graph.outputs().iter().map(empty).collect()
}

impl<In, Out, F> fmt::Debug for Vmap<In, Out, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vmap").field("out_axes", &self.out_axes).finish_non_exhaustive()
    }
}
