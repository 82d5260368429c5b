//! The affine map of a layer: one product for all rows, forwards and backwards.

use burn::tensor::{
    DType, Shape, Tensor, TensorMetadata,
    ops::{FloatTensor, ModuleOps},
};
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{base::Checkpointer, strategy::CheckpointStrategy},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};

use super::{Backend, at_least_f32, custom::alive, float, precision::cast, primitive};
use crate::matmul::composed;

/// `[.., n]` as `[rows, n]`.
pub(super) fn rows<B: Backend>(x: FloatTensor<B>) -> Tensor<B, 2> {
    let shape = x.shape();
    let n = shape[shape.num_dims() - 1];
    let rows = shape[..shape.num_dims() - 1].iter().product::<usize>();
    float(B::float_reshape(x, Shape::from([rows, n])))
}

/// `[rows, n]` in the shape of another tensor but for its last axis.
pub(super) fn unflatten<B: Backend>(y: Tensor<B, 2>, mut shape: Shape) -> FloatTensor<B> {
    let last = shape.num_dims() - 1;
    shape[last] = y.dims()[1];
    B::float_reshape(primitive(y), shape)
}

pub(super) fn forward<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let shape = x.shape();
    let (inputs, outputs) = (&shape[..shape.num_dims() - 1], weight.shape()[1]);
    if inputs.is_empty() || B::FUSES_VECTORS_WRONGLY && (outputs == 1 || inputs.ends_with(&[1])) {
        return by_rows::<B>(x, weight, bias);
    }
    let (weight, bias) = (cast::<B>(weight, x.dtype()), bias.map(|bias| cast::<B>(bias, x.dtype())));
    <B as ModuleOps<B>>::linear(x, weight, bias)
}

/// The same as one product of two matrices.
pub(super) fn by_rows<B: Backend>(
    x: FloatTensor<B>,
    weight: FloatTensor<B>,
    bias: Option<FloatTensor<B>>,
) -> FloatTensor<B> {
    let (weight, bias) = (cast::<B>(weight, x.dtype()), bias.map(|bias| cast::<B>(bias, x.dtype())));
    let shape = x.shape();
    let y = composed(rows::<B>(x), float(weight));
    let y = match bias {
        Some(bias) => y + float::<B, 1>(bias).unsqueeze(),
        None => y,
    };
    unflatten(y, shape)
}

/// What of `x`, the weight and the bias needs a gradient gets it.
pub(super) fn backward<B: Backend>(
    x: Option<FloatTensor<B>>,
    weight: Option<FloatTensor<B>>,
    grad: FloatTensor<B>,
    bias: bool,
) -> [Option<FloatTensor<B>>; 3] {
    let dtype = grad.dtype();
    let (shape, grad) = (grad.shape(), rows::<B>(grad));
    let weight = weight.map(|weight| cast::<B>(weight, dtype));
    [
        weight.map(|weight| unflatten(composed(grad.clone(), float::<B, 2>(weight).transpose()), shape)),
        x.map(|x| primitive(composed(rows::<B>(x).transpose(), grad.clone()))),
        bias.then(|| cast::<B>(primitive::<B, 1>(at_least_f32(grad).sum_dim(0).squeeze_dim(0)), dtype)),
    ]
}

/// With a bias `N` is 3, without one 2. Holds the types of the inputs' numbers, which are those of their gradients.
#[derive(Debug)]
struct Affine<const N: usize>([DType; N]);

impl<B: Backend, const N: usize> Backward<B, N> for Affine<N> {
    /// The input, where the weight needs a gradient; and the other way round.
    type State = [Option<NodeId>; 2];

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let grad = grads.consume::<B>(&ops.node);
        let [x, weight] = ops.state.map(|id| id.map(|id| checkpointer.retrieve_node_output::<FloatTensor<B>>(id)));
        let bias = ops.parents.get(2).is_some_and(Option::is_some);
        let results = B::affine_backward(x, weight, grad, bias);
        for ((parent, grad), dtype) in ops.parents.into_iter().zip(results).zip(self.0) {
            if let (Some(parent), Some(grad)) = (parent, grad) {
                grads.register::<B>(parent.id, cast::<B>(grad, dtype));
            }
        }
    }
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    weight: FloatTensor<Autodiff<B, C>>,
    bias: Option<FloatTensor<Autodiff<B, C>>>,
) -> FloatTensor<Autodiff<B, C>> {
    match bias {
        Some(bias) => recorded::<B, C, 3>([x, weight, bias]),
        None => recorded::<B, C, 2>([x, weight]),
    }
}

/// Not by `custom`: what is cheap to compute, an activation say, may be computed again instead of kept.
fn recorded<B: Backend, C: CheckpointStrategy, const N: usize>(
    inputs: [FloatTensor<Autodiff<B, C>>; N],
) -> FloatTensor<Autodiff<B, C>> {
    let nodes = inputs.each_ref().map(|input| input.node.clone());
    let _alive = alive::<B, C, N>(&inputs);
    let compute = |inputs: [FloatTensor<Autodiff<B, C>>; N]| {
        let mut inputs = inputs.into_iter().map(|input| input.primitive);
        let mut next = || inputs.next();
        let (x, weight) = (next().expect("an input"), next().expect("a weight"));
        B::affine(x, weight, next())
    };
    let dtypes = inputs.each_ref().map(|input| input.primitive.dtype());
    match Backward::<B, N>::prepare::<C>(Affine(dtypes), nodes).compute_bound().stateful() {
        OpsKind::Tracked(mut step) => {
            let (x, weight) = (&inputs[0], &inputs[1]);
            let kept =
                [weight.is_tracked().then(|| step.checkpoint(x)), x.is_tracked().then(|| step.checkpoint(weight))];
            step.finish(kept, compute(inputs))
        }
        OpsKind::UnTracked(step) => step.finish(compute(inputs)),
    }
}
