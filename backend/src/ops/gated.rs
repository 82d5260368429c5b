//! The gate of LLaMA's feed-forward layers, written with Burn's operations: the default of [`Backend`].

use burn::tensor::{activation, ops::FloatTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Backend, custom::recorded, float, primitive};

pub(super) fn silu_mul<B: Backend>(gate: FloatTensor<B>, up: FloatTensor<B>) -> FloatTensor<B> {
    primitive(activation::silu(float::<B, 3>(gate)) * float(up))
}

pub(super) fn backward<B: Backend>(
    gate: FloatTensor<B>,
    up: FloatTensor<B>,
    grad: FloatTensor<B>,
) -> [FloatTensor<B>; 2] {
    let (gate, up, grad) = (float::<B, 3>(gate), float::<B, 3>(up), float::<B, 3>(grad));
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
