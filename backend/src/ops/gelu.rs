//! GELU in its two forms and SELU, with exact gradients.
//!
//! For GELU Burn's own default differentiates the tanh form whichever form the forward pass used, hence ours.

use burn::tensor::{Scalar, TensorMetadata, ops::FloatTensor};
use burn_autodiff::{
    Autodiff, NodeId,
    checkpoint::{
        base::Checkpointer, retro_forward::RetroForward, state::BackwardStates, strategy::CheckpointStrategy,
    },
    grads::Gradients,
    ops::{Backward, Ops, OpsKind, unary},
};
use std::{fmt::Debug, marker::PhantomData};

use super::{Backend, flat, precision::through_f32, primitive};

/// 1/sqrt(2)
const FRAC_1_SQRT_2: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// 1/sqrt(2 pi)
const FRAC_1_SQRT_2PI: f64 = 0.398_942_280_401_432_7;
/// sqrt(2/pi)
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// Weight of the cubic term in the tanh form.
const CUBIC: f64 = 0.044_715;

fn scale<B: Backend>(x: FloatTensor<B>, factor: f64) -> FloatTensor<B> {
    B::float_mul_scalar(x, Scalar::from(factor))
}

fn shift<B: Backend>(x: FloatTensor<B>, term: f64) -> FloatTensor<B> {
    B::float_add_scalar(x, Scalar::from(term))
}

/// `(1 + erf(x/sqrt 2)) / 2`, the normal distribution function.
fn normal_cdf<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    scale::<B>(shift::<B>(B::float_erf(scale::<B>(x, FRAC_1_SQRT_2)), 1.0), 0.5)
}

pub(super) fn erf<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    if let Some([y]) = through_f32::<B, 1, 1>(std::array::from_ref(&x), |[x]| [B::gelu_erf(x)]) {
        return y;
    }
    B::float_mul(x.clone(), normal_cdf::<B>(x))
}

/// `Phi(x) + x phi(x)`, times `grad`.
pub(super) fn erf_backward<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    if let Some([dx]) = through_f32::<B, 2, 1>(&[x.clone(), grad.clone()], |[x, grad]| [B::gelu_erf_backward(x, grad)])
    {
        return dx;
    }
    let square = B::float_mul(x.clone(), x.clone());
    let density = scale::<B>(B::float_exp(scale::<B>(square, -0.5)), FRAC_1_SQRT_2PI);
    let slope = B::float_add(normal_cdf::<B>(x.clone()), B::float_mul(x, density));
    B::float_mul(grad, slope)
}

/// `tanh(sqrt(2/pi) (x + 0.044715 x^3))`, and x squared.
fn inner_tanh<B: Backend>(x: FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
    let square = B::float_mul(x.clone(), x.clone());
    let factor = shift::<B>(scale::<B>(square.clone(), SQRT_2_OVER_PI * CUBIC), SQRT_2_OVER_PI);
    (B::float_tanh(B::float_mul(x, factor)), square)
}

pub(super) fn tanh<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    if let Some([y]) = through_f32::<B, 1, 1>(std::array::from_ref(&x), |[x]| [B::gelu_tanh(x)]) {
        return y;
    }
    let (tanh, _) = inner_tanh::<B>(x.clone());
    B::float_mul(scale::<B>(x, 0.5), shift::<B>(tanh, 1.0))
}

pub(super) fn tanh_backward<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    if let Some([dx]) = through_f32::<B, 2, 1>(&[x.clone(), grad.clone()], |[x, grad]| [B::gelu_tanh_backward(x, grad)])
    {
        return dx;
    }
    let (tanh, square) = inner_tanh::<B>(x.clone());
    let inner_slope = shift::<B>(scale::<B>(square, 3.0 * CUBIC * SQRT_2_OVER_PI), SQRT_2_OVER_PI);
    // 1 - tanh^2
    let sech2 = shift::<B>(scale::<B>(B::float_mul(tanh.clone(), tanh.clone()), -1.0), 1.0);
    let curve = B::float_mul(scale::<B>(x, 0.5), B::float_mul(sech2, inner_slope));
    let slope = B::float_add(scale::<B>(shift::<B>(tanh, 1.0), 0.5), curve);
    B::float_mul(grad, slope)
}

