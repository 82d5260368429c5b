//! Tracing functions of any traced backend into sub-graphs.

use burn::tensor::{DType, Tensor};
use burn_router::RunnerClient;
use grove_backend::{AnyTensor, Backend, Captured, capturing, ops::Spec};
use grove_tree::{
    AnyArray, Key, Path, StaticValue, Structure, Tree, Visitor, device_of,
    key::traced::{put_keys, take_keys},
    map, structure,
};

use super::{from_traced, to_traced};
use crate::{
    Graph, Traced,
    graph::as_key,
    sub_graph::SubGraph,
    traced::{Recording, TraceDevice, is_of_trace},
};

/// A function that was traced inside another trace.
pub(super) struct TracedFunction<O> {
    graph: Graph,
    /// Tensors of the enclosing trace, for which the last inputs of the graph stand.
    captured: Vec<AnyTensor<Traced>>,
    /// The result, with absent leaves.
    pub shell: O,
    pub leaves: Vec<LeafSpec>,
    /// True if a gradient flows to a result through the captured tensors.
    pub tracked: bool,
}

/// A leaf of an argument or a result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct LeafSpec {
    pub path: String,
    pub text: String,
    pub spec: Spec,
    pub present: bool,
    /// True for a random key, which is represented by an array of two words.
    pub key: bool,
}

impl LeafSpec {
    fn of_key(path: &Path) -> Self {
        let spec = Spec { shape: [2].into(), dtype: DType::U32 };
        Self { path: path.to_string(), text: "a random key".into(), spec, present: true, key: true }
    }

    fn of<B: Backend>(path: &Path, leaf: &AnyArray<B>) -> Self {
        let spec = Spec { shape: leaf.shape().to_vec().into(), dtype: leaf.dtype() };
        Self { path: path.to_string(), text: leaf.to_string(), spec, present: leaf.is_present(), key: false }
    }
}

/// Returns the leaves of a tree, including its random keys.
pub(super) fn leaves_of<B: Backend, T: Tree<B>>(tree: &T) -> Vec<LeafSpec> {
    struct Leaves(Vec<LeafSpec>);

    impl<B: Backend> Visitor<B> for Leaves {
        fn leaf(&mut self, path: &Path, leaf: &AnyArray<B>) {
            self.0.push(LeafSpec::of(path, leaf));
        }

        fn constant(&mut self, path: &Path, value: &dyn StaticValue) {
            self.0.extend(as_key(value).map(|_| LeafSpec::of_key(path)));
        }
    }

    let mut leaves = Leaves(Vec::new());
    tree.visit(&mut Path::root(), &mut leaves);
    leaves.0
}

/// Returns the present arrays of a tree, including its random keys.
pub(super) fn arrays_of<B: Backend, T: Tree<B>>(tree: &T) -> Vec<AnyTensor<B>> {
    struct Arrays<'a, B: Backend>(Vec<AnyTensor<B>>, &'a B::Device);

    impl<B: Backend> Visitor<B> for Arrays<'_, B> {
        fn leaf(&mut self, _: &Path, leaf: &AnyArray<B>) {
            self.0.extend(leaf.value().cloned());
        }

        fn constant(&mut self, _: &Path, value: &dyn StaticValue) {
            self.0.extend(as_key(value).map(|key| AnyTensor::from(key.data::<B>(self.1))));
        }
    }

    let device = device_of(tree).unwrap_or_default();
    let mut arrays = Arrays(Vec::new(), &device);
    tree.visit(&mut Path::root(), &mut arrays);
    arrays.0
}

/// Returns the structure of a tree, ignoring the values of its random keys.
pub(super) fn structure_of<B: Backend, T: Tree<B>>(tree: &T) -> Structure {
    structure(&take_keys(|| map(tree.clone(), |leaf| leaf)).0)
}

/// Replaces the present arrays and the random keys of a tree.
pub(super) fn filled<B: Backend, T: Tree<B>>(
    shell: T,
    leaves: &[LeafSpec],
    arrays: impl IntoIterator<Item = AnyTensor<B>>,
) -> T {
    let given = leaves.iter().filter(|leaf| leaf.present).zip(arrays);
    let (keys, arrays): (Vec<_>, Vec<_>) = given.partition(|(leaf, _)| leaf.key);
    let key = |(_, x)| match x {
        AnyTensor::Int(words) => Key::from_data::<B>(Tensor::from_primitive(words)),
        _ => unreachable!("the words of a key are integers"),
    };
    let (mut leaves, mut arrays) = (leaves.iter().filter(|leaf| !leaf.key), arrays.into_iter());
    put_keys(keys.into_iter().map(key).collect(), || {
        shell.map(&mut Path::root(), &mut |_, leaf| match leaves.next() {
            Some(LeafSpec { present: true, .. }) => arrays.next().map_or(leaf, |(_, x)| AnyArray::present(x)),
            _ => leaf,
        })
    })
}

/// Returns the device of the trace that the arrays belong to; the default trace device if there are no arrays.
pub(super) fn trace_of<'a, B: Backend>(arrays: impl IntoIterator<Item = &'a AnyTensor<B>>) -> TraceDevice {
    let first = arrays.into_iter().next().map(|x| to_traced(x.clone()).0);
    match first {
        Some(AnyTensor::Float(x) | AnyTensor::Int(x) | AnyTensor::Bool(x)) => x.client.device(),
        None => TraceDevice::default(),
    }
}

