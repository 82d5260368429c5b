//! Tracing functions of trees into graphs.

use burn::tensor::{DType, Tensor};
use grove_backend::{Backend, ops::Spec};
use grove_tree::{AnyArray, AnyTensor, Key, Path, Tree, device_of, key::traced::put_keys};

use crate::{
    Graph, Traced,
    control::{from_traced, is_traced},
    graph::keys_of,
    traced::{Caller, Recording, naming_lines},
    types::Types,
    words::leaf_name,
};

/// Returns the graph of a function: its operations on arrays with the shapes and dtypes of the arguments, independent of their
/// values. `jax.make_jaxpr`.
///
/// The function receives the arguments on the backend [`Traced`] and returns a tree. Absent leaves stay absent; to trace with a
/// skeleton, whose leaves are all absent, call [`trace_skeleton`]. Numbers and other static parts of the arguments, and
/// captured values, become constants of the graph. Random keys are arguments: the program samples with the keys that it is
/// called with. Keys in `#[tree(static)]` fields are constants. Equations that no result depends on are removed.
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
/// with the file and line of the call, or with the function if the program has no line tables.
#[track_caller]
pub fn trace<B: Backend, A: Tree<B>, O: Tree<Traced>>(f: impl FnOnce(A::On<Traced>) -> O, args: &A) -> Graph {
    trace_with(f, args, |recording| arguments_for(recording, args.clone()))
}

/// Like [`trace`], with arguments that need no values: every leaf, present or absent, becomes an array of its shape and dtype.
/// `eval_shape` of grove-transform creates such a tree from a constructor without allocating memory.
#[track_caller]
pub fn trace_skeleton<B: Backend, A: Tree<B>, O: Tree<Traced>>(f: impl FnOnce(A::On<Traced>) -> O, args: &A) -> Graph {
    trace_with(f, args, |recording| {
        args.clone().lift(&mut Path::root(), &mut |path, leaf| argument(recording, path, leaf.shape(), leaf.dtype()))
    })
}

/// Traces a function with the arguments that `lift` returns.
#[track_caller]
fn trace_with<B: Backend, A: Tree<B>, O: Tree<Traced>>(
    f: impl FnOnce(A::On<Traced>) -> O,
    args: &A,
    lift: impl FnOnce(&Recording) -> A::On<Traced>,
) -> Graph {
    let types = Types::of::<B>(device_of(args).as_ref());
    let lift = |recording: &Recording| recording.with_key_inputs(key_paths(args), false, || lift(recording));
    record(Recording::start(types), lift, f).graph
}

/// Returns the paths of the keys of a tree.
pub(crate) fn key_paths<B: Backend, A: Tree<B>>(args: &A) -> Vec<String> {
    keys_of(args).into_iter().map(|(path, _)| path).collect()
}

/// Returns the default dtypes of the trace that tensors belong to, or of the active trace if there are no tensors.
pub(crate) fn types_of<'a>(tensors: impl IntoIterator<Item = &'a AnyTensor<Traced>>) -> Types {
    let device = tensors.into_iter().next().map(AnyTensor::device).unwrap_or_default();
    Types::of::<Traced>(Some(&device))
}

/// Replaces the arrays of a tree by arguments of a trace. Absent leaves stay absent.
pub(crate) fn arguments_for<B: Backend, A: Tree<B>>(recording: &Recording, tree: A) -> A::On<Traced> {
    tree.lift(&mut Path::root(), &mut |path, leaf| match leaf.is_present() {
        true => argument(recording, path, leaf.shape(), leaf.dtype()),
        false => AnyArray::absent(leaf.shape(), leaf.dtype()),
    })
}

/// Creates a leaf that is an argument of the trace.
pub(crate) fn argument(recording: &Recording, path: &Path, shape: &[usize], dtype: DType) -> AnyArray<Traced> {
    let spec = Spec { shape: shape.to_vec().into(), dtype };
    AnyArray::present(recording.input(path.to_string(), spec))
}

/// A traced function.
pub(crate) struct Recorded<O> {
    pub graph: Graph,
    pub result: Returned<O>,
    /// Arrays of the enclosing trace that the function captured: the last arguments of the graph.
    pub captured: Vec<AnyTensor<Traced>>,
}