/// What SELU multiplies positive numbers by, and, besides, negative ones.
const SELU: [f64; 2] = [1.050_700_987_355_480_5, 1.673_263_242_354_377_2];

pub(super) fn selu<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    if let Some([y]) = through_f32::<B, 1, 1>(std::array::from_ref(&x), |[x]| [B::selu(x)]) {
        return y;
    }
    let above = B::float_clamp_min(x.clone(), Scalar::from(0.0));
    let below = shift::<B>(B::float_exp(B::float_clamp_max(x, Scalar::from(0.0))), -1.0);
    scale::<B>(B::float_add(above, scale::<B>(below, SELU[1])), SELU[0])
}

pub(super) fn selu_backward<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
    if let Some([dx]) = through_f32::<B, 2, 1>(&[x.clone(), grad.clone()], |[x, grad]| [B::selu_backward(x, grad)]) {
        return dx;
    }
    let below = scale::<B>(B::float_exp(B::float_clamp_max(x.clone(), Scalar::from(0.0))), SELU[0] * SELU[1]);
    let positive = flat::<B>(x).greater_elem(0.0);
    let shape = below.shape();
    let slope = flat::<B>(below).mask_fill(positive, SELU[0]);
    B::float_mul(grad, B::float_reshape(primitive(slope), shape))
}

/// A function of one tensor with a backward pass of its own: what [`differentiable`] registers.
pub(super) trait Unary: Debug + Copy + Send + Sync + 'static {
    fn forward<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B>;
    fn backward<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B>;
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Erf;
impl Unary for Erf {
    fn forward<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
        B::gelu_erf(x)
    }
    fn backward<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        B::gelu_erf_backward(x, grad)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Tanh;
impl Unary for Tanh {
    fn forward<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
        B::gelu_tanh(x)
    }
    fn backward<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        B::gelu_tanh_backward(x, grad)
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Selu;
impl Unary for Selu {
    fn forward<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
        B::selu(x)
    }
    fn backward<B: Backend>(x: FloatTensor<B>, grad: FloatTensor<B>) -> FloatTensor<B> {
        B::selu_backward(x, grad)
    }
}

/// A [`Unary`] as a node of Burn's graph: backward step and recomputation of the forward step.
#[derive(Debug)]
struct Node<B, F> {
    input: NodeId,
    kind: PhantomData<(B, F)>,
}

impl<B: Backend, F: Unary> RetroForward for Node<B, F> {
    fn forward(&self, states: &mut BackwardStates, out: NodeId) {
        let x = states.get_state::<FloatTensor<B>>(&self.input);
        states.save(out, F::forward::<B>(x));
    }
}

#[derive(Debug)]
struct Step<F>(PhantomData<F>);

impl<B: Backend, F: Unary> Backward<B, 1> for Step<F> {
    type State = NodeId;

    fn backward(self, ops: Ops<NodeId, 1>, grads: &mut Gradients, checkpointer: &mut Checkpointer) {
        let x = checkpointer.retrieve_node_output(ops.state);
        unary::<B, _>(ops.parents, ops.node, grads, |grad| F::backward::<B>(x, grad));
    }
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy, F: Unary>(
    x: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let retro = Node::<B, F> { input: x.node.id, kind: PhantomData };
    let step = Backward::<B, 1>::prepare::<C>(Step::<F>(PhantomData), [x.node.clone()])
        .memory_bound()
        .retro_forward(retro)
        .parents([&x])
        .stateful();
    match step {
        OpsKind::Tracked(mut step) => {
            let state = step.checkpoint(&x);
            step.finish(state, F::forward::<B>(x.primitive.clone()))
        }
        OpsKind::UnTracked(step) => step.finish(F::forward::<B>(x.primitive)),
    }
}