/// Traces a function of a tree whose arrays have the types of the given leaves.
#[track_caller]
pub(super) fn traced<B: Backend, T: Tree<B>, O: Tree<B>>(
    around: TraceDevice,
    args: T,
    leaves: &[LeafSpec],
    f: impl FnOnce(T) -> O,
) -> TracedFunction<O> {
    let recording = Recording::nested(around);
    let arguments: Vec<_> = leaves
        .iter()
        .filter(|leaf| leaf.present)
        .map(|leaf| from_traced::<B>(recording.input(leaf.path.clone(), leaf.spec.clone())))
        .collect();
    let result = f(filled(args, leaves, arguments));
    let leaves = leaves_of(&result);
    let mut tracked = false;
    let output = |(leaf, x): (&LeafSpec, _)| {
        let (x, flows) = to_traced(x);
        tracked |= flows;
        (leaf.path.clone(), x)
    };
    let outputs: Vec<_> = leaves.iter().filter(|leaf| leaf.present).zip(arrays_of(&result)).map(output).collect();
    let (shell, _) = take_keys(|| map(result, AnyArray::into_absent));
    let (graph, captured) = recording.finish_nested(outputs);
    TracedFunction { graph, captured, shell, leaves, tracked }
}

/// Runs a function that traces other functions inside a trace. Also returns the arrays of the enclosing trace that they
/// captured and that gradients flow to.
pub(super) fn with_what_it_captures<B: Backend, R>(around: TraceDevice, f: impl FnOnce() -> R) -> (R, Captured<B>) {
    let (result, captured) = capturing::<B, R>(f);
    (result, captured.only(|x| is_of_trace(around, id(&to_traced(x.clone()).0))))
}

/// Turns the captured arrays of a function into an additional last argument.
pub(super) fn with_captured<B: Backend, T, O: Tree<B>>(
    captured: &Captured<B>,
    f: impl Fn(T) -> O,
) -> impl Fn((T, Vec<AnyArray<B>>)) -> O {
    move |(args, arrays)| {
        let arrays = arrays.into_iter().filter_map(AnyArray::into_value).collect();
        captured.replaced(arrays, || {
            map(f(args), |leaf| match leaf.value() {
                Some(x) => AnyArray::present(B::in_place_of(x.clone())),
                None => leaf,
            })
        })
    }
}

/// Makes several graphs with the same arguments take the union of their captured tensors after their arguments. Returns the
/// graphs and the union.
pub(super) fn unified(functions: Vec<(Graph, Vec<AnyTensor<Traced>>)>) -> (Vec<Graph>, Vec<AnyTensor<Traced>>) {
    let mut all: Vec<AnyTensor<Traced>> = Vec::new();
    for x in functions.iter().flat_map(|(_, captured)| captured) {
        if !all.iter().any(|known| id(known) == id(x)) {
            all.push(x.clone());
        }
    }
    let graphs = functions.into_iter().map(|(mut graph, captured)| {
        let own = graph.inputs.split_off(graph.inputs.len() - captured.len());
        for (i, x) in all.iter().enumerate() {
            let known = captured.iter().position(|y| id(y) == id(x));
            let var = match known {
                Some(position) => own[position].1,
                None => graph.add_variable(Spec { shape: x.shape(), dtype: x.dtype() }),
            };
            graph.inputs.push((format!("captured.{i}"), var));
        }
        graph
    });
    (graphs.collect(), all)
}

fn id(x: &AnyTensor<Traced>) -> burn_ir::TensorId {
    crate::traced::id_of(x.clone())
}

impl<O> TracedFunction<O> {
    /// Returns the graph and its captured tensors.
    pub(super) fn into_parts(self) -> (Graph, Vec<AnyTensor<Traced>>) {
        (self.graph, self.captured)
    }

    /// Returns the structure of the result.
    pub(super) fn structure<B: Backend>(&self) -> Structure
    where
        O: Tree<B>,
    {
        structure_of(&self.shell)
    }
}

/// Moves the last inputs of a graph to the front.
pub(super) fn with_last_first(mut graph: Graph, last: usize) -> SubGraph {
    let count = graph.inputs.len();
    graph.inputs.rotate_left(count - last);
    SubGraph::new(graph)
}

/// Name, structure and leaves of a tree, for a comparison with another tree.
pub(super) struct Side<'a> {
    pub name: &'a str,
    pub structure: Structure,
    pub leaves: &'a [LeafSpec],
}

/// Panics unless two trees have the same structure, and their leaves have the same shapes, dtypes and presence. The message
/// starts with `rule`, which states what must be equal.
#[track_caller]
pub(super) fn check_same(rule: &str, left: &Side<'_>, right: &Side<'_>) {
    let (a, b) = (left.name, right.name);
    if let Some([of_left, of_right]) = left.structure.difference(&right.structure) {
        panic!("{rule}: {a} returns `{of_left}` where {b} returns `{of_right}`");
    }
    let pairs = left.leaves.iter().zip(right.leaves);
    if let Some((x, y)) = pairs.into_iter().find(|(x, y)| (&x.spec, x.present) != (&y.spec, y.present)) {
        let text = |leaf: &LeafSpec| format!("{}{}", leaf.text, if leaf.present { "" } else { ", absent" });
        let name = if x.path.is_empty() { "the result".to_owned() } else { format!("the leaf `{}`", x.path) };
        panic!("{rule}: {name} of {a} is {}, and of {b} {}", text(x), text(y));
    }
}

impl LeafSpec {
    /// Removes the first segments of the path of the leaf.
    pub(super) fn without_segments(&self, segments: usize) -> Self {
        let path = self.path.splitn(segments + 1, '.').nth(segments).unwrap_or_default().to_owned();
        Self { path, ..self.clone() }
    }
}

/// Returns true if a gradient flows to any of the arrays.
pub(super) fn is_tracked<B: Backend>(arrays: &[AnyTensor<B>]) -> bool {
    arrays.iter().any(|x| to_traced(x.clone()).1)
}