/// The result of a traced function, without its arrays.
pub(crate) struct Returned<O> {
    /// The result with absent leaves.
    pub shell: O,
    /// For each leaf, true if the graph returns it.
    pub present: Vec<bool>,
    /// Random keys that the graph returns after the leaves, as indices among the keys of the result.
    keys: Vec<usize>,
}

impl<O: Tree<Traced>> Returned<O> {
    /// Returns the random keys of the trace.
    pub fn keys(&self) -> Vec<Key> {
        keys_of(&self.shell).into_iter().map(|(_, key)| key).collect()
    }

    /// Fills the tree with the results of the program. Random keys that the program has computed replace those in `keys`. Also
    /// returns the keys of the tree.
    pub fn filled<B: Backend>(
        &self,
        mut results: Vec<Option<AnyTensor<B>>>,
        mut keys: Vec<Key>,
    ) -> (O::On<B>, Vec<Key>) {
        let computed = results.split_off(results.len() - self.keys.len());
        for (position, words) in self.keys.iter().zip(computed) {
            keys[*position] = match words {
                Some(AnyTensor::Int(words)) => Key::from_data::<B>(Tensor::from_primitive(words)),
                _ => unreachable!("the words of a key are integers"),
            };
        }
        (self.filled_with_keys(results, &keys), keys)
    }

    /// Fills the tree with arrays and random keys.
    pub fn filled_with_keys<B: Backend>(
        &self,
        arrays: impl IntoIterator<Item = Option<AnyTensor<B>>>,
        keys: &[Key],
    ) -> O::On<B> {
        let (mut arrays, mut present) = (arrays.into_iter(), self.present.iter());
        put_keys(keys.to_vec(), || {
            self.shell.clone().lift::<B>(&mut Path::root(), &mut |_, leaf| {
                let array = present.next().filter(|present| **present).and_then(|_| arrays.next()).flatten();
                array.map_or_else(|| AnyArray::absent(leaf.shape(), leaf.dtype()), AnyArray::present)
            })
        })
    }
}

/// Returns captured arrays on the backend of the function's arguments.
#[track_caller]
pub(crate) fn captured_on<B: Backend>(captured: &[AnyTensor<Traced>]) -> Vec<AnyTensor<B>> {
    if let Some(first) = captured.first()
        && !is_traced::<B>()
    {
        panic!(
            "a function that is called on arrays with values uses an array {:?} of an enclosing trace: call it on \
             arrays of that trace{}",
            &first.shape()[..],
            Caller::here()
        );
    }
    captured.iter().cloned().map(from_traced).collect()
}

/// Traces a function of a tree created by `lift`.
#[track_caller]
pub(crate) fn record<T, O: Tree<Traced>>(
    recording: Recording,
    lift: impl FnOnce(&Recording) -> T,
    f: impl FnOnce(T) -> O,
) -> Recorded<O> {
    record_with(recording, lift, f, Key::is_array)
}

/// Like [`record`]. The graph returns the random keys of the result for which `as_array` is true.
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
            outputs.push((path.to_string(), x));
        }
        absent
    });
    let key_outputs = keys_of(&shell);
    let keys = (0..key_outputs.len()).filter(|i| as_array(key_outputs[*i].1)).collect::<Vec<_>>();
    outputs.extend(keys.iter().map(|i| {
        let (path, key) = &key_outputs[*i];
        (path.clone(), key.data::<Traced>(&recording.device()).into())
    }));
    match recording.finish_within(outputs, key_outputs) {
        Ok((graph, captured)) => Recorded { graph, result: Returned { shell, present, keys }, captured },
        Err(path) => panic!(
            "the {} of a traced function is an array of another trace: pass it as an argument, and return what \
             is computed from it{}",
            leaf_name("result", &path),
            Caller::here()
        ),
    }
}

/// A tree with a counterpart in traces that converts back to the tree. Every type that derives [`Tree`] and is generic in its
/// backend implements it.
pub trait Traceable<B: Backend>: Tree<B, On<Traced> = Self::OnTraced> {
    /// The counterpart in a trace.
    type OnTraced: Tree<Traced, On<B> = Self>;
}

impl<B: Backend, T: Tree<B, On<Traced> = U>, U: Tree<Traced, On<B> = T>> Traceable<B> for T {
    type OnTraced = U;
}
