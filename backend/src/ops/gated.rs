//! The gate of LLaMA's feed-forward layers, written with Burn's operations: the default of [`Backend`].

use burn::tensor::{activation, ops::FloatTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Backend, custom::recorded, float, precision::through_f32, primitive};

pub(super) fn silu_mul<B: Backend>(gate: FloatTensor<B>, up: FloatTensor<B>) -> FloatTensor<B> {
    let inputs = [gate, up];
    if let Some([y]) = through_f32::<B, 2, 1>(&inputs, |[gate, up]| [B::silu_mul(gate, up)]) {
        return y;
    }
    let [gate, up] = inputs.map(float::<B, 3>);
    primitive(activation::silu(gate) * up)
}

pub(super) fn backward<B: Backend>(
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> [FloatTensor<B>; 2] {
    let inputs = [gate, up, grad];
    // In f16 a large gate times a gradient is infinite, and times a sigmoid of 0 then NaN.
    if let Some(grads) = through_f32::<B, 3, 2>(&inputs, |[gate, up, grad]| B::silu_mul_backward(gate, up, grad)) {
        return grads;
    }
    let [gate, up, grad] = inputs.map(float::<B, 3>);
    let sigmoid = activation::sigmoid(gate.clone());
    // silu'(x) = s + x s (1 - s), where s is the sigmoid of x.
    let slope = sigmoid.clone() + gate.clone() * sigmoid.clone() * (sigmoid.clone().neg().add_scalar(1.0));
    [primitive(grad.clone() * up * slope), primitive(grad * gate * sigmoid)]
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    gate: FloatTensor<Autodiff<B, C>>,
    up: FloatTensor<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    let backward =
        |(gate, up): (FloatTensor<B>, FloatTensor<B>), grad, _| B::silu_mul_backward(gate, up, grad).map(Some);
    recorded::<B, C, _, 2>([gate, up], backward, |[gate, up], keep| {
        let kept = keep.then(|| (gate.clone(), up.clone()));
        (B::silu_mul(gate, up), kept)
    })
}
