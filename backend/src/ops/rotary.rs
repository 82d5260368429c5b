//! Rotary position embedding, written with Burn's operations: the default of [`Backend`].

use burn::tensor::{Tensor, ops::FloatTensor};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Backend, custom::recorded, float, primitive};

pub(super) fn rotate<B: Backend>(
    x: FloatTensor<B>,
    cos: FloatTensor<B>,
    sin: FloatTensor<B>,
    interleaved: bool,
) -> FloatTensor<B> {
    let x = float::<B, 4>(x);
    let shape = x.dims();
    let [b, t, n_head, head_dim] = shape;
    let half = head_dim / 2;
    let [cos, sin] = [cos, sin].map(|x| float::<B, 3>(x).unsqueeze_dim::<4>(2)); // [b or 1, t, 1, half]
    // Interleaved, the partners are columns of pairs.
    let pairs = x.clone().reshape([b, t, n_head * half, 2]);
    let part = |i: usize| match interleaved {
        true => pairs.clone().narrow(3, i, 1).reshape([b, t, n_head, half]),
        false => x.clone().narrow(3, i * half, half),
    };
    let (first, second) = (part(0), part(1));
    let turned = [
        first.clone() * cos.clone() - second.clone() * sin.clone(), // [b, t, n_head, half]
        second * cos + first * sin,
    ];
    let y = match interleaved {
        true => Tensor::cat(turned.map(|x| x.reshape([b, t, n_head * half, 1])).to_vec(), 3).reshape(shape),
        false => Tensor::cat(turned.to_vec(), 3),
    };
    primitive(y)
}

/// A rotation's gradient is rotated back.
pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    cos: FloatTensor<Autodiff<B, C>>,
    sin: FloatTensor<Autodiff<B, C>>,
    interleaved: bool,
) -> FloatTensor<Autodiff<B, C>> {
    let (cos, sin) = (cos.primitive, sin.primitive);
    let backward = |(cos, sin, interleaved): (FloatTensor<B>, FloatTensor<B>, bool), grad, _| {
        [Some(B::rotate(grad, cos, B::float_neg(sin), interleaved))]
    };
    recorded::<B, C, _, 1>([x], backward, |[x], _| {
        (B::rotate(x, cos.clone(), sin.clone(), interleaved), Some((cos, sin, interleaved)))
    })
}
