//! From a function of trees to a graph.

use burn::tensor::{DType, Tensor};
use grove_backend::{Backend, ops::Spec};
use grove_tree::{AnyArray, AnyTensor, Key, Path, Tree};

use crate::{
    Graph, Traced,
    control::{from_traced, is_traced, pruned},
    graph::keys_of,
    traced::{Caller, Recording, any, naming_lines, tensor_of},
    tree_arrays::arrays,
    types::Types,
    words::named,
};

/// Returns the program of a function: what it does with arrays of the shapes and types of its arguments, whatever their
/// values are. `jax.make_jaxpr`.
///
/// The function gets the arguments on the backend [`Traced`] and returns a tree. Absent leaves stay absent; to trace with
/// a skeleton, whose leaves are all absent, call [`trace_skeleton`]. Numbers and other static parts of the arguments, and
/// what the function captures, are fixed in the graph. Random keys are arguments: the program draws from the keys that it is
/// called with; keys in `#[tree(static)]` fields are fixed. Equations that no result depends on are left out.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_compile::{Traced, trace};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let x = Array::<B, 1>::new(Tensor::from_floats([1.0, 2.0], &Default::default()));
/// let graph = trace(|x: Array<Traced, 1>| Array::<_, 1>::new(x.val().tanh()), &x);
/// assert_eq!(graph.counts()["tanh"], 1);
/// ```
///
/// # Panics
/// If the function reads a value, uses arrays of another trace, or calls an operation that cannot be traced. The message ends
/// with the file and line of the call, or with the function where the program has no line tables.
#[track_caller]
pub fn trace<B: Backend, A: Tree<B>, O: Tree<Traced>>(f: impl FnOnce(A::On<Traced>) -> O, args: &A) -> Graph {
    let types = types_for(args);
    let lift = |recording: &Recording| {
        recording.with_key_inputs(key_paths(args), false, || arguments_for(recording, args.clone()))
    };
    record(Recording::start(types), lift, f).graph
}

/// As [`trace`], with arguments that need no values: every leaf stands for an array of its shape and type, also where it is
/// absent. `eval_shape` of grove-transform makes such a tree of a constructor without allocating.
#[track_caller]
pub fn trace_skeleton<B: Backend, A: Tree<B>, O: Tree<Traced>>(f: impl FnOnce(A::On<Traced>) -> O, args: &A) -> Graph {
    let types = types_for(args);
    let lift = |recording: &Recording| {
        recording.with_key_inputs(key_paths(args), false, || {
            args.clone()
                .lift(&mut Path::root(), &mut |path, leaf| argument(recording, path, leaf.shape(), leaf.dtype()))
        })
    };
    record(Recording::start(types), lift, f).graph
}

/// The paths of the keys of a tree.
pub(crate) fn key_paths<B: Backend, A: Tree<B>>(args: &A) -> Vec<String> {
    keys_of(args).into_iter().map(|(path, _)| path).collect()
}

/// The default types of the backend of a tree.
fn types_for<B: Backend, A: Tree<B>>(args: &A) -> Types {
    Types::of::<B>(arrays(args).1.as_ref())
}

/// The default types of the trace of some tensors, or of the one that is going on.
pub(crate) fn types_of<'a>(tensors: impl IntoIterator<Item = &'a AnyTensor<Traced>>) -> Types {
    let device = tensors.into_iter().next().map(AnyTensor::device).unwrap_or_default();
    Types::of::<Traced>(Some(&device))
}

/// A tree with arguments of a trace in place of its arrays. Absent leaves stay absent.
pub(crate) fn arguments_for<B: Backend, A: Tree<B>>(recording: &Recording, tree: A) -> A::On<Traced> {
    tree.lift(&mut Path::root(), &mut |path, leaf| match leaf.is_present() {
        true => argument(recording, path, leaf.shape(), leaf.dtype()),
        false => AnyArray::absent(leaf.shape(), leaf.dtype()),
    })
}

/// A leaf that stands for an argument.
pub(crate) fn argument(recording: &Recording, path: &Path, shape: &[usize], dtype: DType) -> AnyArray<Traced> {
    let spec = Spec { shape: shape.to_vec().into(), dtype };
    AnyArray::present(any(recording.input(path.to_string(), spec)))
}

