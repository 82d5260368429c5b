//! Attention.

use burn::tensor::{
    Bool, Shape, Tensor, module,
    ops::{AttentionModuleOptions, FloatTensor},
};

use super::{
    Backend, BatchAxis, Dropout, Outcome, Residuals, Rules, Shapes, Values, Wanted, dropout, float,
    key_ranges::{KeyRanges, check, either},
    masked_softmax, masked_softmax_vjp, matmul,
    precision::{cast, is_half},
    primitive,
};

/// Scaled dot-product attention, `softmax(q k^T * scale + bias) v` (Vaswani et al., 2017);
/// [`attention`](super::attention()) runs it.
///
/// A fully masked query returns zeros, and its gradients are zero. Keys and values may have another dtype than the queries,
/// such as those of a 16-bit cache. On flex, they are converted where they are used; elsewhere, they are cast first.
///
/// # Shapes
/// - inputs: queries `[b, n_head, t, head_dim]`; keys and values `[b, n_kv_head, s, head_dim]`, each head of which serves
///   `n_head / n_kv_head` query heads; optional padding and lengths `[b]`, see [`KeyRanges`]; optional mask
///   `[b or 1, n_head or 1, t or 1, s]`, true at masked scores; optional bias of the scaled scores with the mask's shape,
///   which gets a gradient. No kernel supports a bias: with a bias, every backend runs the composition
/// - output `[b, n_head, t, head_dim]`
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Attention {
    /// Scale of the scores.
    #[serde(with = "grove_kernels::exact")]
    pub scale: f64,
    /// If true, each query attends to its own key and those before it; see [`KeyRanges::causal`].
    pub causal: bool,
    /// Sliding window; see [`KeyRanges::window`].
    pub window: Option<usize>,
    /// Dropout of the attention weights, `[b, n_head, t, s]`.
    pub dropout: Option<Dropout>,
}

impl Rules for Attention {
    const SAVES: bool = true;
    const BATCH_AXIS: Option<BatchAxis> = Some(BatchAxis { inputs: &[0, 1, 2, 3, 4], broadcast: &[5, 6], min_rank: 4 });

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape @ [b, n_head, t, head_dim] = inputs.dims("attention", 0);
        let [batch, n_kv_head, s, size] = inputs.dims("attention", 1);
        inputs.require(
            inputs.get(2) == inputs.get(1) && [batch, size] == [b, head_dim],
            "attention",
            "queries [b, n_head, t, head_dim], keys and values [b, n_kv_head, s, head_dim]",
        );
        let divides = n_kv_head > 0 && n_head.is_multiple_of(n_kv_head);
        inputs.require(divides, "attention", "n_head to be a multiple of n_kv_head");
        check(self.causal, self.window, b, inputs, 3);
        for (i, rule) in [(5, "mask [b or 1, n_head or 1, t or 1, s]"), (6, "bias [b or 1, n_head or 1, t or 1, s]")] {
            let Some(added) = inputs.get(i) else { continue };
            let fits = added.len() == 4 && added[3] == s;
            let fits = fits && added.iter().zip([b, n_head, t]).all(|(&size, all)| size == 1 || size == all);
            inputs.require(fits, "attention", rule);
        }
        vec![shape.into()]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs(0..7).saved(1)
    }

    fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
        self.dropout.as_mut().map(|dropout| &mut dropout.key)
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
        let dtype = inputs.dtype(0);
        if [1, 2].into_iter().any(|i| inputs.dtype(i) != dtype) {
            for i in [1, 2] {
                let x = cast::<B>(inputs.take_float(i), dtype);
                inputs.put_float(i, x);
            }
            return B::run(&(*self).into(), inputs, needs);
        }
        let ranges = KeyRanges::take(self.causal, self.window, &mut inputs, 3);
        let added = Added::take(&mut inputs);
        let keep = needs.contains(&true);
        let (output, weights) = attend([0, 1, 2].map(|i| inputs.take_tensor(i)), *self, ranges, added, keep);
        Outcome::new([output]).saving(weights)
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        let dtype = residuals.dtype(0);
        let [q, k, v] = [0, 1, 2].map(|i| float::<B, 4>(cast::<B>(residuals.take_float(i), dtype)));
        let weights = residuals.take_optional_float(7).unwrap_or_else(|| {
            let ranges = KeyRanges::take(self.causal, self.window, &mut residuals, 3);
            let added = Added::take(&mut residuals);
            let (_, weights) = attend([q.clone(), k.clone(), v.clone()], *self, ranges, added, true);
            weights.expect("weights that are to be kept")
        });
        let (grad, needs) = (grads.take_tensor::<4>(0), wanted.needs::<7>());
        let (n_head, n_kv_head) = (q.dims()[1], k.dims()[1]);
        let (k, v) = (repeated(k, n_head), repeated(v, n_head));
        let drop = |x: Tensor<B, 4>| match self.dropout {
            Some(options) => dropout(x, options),
            None => x,
        };
        let dv =
            needs[2].then(|| summed(matmul(drop(float(weights.clone())).swap_dims(2, 3), grad.clone()), n_kv_head));
        let [dq, dk, dbias] = if needs[0] || needs[1] || needs[6] {
            let slope = drop(matmul(grad, v.swap_dims(2, 3)));
            // With a bias, the gradient of the scaled scores, to which the bias is added; otherwise the gradient of the
            // scores.
            let (factor, rest) = if needs[6] { (1.0, self.scale) } else { (self.scale, 1.0) };
            let slope = masked_softmax_vjp(float(weights), slope, factor); // [b, n_head, t, s]
            let dbias = wanted.get(6).map(|bias| summed_to(slope.clone(), &bias.shape));
            let slope = if rest == 1.0 { slope } else { slope.mul_scalar(rest) };
            let dk = |slope: Tensor<B, 4>| summed(matmul(slope.swap_dims(2, 3), q), n_kv_head);
            [needs[0].then(|| matmul(slope.clone(), k)), needs[1].then(|| dk(slope)), dbias]
        } else {
            [None, None, None]
        };
        Values::optional_floats([dq, dk, dv, None, None, None, dbias].map(|x| x.map(primitive)))
    }
}

