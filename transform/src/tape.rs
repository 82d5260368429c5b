//! What the transformations share: trees on and off Burn's tape.

use burn::tensor::{FloatDType, Shape, backend::AutodiffBackend, ops::FloatTensor};
use burn_autodiff::{
    Autodiff,
    checkpoint::base::Checkpointer,
    grads::Gradients,
    ops::{Backward, Ops, OpsKind, unary},
};
use grove_backend::Backend;
use grove_tree::{AnyArray, AnyTensor, Path, Tree, map, map_with_path};

use crate::grad::{NoRecompute, Recompute};

/// A leaf on the differentiating backend: a constant, or, if `track`, the start of a tape.
pub(crate) fn lift_leaf<B: Backend, S: Recompute>(leaf: AnyArray<B>, track: bool) -> AnyArray<Autodiff<B, S>> {
    let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
    match leaf.into_value() {
        None => AnyArray::absent(shape, dtype),
        Some(AnyTensor::Float(x)) => {
            let x = <Autodiff<B, S> as AutodiffBackend>::from_inner(x);
            let x = if track { require_grad::<Autodiff<B, S>>(x) } else { x };
            AnyArray::present(AnyTensor::Float(x))
        }
        Some(AnyTensor::Int(x)) => AnyArray::present(AnyTensor::Int(x)),
        Some(AnyTensor::Bool(x)) => AnyArray::present(AnyTensor::Bool(x)),
    }
}

fn require_grad<B: burn::tensor::backend::Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    B::float_set_require_grad(x, true)
}

/// A leaf taken off the tape.
pub(crate) fn lower_leaf<B: Backend, S: Recompute>(leaf: AnyArray<Autodiff<B, S>>) -> AnyArray<B> {
    let (shape, dtype) = (leaf.shape().to_vec(), leaf.dtype());
    match leaf.into_value() {
        None => AnyArray::absent(shape, dtype),
        Some(AnyTensor::Float(x)) => AnyArray::present(AnyTensor::Float(<Autodiff<B, S> as AutodiffBackend>::inner(x))),
        Some(AnyTensor::Int(x)) => AnyArray::present(AnyTensor::Int(x)),
        Some(AnyTensor::Bool(x)) => AnyArray::present(AnyTensor::Bool(x)),
    }
}

/// A tree on the differentiating backend, none of its leaves tracked.
pub(crate) fn constants<B: Backend, T: Tree<B>>(tree: T) -> T::On<Autodiff<B>> {
    tree.lift(&mut Path::root(), &mut |_, leaf| lift_leaf::<B, NoRecompute>(leaf, false))
}

/// A tree taken off the tape.
pub(crate) fn lower<B: Backend, T: Tree<Autodiff<B>>>(tree: T) -> T::On<B> {
    tree.lift(&mut Path::root(), &mut |_, leaf| lower_leaf::<B, NoRecompute>(leaf))
}

/// For each leaf of a tree, in order: what it is, or its gradient, if there is any.
pub(crate) type Column<B> = Vec<Option<FloatTensor<B>>>;

/// The floating-point values of a tree, leaf by leaf.
pub(crate) fn column<B: Backend, T: Tree<B>>(tree: &T) -> Column<B> {
    let mut column = Vec::new();
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| {
        column.push(match leaf.value() {
            Some(AnyTensor::Float(x)) => Some(x.clone()),
            _ => None,
        });
    });
    column
}

/// A tree cut off whatever tape it was on, each floating-point leaf the start of a new one; and these leaves.
pub(crate) fn track<B: Backend, T: Tree<Autodiff<B>>>(tree: T) -> (T, Column<Autodiff<B>>) {
    let tree = map(tree, |leaf| lift_leaf::<B, NoRecompute>(lower_leaf(leaf), true));
    let tracked = column(&tree);
    (tree, tracked)
}

/// Takes the gradients of tracked leaves out of what a backward pass gave; none where nothing depends on the leaf.
pub(crate) fn take<B: Backend>(tracked: &Column<Autodiff<B>>, grads: &mut Option<Gradients>) -> Column<B> {
    let mut take = |x: &_| <Autodiff<B> as AutodiffBackend>::grad_remove(x, grads.as_mut()?);
    tracked.iter().map(|x| take(x.as_ref()?)).collect()
}

