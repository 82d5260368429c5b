//! Attention, written with Burn's operations: the defaults of [`Backend`].

use burn::tensor::{
    Bool, Tensor, TensorPrimitive, module,
    ops::{AttentionModuleOptions, BoolTensor, FloatTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{Backend, custom::recorded};
use crate::matmul;

/// What attention looks at.
#[derive(Clone, Debug)]
pub struct AttendOptions<B: Backend> {
    /// What scores are multiplied by.
    pub scale: f64,
    /// The queries are the last `t` of the `s` positions, and each sees itself and those before it.
    pub causal: bool,
    /// True where a query must not look besides, `[b or 1, n_head or 1, t or 1, s]`.
    pub hidden: Option<BoolTensor<B>>,
    /// What weights are multiplied by, `[b, n_head, t, s]`: dropout. No gradient flows there.
    pub factors: Option<FloatTensor<B>>,
}

fn float<B: Backend>(x: FloatTensor<B>) -> Tensor<B, 4> {
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

fn primitive<B: Backend>(x: Tensor<B, 4>) -> FloatTensor<B> {
    x.into_primitive().tensor()
}

/// The output, and the weights before dropout if they are to be kept.
pub(super) fn forward<B: Backend>(
    [q, k, v]: [FloatTensor<B>; 3],
    options: AttendOptions<B>,
    keep: bool,
) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
    let (q, k, v) = (float::<B>(q), float::<B>(k), float::<B>(v));
    let AttendOptions { scale, causal, hidden, factors } = options;
    let ([b, n_head, t, _], s) = (q.dims(), k.dims()[2]);
    let hidden = hidden.map(|hidden| Tensor::<B, 4, Bool>::from_primitive(hidden).expand([b, n_head, t, s]));
    // A single query, twice, is one that no backend takes for a vector.
    let twice = B::FUSES_VECTORS_WRONGLY && t == 1;
    // Where the weights need not be kept, a backend may never write them down.
    if !keep && factors.is_none() && !twice {
        let options = AttentionModuleOptions { scale: Some(scale), softcap: None, is_causal: causal };
        return (primitive(module::attention(q, k, v, hidden, None, options)), None);
    }
    let scores = matmul(q, k.swap_dims(2, 3)); // [b, n_head, t, s]
    let scores = match hidden {
        Some(hidden) => scores.mask_fill(hidden, f32::NEG_INFINITY * scale.signum() as f32),
        None => scores,
    };
    let weights = float::<B>(B::attention_weights(primitive(scores), scale, causal));
    let kept = keep.then(|| primitive(weights.clone()));
    let used = match factors {
        Some(factors) => weights * float(factors),
        None => weights,
    };
    (primitive(matmul(used, v)), kept)
}

pub(super) fn backward<B: Backend>(
    [q, k, v]: [FloatTensor<B>; 3],
    options: AttendOptions<B>,
    kept: Option<FloatTensor<B>>,
    grad: FloatTensor<B>,
    needs: [bool; 3],
) -> [Option<FloatTensor<B>>; 3] {
    let scale = options.scale;
    let factors = options.factors.clone().map(float::<B>);
    let weights = kept.unwrap_or_else(|| {
        let inputs = [q.clone(), k.clone(), v.clone()];
        forward::<B>(inputs, options, true).1.expect("weights that are to be kept")
    });
    let (q, k, v, grad) = (float::<B>(q), float::<B>(k), float::<B>(v), float::<B>(grad));
    let drop = |x: Tensor<B, 4>| match &factors {
        Some(factors) => x * factors.clone(),
        None => x,
    };
    let dv = needs[2].then(|| matmul(drop(float(weights.clone())).swap_dims(2, 3), grad.clone()));
    let [dq, dk] = if needs[0] || needs[1] {
        let slope = drop(matmul(grad, v.swap_dims(2, 3)));
        let slope = float::<B>(B::attention_weights_backward(weights, primitive(slope), scale)); // [b, n_head, t, s]
        [needs[0].then(|| matmul(slope.clone(), k)), needs[1].then(|| matmul(slope.swap_dims(2, 3), q))]
    } else {
        [None, None]
    };
    [dq, dk, dv].map(|x| x.map(primitive))
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    inputs: [FloatTensor<Autodiff<B, C>>; 3],
    options: AttendOptions<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    type Kept<B> = ([FloatTensor<B>; 3], AttendOptions<B>, Option<FloatTensor<B>>);
    let AttendOptions { scale, causal, hidden, factors } = options;
    let options = AttendOptions { scale, causal, hidden, factors: factors.map(|factors| factors.primitive) };
    let backward =
        |(inputs, options, kept): Kept<B>, grad, needs| B::attend_backward(inputs, options, kept, grad, needs);
    recorded::<B, C, _, 3>(inputs, backward, |inputs, keep| {
        let (output, kept) = B::attend(inputs.clone(), options.clone(), keep);
        (output, keep.then_some((inputs, options, kept)))
    })
}