#[cfg(any(feature = "flex", feature = "candle"))]
impl Attention {
    /// Returns the operation for inputs that were cast from a 16-bit dtype to f32. The scale of dropout is rounded as in
    /// that dtype.
    pub(super) fn for_f32(self, dtype: burn::tensor::DType) -> Self {
        let rounded = |dropout: Dropout| {
            let scale = burn::tensor::TensorData::from([dropout.scale]).convert_dtype(dtype).convert::<f32>();
            Dropout { scale: scale.iter().next().unwrap_or(dropout.scale), ..dropout }
        };
        Self { dropout: self.dropout.map(rounded), ..self }
    }
}

/// Optional mask and bias of the scores.
struct Added<B: Backend> {
    mask: Option<Tensor<B, 4, Bool>>,
    bias: Option<Tensor<B, 4>>,
}

impl<B: Backend> Added<B> {
    /// Takes both from the inputs.
    fn take(inputs: &mut Values<B>) -> Self {
        Self { mask: inputs.take_optional_bool(5), bias: inputs.take_optional_float(6).map(float) }
    }
}

/// Sums a gradient over the axes along which `shape` has size 1.
fn summed_to<B: Backend>(x: Tensor<B, 4>, shape: &Shape) -> Tensor<B, 4> {
    let sizes = x.dims();
    (0..4).filter(|&axis| shape[axis] < sizes[axis]).fold(x, Tensor::sum_dim)
}

/// Repeats each key-value head for the query heads that it serves, `[b, n_head, s, head_dim]`.
fn repeated<B: Backend>(x: Tensor<B, 4>, n_head: usize) -> Tensor<B, 4> {
    let [b, n_kv_head, s, head_dim] = x.dims();
    if n_kv_head == n_head {
        return x;
    }
    let group = n_head / n_kv_head;
    x.unsqueeze_dim::<5>(2).expand([b, n_kv_head, group, s, head_dim]).reshape([b, n_head, s, head_dim])
}

