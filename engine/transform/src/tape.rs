//! Helpers of the transformations: moving trees onto and off Burn's tape.

use burn::tensor::{FloatDType, Shape, backend::AutodiffBackend, ops::FloatTensor};
use burn_autodiff::{
    checkpoint::base::Checkpointer,
    grads::Gradients,
    ops::{Backward, Ops, OpsKind, unary},
};
use grove_backend::{AnyTensor, Autodiff, Backend};
use grove_tree::{AnyArray, Path, Tree, leaf_name, map_with_path};

use crate::{
    backward::{self, Collector, Tracked},
    recompute::{NoRecompute, Recompute},
};

/// A tape that starts at some leaves.
///
/// All leaves have a common parent without a gradient. The parent's step is the last of the backward pass and runs when
/// all gradients are complete. Dropping the tape without a backward pass makes Burn free everything recorded on it;
/// other results of the tape must be dropped first.
pub(crate) struct Tape<B: Backend> {
    /// Created together with the first leaf.
    start: Option<Start<B>>,
    /// Device of untracked operations, which Burn records too.
    device: Option<B::Device>,
    /// True after the backward pass.
    done: bool,
}

struct Start<B: Backend> {
    /// Keeps the first node of the graph alive.
    _root: Tracked<B>,
    /// Common parent of the leaves.
    end: Tracked<B>,
    collector: Collector,
}

impl<B: Backend> Tape<B> {
    pub(crate) fn new() -> Self {
        Self { start: None, device: None, done: false }
    }

    /// Sets the device of the tape's results.
    pub(crate) fn on(&mut self, device: Option<B::Device>) {
        self.device = device;
    }

    /// Creates a tracked leaf.
    pub(crate) fn leaf(&mut self, x: FloatTensor<B>) -> Tracked<B> {
        let start = self.start.get_or_insert_with(|| Start::new(x.clone()));
        match Backward::<B, 1>::prepare::<NoRecompute>(LeafStep, [start.end.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish((), x),
            OpsKind::UnTracked(step) => step.finish(x),
        }
    }

    /// Returns the gradients of a scalar with respect to leaves of this tape. The gradient is `None` if the scalar does
    /// not depend on the leaf, is untracked, or is itself `None`.
    pub(crate) fn gradients<S: Recompute>(
        mut self,
        root: Option<AnyTensor<Autodiff<B, S>>>,
        leaves: Vec<Column<Autodiff<B, S>>>,
    ) -> Vec<Column<B>> {
        let root = root.and_then(tracked);
        let (Some(root), Some(start)) = (root, &self.start) else {
            let nothing = leaves.iter().map(|column| vec![None; column.len()]).collect();
            // The leaves must be dropped before the tape.
            drop(leaves);
            return nothing;
        };
        self.done = true;
        backward::run::<B, _>(root, &start.collector, move |grads| {
            let mut take = |x: Option<AnyTensor<Autodiff<B, S>>>| {
                <Autodiff<B> as AutodiffBackend>::grad_remove(&tracked(x?)?, grads).map(AnyTensor::Float)
            };
            leaves.into_iter().map(|column| column.into_iter().map(&mut take).collect()).collect()
        })
    }
}

impl<B: Backend> Start<B> {
    /// The tensor only determines the device. Its values are not read.
    fn new(x: FloatTensor<B>) -> Self {
        let root = require_grad::<Autodiff<B>>(<Autodiff<B> as AutodiffBackend>::from_inner(x.clone()));
        let collector = Collector::default();
        let end = match Backward::<B, 1>::prepare::<NoRecompute>(End, [root.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(step) => step.finish(collector.clone(), x),
            OpsKind::UnTracked(step) => step.finish(x),
        };
        Self { _root: root, end, collector }
    }
}

impl<B: Backend> Drop for Tape<B> {
    fn drop(&mut self) {
        // A second panic during unwinding would abort the program.
        if self.done || std::thread::panicking() {
            return;
        }
        match (self.start.take(), self.device.take()) {
            (Some(start), _) => {
                // A backward pass removes all unreachable nodes of its own graph.
                let mut end = start.end.clone();
                end.primitive = number::<B>(&B::float_device(&end.primitive));
                backward::clear::<B>(end);
            }
            (None, Some(device)) => clear_tape::<B>(&device),
            (None, None) => {}
        }
    }
}

/// Returns the tracked tensor; `None` if the tensor is not tracked.
fn tracked<B: Backend, S: Recompute>(x: AnyTensor<Autodiff<B, S>>) -> Option<Tracked<B>> {
    match x {
        AnyTensor::Float(x) if x.is_tracked() => Some(x),
        _ => None,
    }
}

/// Step of a leaf. Burn keeps the gradient for the caller of the backward pass.
#[derive(Debug)]
struct LeafStep;

impl<B: Backend> Backward<B, 1> for LeafStep {
    type State = ();