/// Adds gradients of the same leaves.
pub(crate) fn accumulate<B: Backend>(sum: &mut Column<B>, grads: Column<B>) {
    for (sum, grad) in sum.iter_mut().zip(grads) {
        *sum = match (sum.take(), grad) {
            (Some(sum), Some(grad)) => Some(B::float_add(sum, grad)),
            (sum, grad) => sum.or(grad),
        };
    }
}

/// Gradients in the tree's own type: zeros where there is none, absent where the leaf has none to have.
pub(crate) fn typed<B: Backend, T: Tree<B>>(tree: T, grads: Column<B>) -> T {
    let mut grads = grads.into_iter();
    map(tree, |leaf| match (leaf.value(), grads.next().flatten()) {
        (Some(AnyTensor::Float(_)), Some(grad)) => AnyArray::present(AnyTensor::Float(grad)),
        (Some(AnyTensor::Float(_)), None) => leaf.zeros_like(),
        _ => leaf.into_absent(),
    })
}

/// Where a backward pass starts: results of a function, each with the gradient that comes from above.
pub(crate) struct Seeds<B: Backend>(Vec<FloatTensor<Autodiff<B>>>);

impl<B: Backend> Seeds<B> {
    pub(crate) fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a result; it does not matter where it is not tracked, or is given no gradient.
    pub(crate) fn add(&mut self, result: Option<FloatTensor<Autodiff<B>>>, grad: Option<FloatTensor<B>>) {
        let (Some(result), Some(grad)) = (result, grad) else { return };
        let number = B::float_zeros(Shape::from(vec![1]), &B::float_device(&grad), FloatDType::F32);
        match Seed.prepare::<NoRecompute>([result.node.clone()]).compute_bound().stateful() {
            OpsKind::Tracked(step) => self.0.push(step.finish(grad, number)),
            OpsKind::UnTracked(_) => {}
        }
    }

    /// Goes back along the tape; `None` where nothing was on it.
    pub(crate) fn backward(self) -> Option<Gradients> {
        (!self.0.is_empty()).then(|| {
            let root = <Autodiff<B> as burn::tensor::ops::FloatTensorOps<Autodiff<B>>>::float_cat(self.0, 0);
            <Autodiff<B> as AutodiffBackend>::backward(root)
        })
    }
}

/// Where the first leaf that is present lies.
pub(crate) fn device<B: Backend, T: Tree<B>>(tree: &T) -> Option<B::Device> {
    let mut device = None;
    tree.visit(&mut Path::root(), &mut |_: &Path, leaf: &AnyArray<B>| {
        if device.is_none() {
            device = leaf.device();
        }
    });
    device
}

/// Lets Burn forget operations whose results are gone. It records untracked operations too, without their tensors but
/// with a kilobyte and more for each, and looks for those that nobody can reach only when a backward pass ends: so here
/// is one, over a single number.
pub(crate) fn sweep<B: Backend>(device: &B::Device) {
    let number = B::float_zeros(Shape::from(vec![1]), device, FloatDType::F32);
    let number = <Autodiff<B> as AutodiffBackend>::from_inner(number);
    <Autodiff<B> as AutodiffBackend>::backward(require_grad::<Autodiff<B>>(number));
}

/// A function of one result whose gradient is given: a number that nobody reads.
#[derive(Debug)]
struct Seed;

impl<B: Backend> Backward<B, 1> for Seed {
    type State = FloatTensor<B>;

    fn backward(self, ops: Ops<Self::State, 1>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        unary::<B, _>(ops.parents, ops.node, grads, |_| ops.state);
    }
}

/// Panics unless the gradient of a result has the result's leaves and shapes.
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
            "the gradient of {of} has the leaf `{path}`, {leaf}, where {of} has `{name}`, {shape}"
        );
        leaf
    });
    assert!(shapes.next().is_none(), "the gradient of {of} has fewer leaves than {of}");
}