/// A traced function.
pub(crate) struct Recorded<O> {
    pub graph: Graph,
    /// The result without its arrays.
    pub shell: O,
    /// For each leaf of the result, true if it is a result of the graph.
    pub present: Vec<bool>,
    /// The random keys of the result that are results of the graph, after the leaves: their numbers among the keys of the result.
    pub keys: Vec<usize>,
    /// Arrays of the trace around the function, which the last arguments of the graph stand for.
    pub captured: Vec<AnyTensor<Traced>>,
}

/// Arrays that a function has captured, on the backend of its arguments.
#[track_caller]
pub(crate) fn captured_on<B: Backend>(captured: &[AnyTensor<Traced>]) -> Vec<AnyTensor<B>> {
    if let Some(first) = captured.first()
        && !is_traced::<B>()
    {
        panic!(
            "a function that is called on arrays with values uses an array {:?} of the trace around it: call it on arrays of that \
             trace too{}",
            &first.shape()[..],
            Caller::here()
        );
    }
    captured.iter().cloned().map(from_traced).collect()
}

/// The keys of a result: those that a program has computed in their places.
pub(crate) fn computed_keys<B: Backend>(
    mut keys: Vec<Key>,
    positions: &[usize],
    computed: impl IntoIterator<Item = AnyTensor<B>>,
) -> Vec<Key> {
    for (position, words) in positions.iter().zip(computed) {
        keys[*position] = match words {
            AnyTensor::Int(words) => Key::from_data::<B>(Tensor::from_primitive(words)),
            _ => unreachable!("the words of a key are integers"),
        };
    }
    keys
}

/// Traces a function of a tree that `lift` creates.
#[track_caller]
pub(crate) fn record<T, O: Tree<Traced>>(
    recording: Recording,
    lift: impl FnOnce(&Recording) -> T,
    f: impl FnOnce(T) -> O,
) -> Recorded<O> {
    record_with(recording, lift, f, Key::is_array)
}

/// As [`record`], where the graph has the random keys of the result that `as_array` accepts.
#[track_caller]
pub(crate) fn record_with<T, O: Tree<Traced>>(
    recording: Recording,
    lift: impl FnOnce(&Recording) -> T,
    f: impl FnOnce(T) -> O,
    as_array: impl Fn(Key) -> bool,
) -> Recorded<O> {
    let args = lift(&recording);
    let result = naming_lines(|| f(args));
    let (mut outputs, mut present) = (Vec::new(), Vec::new());
    let shell = result.map(&mut Path::root(), &mut |path, leaf| {
        let absent = AnyArray::absent(leaf.shape(), leaf.dtype());
        present.push(leaf.is_present());
        if let Some(x) = leaf.into_value() {
            outputs.push((path.to_string(), tensor_of(x)));
        }
        absent
    });
    let key_outputs = keys_of(&shell);
    let keys = (0..key_outputs.len()).filter(|i| as_array(key_outputs[*i].1)).collect::<Vec<_>>();
    outputs.extend(keys.iter().map(|i| {
        let (path, key) = &key_outputs[*i];
        (path.clone(), tensor_of(key.data::<Traced>(&recording.device()).into()))
    }));
    match recording.finish_within(outputs, key_outputs) {
        Ok((graph, captured)) => {
            let (graph, captured) = pruned(graph, captured.into_iter().map(any).collect());
            Recorded { graph, shell, present, keys, captured }
        }
        Err(path) => panic!(
            "the {} of a traced function is an array of another trace: pass it as an argument, and return what \
             is computed from it{}",
            named("result", &path),
            Caller::here()
        ),
    }
}

/// A tree that has a counterpart in traces, from which it comes back. Every type that derives [`Tree`] and is generic in its
/// backend is one.
pub trait Traceable<B: Backend>: Tree<B, On<Traced> = Self::OnTraced> {
    /// The tree in a trace.
    type OnTraced: Tree<Traced, On<B> = Self>;
}

impl<B: Backend, T: Tree<B, On<Traced> = U>, U: Tree<Traced, On<B> = T>> Traceable<B> for T {
    type OnTraced = U;
}