    fn backward(self, _: Ops<(), 1>, _: &mut Gradients, _: &mut Checkpointer) {}
}

/// Last step of the backward pass: collects the gradients.
#[derive(Debug)]
struct End;

impl<B: Backend> Backward<B, 1> for End {
    type State = Collector;

    fn backward(self, ops: Ops<Collector, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        ops.state.collect(grads);
    }
}

/// Returns a zero, `[1]`.
fn number<B: Backend>(device: &B::Device) -> FloatTensor<B> {
    B::float_zeros(Shape::from(vec![1]), device, FloatDType::F32)
}

/// Moves a leaf to the autodiff backend: tracked if there is a tape, otherwise as a constant.
pub(crate) fn lift_leaf<B: Backend, S: Recompute>(
    leaf: AnyArray<B>,
    tape: Option<&mut Tape<B>>,
) -> AnyArray<Autodiff<B, S>> {
    let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
    match leaf.into_value() {
        None => AnyArray::absent(shape, dtype),
        Some(AnyTensor::Float(x)) => AnyArray::present(AnyTensor::Float(match tape {
            Some(tape) => tape.leaf(x),
            None => <Autodiff<B, S> as AutodiffBackend>::from_inner(x),
        })),
        Some(AnyTensor::Int(x)) => AnyArray::present(AnyTensor::Int(x)),
        Some(AnyTensor::Bool(x)) => AnyArray::present(AnyTensor::Bool(x)),
    }
}

fn require_grad<B: burn::tensor::backend::Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_set_require_grad(x, true)
}

/// Moves a leaf from the autodiff backend to the inner backend.
pub(crate) fn lower_leaf<B: Backend, S: Recompute>(leaf: AnyArray<Autodiff<B, S>>) -> AnyArray<B> {
    let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
    match leaf.into_value() {
        None => AnyArray::absent(shape, dtype),
        Some(AnyTensor::Float(x)) => AnyArray::present(AnyTensor::Float(<Autodiff<B, S> as AutodiffBackend>::inner(x))),
        Some(AnyTensor::Int(x)) => AnyArray::present(AnyTensor::Int(x)),
        Some(AnyTensor::Bool(x)) => AnyArray::present(AnyTensor::Bool(x)),
    }
}

/// Returns a tree on the autodiff backend whose leaves are constants: no gradient flows to them. A loss function moves its
/// batch with it.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_transform::{from_inner, value_and_grad};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let vector = |x: [f32; 2]| Array::<B, 1>::new(Tensor::from_floats(x, &Default::default()));
/// let (weight, batch) = (vector([1.0, 2.0]), (vector([3.0, 4.0]), vector([0.0, 1.0])));
/// let (loss, _grad) = value_and_grad(&weight, |weight| {
///     let (x, y) = from_inner(batch.clone());
///     (weight.val() * x.val() - y.val()).square().sum()
/// });
/// assert_eq!(loss.into_scalar(), 58.0);
/// ```
pub fn from_inner<B: Backend, T: Tree<B>>(tree: T) -> T::On<Autodiff<B>> {
    tree.lift(&mut Path::root(), &mut |_, leaf| lift_leaf::<B, NoRecompute>(leaf, None))
}

/// Moves a tree from the autodiff backend to the inner backend.
pub(crate) fn lower<B: Backend, T: Tree<Autodiff<B>>>(tree: T) -> T::On<B> {
    tree.lift(&mut Path::root(), &mut |_, leaf| lower_leaf::<B, NoRecompute>(leaf))
}

/// The floating-point value or gradient of each leaf of a tree, in order; `None` if a leaf has none.
pub(crate) type Column<B> = Vec<Option<AnyTensor<B>>>;

/// Returns the floating-point values of a tree, leaf by leaf.
pub(crate) fn column<B: Backend, T: Tree<B>>(tree: &T) -> Column<B> {
    let mut column = Vec::new();
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| {
        column.push(leaf.value().filter(|x| matches!(x, AnyTensor::Float(_))).cloned());
    });
    column
}

/// Detaches a tree from its tape and tracks its floating-point leaves on `tape`. Also returns the tracked leaves.
pub(crate) fn track<B: Backend, T: Tree<Autodiff<B>>>(tree: T, tape: &mut Tape<B>) -> (T, Column<Autodiff<B>>) {
    track_at(tree, tape, |_| true)
}

/// Like [`track`], but buffers stay constants.
pub(crate) fn track_params<B: Backend, T: Tree<Autodiff<B>>>(tree: T, tape: &mut Tape<B>) -> (T, Column<Autodiff<B>>) {
    track_at(tree, tape, |path| !path.is_buffer())
}

/// Like [`track`], for the leaves at the paths for which `is_tracked` is true.
fn track_at<B: Backend, T: Tree<Autodiff<B>>>(
    tree: T,
    tape: &mut Tape<B>,
    is_tracked: impl Fn(&Path) -> bool,
) -> (T, Column<Autodiff<B>>) {
    let mut tracked = Vec::new();
    let tree = map_with_path(tree, |path, leaf| {
        let track = is_tracked(path) && leaf.dtype().is_float();
        let leaf = lift_leaf::<B, NoRecompute>(lower_leaf(leaf), track.then_some(&mut *tape));
        tracked.push(leaf.value().filter(|_| track).cloned());
        leaf
    });
    (tree, tracked)
}