/// Sums a gradient over the repeated heads; the transpose of [`repeated`].
fn summed<B: Backend>(x: Tensor<B, 4>, n_kv_head: usize) -> Tensor<B, 4> {
    let [b, n_head, s, head_dim] = x.dims();
    if n_kv_head == n_head {
        return x;
    }
    x.reshape([b, n_kv_head, n_head / n_kv_head, s, head_dim]).sum_dim(2).reshape([b, n_kv_head, s, head_dim])
}

/// Computes the output, and the weights before dropout if `keep` is true.
fn attend<B: Backend>(
    [q, k, v]: [Tensor<B, 4>; 3],
    options: Attention,
    ranges: KeyRanges<B>,
    Added { mask, bias }: Added<B>,
    keep: bool,
) -> (FloatTensor<B>, Option<FloatTensor<B>>) {
    let ([b, n_head, t, head_dim], [_, n_kv_head, s, _]) = (q.dims(), k.dims());
    let for_all_heads = mask.as_ref().is_none_or(|mask| mask.dims()[1] == 1);
    if n_kv_head < n_head && t == 1 && !keep && for_all_heads && options.dropout.is_none() && bias.is_none() {
        // The query heads of a group become the queries of one key-value head, so that keys and values are not copied.
        let q = q.reshape([b, n_kv_head, n_head / n_kv_head, head_dim]);
        let ranges = ranges.for_single_queries([b, s], &q.device());
        let (output, _) = attend([q, k, v], options, ranges, Added { mask, bias }, false);
        return (primitive(float::<B, 4>(output).reshape([b, n_head, t, head_dim])), None);
    }
    let (k, v) = (repeated(k, n_head), repeated(v, n_head));
    // In f16 the product of a query and a key may overflow before it is scaled.
    let (q, scale) = if is_half(q.dtype()) { (q.mul_scalar(options.scale), 1.0) } else { (q, options.scale) };
    // If the weights are not kept, a backend may avoid materialising them. The fusing backends do not: with a scale, Burn's
    // attention is a composition there, with a materialised mask and a softmax of many launches. Without a scale,
    // autotuning chooses between that composition and the kernels of cubek-attention 0.2.0, whose results differ: those
    // scale by 1/sqrt(head_dim), convert queries, keys, values and weights to f16 whatever their dtype, and align a causal
    // mask with the first key instead of the last. If there are more queries than keys, the first ones attend to nothing,
    // which backends treat differently.
    let (whole, sees_keys) =
        (options.dropout.is_none() && bias.is_none() && !B::BROKEN_FUSED_GEMV, !ranges.causal || t <= s);
    if !keep && whole && sees_keys {
        let outside = if ranges.is_plain() { None } else { ranges.mask([t, s], &q.device()) };
        let is_causal = ranges.causal && outside.is_none();
        let mask = match (outside, mask) {
            (Some(outside), Some(mask)) => Some(either(outside, mask)),
            (outside, mask) => outside.or(mask),
        };
        let mask = mask.map(|mask| mask.expand([b, n_head, t, s]));
        let options = AttentionModuleOptions { scale: Some(scale), softcap: None, is_causal };
        return (primitive(module::attention(q, k, v, mask, None, options)), None);
    }
    let scores = matmul(q, k.swap_dims(2, 3)); // [b, n_head, t, s]
    let (scores, scale) = match bias {
        Some(bias) if scale == 1.0 => (scores + bias, 1.0),
        Some(bias) => (scores.mul_scalar(scale) + bias, 1.0),
        None => (scores, scale),
    };
    let scores = match mask {
        Some(mask) => scores.mask_fill(mask.expand([b, n_head, t, s]), f32::NEG_INFINITY * scale.signum() as f32),
        None => scores,
    };
    let weights = masked_softmax(scores, scale, &ranges);
    let kept = keep.then(|| primitive(weights.clone()));
    let used = match options.dropout {
        Some(options) => dropout(weights, options),
        None => weights,
    };
    (primitive(matmul(used, v)), kept)
}
