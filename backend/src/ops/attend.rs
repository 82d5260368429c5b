//! Attention, written with Burn's operations: the defaults of [`Backend`].

use burn::tensor::{
    Bool, DType, Tensor, TensorData, TensorMetadata, module,
    ops::{AttentionModuleOptions, BoolTensor, FloatTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{
    Backend, Dropout,
    custom::recorded,
    float,
    key_ranges::{KeyRanges, either},
    precision::{cast, is_half, widened},
    primitive, random,
};
use crate::matmul;

/// What attention looks at.
#[derive(Clone, Debug)]
pub struct AttendOptions<B: Backend> {
    /// What scores are multiplied by.
    pub scale: f64,
    /// The keys that each query sees.
    pub visible: KeyRanges<B>,
    /// True where a query must not look besides, `[b or 1, n_head or 1, t or 1, s]`. A query from which all keys are hidden
    /// gathers zeros.
    pub hidden: Option<BoolTensor<B>>,
    /// Dropout of the weights, `[b, n_head, t, s]`.
    pub dropout: Option<Dropout>,
}

impl<B: Backend> AttendOptions<B> {
    /// Attention with nothing but a range of keys for each query.
    pub fn new(scale: f64, visible: KeyRanges<B>) -> Self {
        Self { scale, visible, hidden: None, dropout: None }
    }
}

/// Keys or values with each head once for every head of queries that it serves, `[b, n_head, s, head_dim]`.
fn repeated<B: Backend>(x: Tensor<B, 4>, n_head: usize) -> Tensor<B, 4> {
    let [b, n_kv_head, s, head_dim] = x.dims();
    if n_kv_head == n_head {
        return x;
    }
    let group = n_head / n_kv_head;
    x.unsqueeze_dim::<5>(2).expand([b, n_kv_head, group, s, head_dim]).reshape([b, n_head, s, head_dim])
}

/// What [`repeated`] did, the other way round, for a gradient.
fn summed<B: Backend>(x: Tensor<B, 4>, n_kv_head: usize) -> Tensor<B, 4> {
    let [b, n_head, s, head_dim] = x.dims();
    if n_kv_head == n_head {
        return x;
    }
    x.reshape([b, n_kv_head, n_head / n_kv_head, s, head_dim]).sum_dim(2).reshape([b, n_kv_head, s, head_dim])
}

/// The output, and the weights before dropout if they are to be kept.
pub(super) fn forward<B: Backend>(
    [q, k, v]: [FloatTensor<B>; 3],
    options: AttendOptions<B>,
    keep: bool,
) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
    let (q, k, v) = (float::<B, 4>(q), float::<B, 4>(k), float::<B, 4>(v));
    let ([b, n_head, t, head_dim], [_, n_kv_head, s, _]) = (q.dims(), k.dims());
    options.visible.check(b);
    let hidden = options.hidden.as_ref().map(|hidden| hidden.shape());
    let for_all_heads = hidden.is_none_or(|shape| shape[1] == 1);
    if n_kv_head < n_head && t == 1 && !keep && for_all_heads && options.dropout.is_none() {
        // A group's heads are the queries of one: nothing is copied.
        let q = q.reshape([b, n_kv_head, n_head / n_kv_head, head_dim]);
        let inputs = [primitive(q), primitive(k), primitive(v)];
        let visible = options.visible.of_one_query([b, s], &B::float_device(&inputs[0]));
        let (output, _) = forward::<B>(inputs, AttendOptions { visible, ..options }, false);
        return (primitive(float::<B, 4>(output).reshape([b, n_head, t, head_dim])), None);
    }
    let (k, v) = (repeated(k, n_head), repeated(v, n_head));
    let AttendOptions { scale, visible, hidden, dropout } = options;
    let hidden = hidden.map(Tensor::<B, 4, Bool>::from_primitive);
    // In f16 a product of a query and a key may be too large before it is scaled.
    let (q, scale) = if is_half(q.dtype()) { (q.mul_scalar(scale), 1.0) } else { (q, scale) };
    // Where the weights need not be kept, a backend may never write them down. The fusing ones do: Burn's attention with a scale
    // is there a composition, with masks in memory and a softmax in many launches. Without one it is a choice by speed among
    // that and the kernels of cubek-attention 0.2.0, which divide by the root of head_dim, hold queries, keys, values and weights
    // in f16 whatever their type is, and count a causal mask from the first key instead of the last: no two candidates agree.
    // The first of more queries than there are keys see nothing, which backends treat differently.
    let (whole, sees_keys) = (dropout.is_none() && !B::FUSES_VECTORS_WRONGLY, !visible.causal || t <= s);
    if !keep && whole && sees_keys {
        let ranges = if visible.is_plain() { None } else { visible.hidden([t, s], &q.device()) };
        let is_causal = visible.causal && ranges.is_none();
        let hidden = match (ranges, hidden) {
            (Some(ranges), Some(hidden)) => Some(either(ranges, hidden)),
            (ranges, hidden) => ranges.or(hidden),
        };
        let hidden = hidden.map(|hidden| hidden.expand([b, n_head, t, s]));
        let options = AttentionModuleOptions { scale: Some(scale), softcap: None, is_causal };
        return (primitive(module::attention(q, k, v, hidden, None, options)), None);
    }
    let scores = matmul(q, k.swap_dims(2, 3)); // [b, n_head, t, s]
    let scores = match hidden {
        Some(hidden) => scores.mask_fill(hidden.expand([b, n_head, t, s]), f32::NEG_INFINITY * scale.signum() as f32),
        None => scores,
    };
    let weights = float::<B, 4>(B::attention_weights(primitive(scores), scale, visible));
    let kept = keep.then(|| primitive(weights.clone()));
    let used = match dropout {
        Some(dropout) => random::dropout(weights, dropout),
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
    let dropout = options.dropout;
    let weights = kept.unwrap_or_else(|| {
        let inputs = [q.clone(), k.clone(), v.clone()];
        forward::<B>(inputs, options, true).1.expect("weights that are to be kept")
    });
    let (q, k, v, grad) = (float::<B, 4>(q), float::<B, 4>(k), float::<B, 4>(v), float::<B, 4>(grad));
    let (n_head, n_kv_head) = (q.dims()[1], k.dims()[1]);
    let (k, v) = (repeated(k, n_head), repeated(v, n_head));
    let drop = |x: Tensor<B, 4>| match dropout {
        Some(dropout) => random::dropout(x, dropout),
        None => x,
    };
    let dv = needs[2].then(|| summed(matmul(drop(float(weights.clone())).swap_dims(2, 3), grad.clone()), n_kv_head));
    let [dq, dk] = if needs[0] || needs[1] {
        let slope = drop(matmul(grad, v.swap_dims(2, 3)));
        let slope = float::<B, 4>(B::attention_weights_backward(weights, primitive(slope), scale)); // [b, n_head, t, s]
        let dk = |slope: Tensor<B, 4>| summed(matmul(slope.swap_dims(2, 3), q), n_kv_head);
        [needs[0].then(|| matmul(slope.clone(), k)), needs[1].then(|| dk(slope))]
    } else {
        [None, None]
    };
    [dq, dk, dv].map(|x| x.map(primitive))
}

/// Dropout as it is in numbers of 16 bits, for computing it in f32.
#[cfg(any(feature = "flex", feature = "candle"))]
fn rounded(dropout: Dropout, dtype: DType) -> Dropout {
    let scale = TensorData::from([dropout.scale]).convert_dtype(dtype).convert::<f32>();
    Dropout { scale: scale.iter().next().unwrap_or(dropout.scale), ..dropout }
}

/// [`Backend::attend`] in f32, for numbers of 16 bits on a CPU, which multiplies no faster in 16. What was kept stays in f32.
#[cfg(any(feature = "flex", feature = "candle"))]
pub(super) fn forward_in_f32<B: Backend>(
    inputs: [FloatTensor<B>; 3],
    options: AttendOptions<B>,
    keep: bool,
) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
    let dtype = inputs[0].dtype();
    let options = AttendOptions { dropout: options.dropout.map(|dropout| rounded(dropout, dtype)), ..options };
    let (output, kept) = B::attend(inputs.map(widened::<B>), options, keep);
    (cast::<B>(output, dtype), kept)
}

/// The backward pass of [`forward_in_f32`].
#[cfg(any(feature = "flex", feature = "candle"))]
pub(super) fn backward_in_f32<B: Backend>(
    inputs: [FloatTensor<B>; 3],
    options: AttendOptions<B>,
    kept: Option<FloatTensor<B>>,
    grad: FloatTensor<B>,
    needs: [bool; 3],
) -> [Option<FloatTensor<B>>; 3] {
    let dtypes = inputs.each_ref().map(|x| x.dtype());
    let options = AttendOptions { dropout: options.dropout.map(|dropout| rounded(dropout, dtypes[0])), ..options };
    let grads = B::attend_backward(inputs.map(widened::<B>), options, kept, widened::<B>(grad), needs);
    let mut dtypes = dtypes.into_iter();
    grads.map(|grad| dtypes.next().and_then(|dtype| grad.map(|grad| cast::<B>(grad, dtype))))
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    inputs: [FloatTensor<Autodiff<B, C>>; 3],
    options: AttendOptions<Autodiff<B, C>>,
) -> FloatTensor<Autodiff<B, C>> {
    type Kept<B> = ([FloatTensor<B>; 3], AttendOptions<B>, Option<FloatTensor<B>>);
    let AttendOptions { scale, visible, hidden, dropout } = options;
    let visible = KeyRanges::of_inner(visible);
    let options = AttendOptions { scale, visible, hidden, dropout };
    let backward =
        |(inputs, options, kept): Kept<B>, grad, needs| B::attend_backward(inputs, options, kept, grad, needs);
    recorded::<B, C, _, 3>(inputs, backward, |inputs, keep| {
        let (output, kept) = B::attend(inputs.clone(), options.clone(), keep);
        (output, keep.then_some((inputs, options, kept)))
    })
}