/// Adds gradients to the sums for the same leaves.
pub(crate) fn accumulate<B: Backend>(sum: &mut Column<B>, grads: Column<B>) {
    for (sum, grad) in sum.iter_mut().zip(grads) {
        *sum = match (sum.take(), grad) {
            (Some(sum), Some(grad)) => sum.try_add(grad),
            (sum, grad) => sum.or(grad),
        };
    }
}

/// Converts gradients to the type of the tree. A missing gradient becomes zeros; buffers, absent leaves and leaves that
/// are not floating-point have absent gradients.
pub(crate) fn typed<B: Backend, T: Tree<B>>(tree: T, grads: Column<B>) -> T {
    let mut grads = grads.into_iter();
    map_with_path(tree, |path, leaf| match (leaf.value(), grads.next().flatten()) {
        (Some(AnyTensor::Float(_)), _) if path.is_buffer() => leaf.into_absent(),
        (Some(AnyTensor::Float(_)), Some(grad)) => AnyArray::present(grad),
        (Some(AnyTensor::Float(_)), None) => leaf.zeros_like(),
        _ => leaf.into_absent(),
    })
}

/// Starting points of a backward pass: results of a function, each with its cotangent.
pub(crate) struct Seeds<B: Backend>(Vec<Tracked<B>>);

impl<B: Backend> Seeds<B> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a result and its cotangent; skipped if the result is not tracked or the cotangent is missing.
    pub(crate) fn add(&mut self, result: Option<AnyTensor<Autodiff<B>>>, grad: Option<AnyTensor<B>>) {
        let (Some(result), Some(AnyTensor::Float(grad))) = (result.and_then(tracked), grad) else { return };
        let number = number::<B>(&B::float_device(&grad));
        match Seed.prepare::<NoRecompute>([result.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(step) => self.0.push(step.finish(grad, number)),
            OpsKind::UnTracked(_) => {}
        }
    }

    /// Returns a scalar whose backward pass starts with the seeds; `None` if nothing is tracked.
    pub(crate) fn into_root(self) -> Option<AnyTensor<Autodiff<B>>> {
        let seeds: Vec<_> = self.0.into_iter().map(AnyTensor::Float).collect();
        (!seeds.is_empty()).then(|| AnyTensor::cat(seeds, 0))
    }
}

/// Frees the memory of computations on `Autodiff<B>` that never ran a backward pass. Burn records each operation and
/// removes unreachable ones only at the end of a backward pass; this function runs a backward pass over a single value.
///
/// The transformations of this crate call it themselves. Call it from time to time in a loop that evaluates a model on
/// the autodiff backend: untracked operations leave a kilobyte or more each. Evaluating on the autodiff backend has no
/// benefit otherwise.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Autodiff;
/// use grove_transform::clear_tape;
/// # type B = burn_flex::Flex;
/// let device = Default::default();
/// for _ in 0..3 {
///     let x = Tensor::<Autodiff<B>, 1>::ones([4], &device);
///     assert_eq!((x.clone() + x).sum().into_scalar(), 8.0);
/// }
/// clear_tape::<B>(&device);
/// ```
pub fn clear_tape<B: Backend>(device: &B::Device) {
    backward::clear_if_idle::<B>(|| {
        require_grad::<Autodiff<B>>(<Autodiff<B> as AutodiffBackend>::from_inner(number::<B>(device)))
    });
}

/// Backward step that passes a given cotangent to its parent. The value of the node is a dummy and never read.
#[derive(Debug)]
struct Seed;

impl<B: Backend> Backward<B, 1> for Seed {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        unary::<B, _>(ops.parents, ops.node, grads, |_| ops.state);
    }
}

/// Panics unless the cotangent of a result has the result's leaves and shapes.
pub(crate) fn check_cotangent<B: Backend, T: Tree<B>>(of: &str, result: &T, grad: &T) {
    let mut shapes = Vec::new();
    result.visit(&mut Path::root(), &mut |path: &Path, leaf: &AnyArray<B>| {
        shapes.push((path.to_string(), leaf.to_string()));
    });
    let mut shapes = shapes.into_iter();
    let nothing = || ("(nothing)".to_owned(), "(nothing)".to_owned());
    map_with_path(grad.clone(), |path, leaf| {
        let (name, shape) = shapes.next().unwrap_or_else(nothing);
        assert!(
            name == path.as_str() && shape == leaf.to_string(),
            "the gradient of {of} has the {}, {leaf}, where {of} has {}, {shape}",
            leaf_name("leaf", path.as_str()),
            if name.is_empty() { "the leaf".to_owned() } else { format!("`{name}`") }
        );
        leaf
    });
    assert!(shapes.next().is_none(), "the gradient of {of} has fewer leaves than {of}");
}
