//! The differentiating backend: each operation that grove owns with its exact backward pass.

use burn::tensor::{
    DType, Shape,
    backend::AutodiffBackend,
    ops::{FloatTensor, IntTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};

use super::{
    AttendOptions, Backend, BatchNormed, ConvolveOptions, Dropout, GruReset, KeyRanges, PoolOptions, Quantisation,
    Recurrence, RnnActivation, RowNormOptions, SampleOptions, SampledPrimitives, Steps, affine, attend, batch_norm,
    chunk, convolve,
    custom::recorded,
    embed, gated,
    gelu::{Erf, Selu, Tanh, differentiable},
    max_pool, product, quantised, random, rotary,
};

impl<B: Backend, C: CheckpointStrategy> Backend for Autodiff<B, C> {
    const FUSES_VECTORS_WRONGLY: bool = B::FUSES_VECTORS_WRONGLY;
    const WIDENS_WEIGHTS: bool = B::WIDENS_WEIGHTS;
    const SAMPLES: bool = B::SAMPLES;

    fn computes_in(device: &Self::Device, dtype: DType) -> bool {
        B::computes_in(device, dtype)
    }

    fn matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        product::differentiable::<B, C>(lhs, rhs)
    }

    fn affine(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        affine::differentiable::<B, C>(x, weight, bias)
    }

    fn attend(
        inputs: [FloatTensor<Self>; 3],
        options: AttendOptions<Self>,
        _keep: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        (attend::differentiable::<B, C>(inputs, options), None)
    }

    fn affine_quantised(x: FloatTensor<Self>, blocks: IntTensor<Self>, kind: Quantisation) -> FloatTensor<Self> {
        quantised::differentiable::<B, C>(x, blocks, kind)
    }

    fn dequantise(blocks: IntTensor<Self>, kind: Quantisation) -> FloatTensor<Self> {
        <Self as AutodiffBackend>::from_inner(B::dequantise(blocks, kind))
    }

    fn rotate(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        interleaved: bool,
    ) -> FloatTensor<Self> {
        rotary::differentiable::<B, C>(x, cos, sin, interleaved)
    }

    fn silu_mul(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        gated::differentiable::<B, C>(gate, up)
    }

    fn gelu_erf(x: FloatTensor<Self>) -> FloatTensor<Self> {
        differentiable::<B, C, Erf>(x)
    }

    fn gelu_tanh(x: FloatTensor<Self>) -> FloatTensor<Self> {
        differentiable::<B, C, Tanh>(x)
    }

    fn selu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        differentiable::<B, C, Selu>(x)
    }

    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, options: ConvolveOptions) -> FloatTensor<Self> {
        convolve::differentiable::<B, C>(x, weight, options)
    }

    fn batch_norm(
        inputs: [FloatTensor<Self>; 3],
        residual: Option<FloatTensor<Self>>,
        relu: bool,
        eps: f64,
    ) -> BatchNormed<Self> {
        batch_norm::differentiable::<B, C>(inputs, residual, relu, eps)
    }

    fn max_pool(x: FloatTensor<Self>, options: PoolOptions) -> FloatTensor<Self> {
        max_pool::differentiable::<B, C>(x, options)
    }

    fn attention_weights(scores: FloatTensor<Self>, scale: f64, visible: KeyRanges<Self>) -> FloatTensor<Self> {
        let backward = |(weights, scale), grad, _| [Some(B::attention_weights_backward(weights, grad, scale))];
        recorded::<B, C, _, 1>([scores], backward, |[scores], _| {
            let weights = B::attention_weights(scores, scale, KeyRanges::of_inner(visible));
            (weights.clone(), Some((weights, scale)))
        })
    }

    fn row_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: RowNormOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        type Kept<B> = ([FloatTensor<B>; 2], FloatTensor<B>, RowNormOptions);
        let mut second = None;
        let mut compute = |x: FloatTensor<B>, weight: FloatTensor<B>, bias| {
            let (y, stats) = B::row_norm(x.clone(), weight.clone(), bias, options);
            second = Some(stats.clone());
            (y, Some(([x, weight], stats, options)))
        };
        let y = match bias {
            Some(bias) => {
                let backward = |(inputs, stats, options): Kept<B>, grad, needs| {
                    B::row_norm_backward(inputs, stats, grad, options, needs)
                };
                recorded::<B, C, _, 3>([x, weight, bias], backward, |[x, weight, bias], _| {
                    compute(x, weight, Some(bias))
                })
            }
            None => {
                let backward = |(inputs, stats, options): Kept<B>, grad, [x, weight]: [bool; 2]| {
                    let [dx, d_weight, _] = B::row_norm_backward(inputs, stats, grad, options, [x, weight, false]);
                    [dx, d_weight]
                };
                recorded::<B, C, _, 2>([x, weight], backward, |[x, weight], _| compute(x, weight, None))
            }
        };
        (y, untracked::<B, C>(second))
    }

    fn nll(logits: FloatTensor<Self>, labels: IntTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        let mut second = None;
        let backward = |(logits, labels, normaliser): (FloatTensor<B>, IntTensor<B>, FloatTensor<B>), grad, _| {
            [Some(B::nll_backward(logits, labels, normaliser, grad))]
        };
        let loss = recorded::<B, C, _, 1>([logits], backward, |[logits], _| {
            let (loss, normaliser) = B::nll(logits.clone(), labels.clone());
            second = Some(normaliser.clone());
            (loss, Some((logits, labels, normaliser)))
        });
        (loss, untracked::<B, C>(second))
    }

    fn embed(table: FloatTensor<Self>, symbols: IntTensor<Self>) -> FloatTensor<Self> {
        embed::differentiable::<B, C>(table, symbols)
    }

    fn chunk(x: FloatTensor<Self>, count: usize, axis: usize) -> Vec<FloatTensor<Self>> {
        chunk::differentiable::<B, C>(x, count, axis)
    }

    fn random_bits(key: [u32; 2], shape: Shape, device: &Self::Device) -> IntTensor<Self> {
        B::random_bits(key, shape, device)
    }

    fn dropout(x: FloatTensor<Self>, dropout: Dropout) -> FloatTensor<Self> {
        random::differentiable::<B, C>(x, dropout)
    }

    fn sample(
        logits: FloatTensor<Self>,
        occurred: Option<IntTensor<Self>>,
        options: SampleOptions,
    ) -> Option<SampledPrimitives<Self>> {
        B::sample(logits.primitive, occurred, options)
    }

    fn lstm(inputs: [FloatTensor<Self>; 6], steps: &Steps, _keep: bool) -> Recurrence<Self, 2> {
        type Kept<B> = ([FloatTensor<B>; 6], [FloatTensor<B>; 2], FloatTensor<B>, Steps);
        let backward = |(inputs, kept, output, steps): Kept<B>, grad, needs| {
            B::lstm_backward(inputs, kept, output, grad, &steps, needs)
        };
        let output = recorded::<B, C, _, 6>(inputs, backward, |inputs, keep| {
            let (output, kept) = B::lstm(inputs.clone(), steps, keep);
            (output.clone(), kept.map(|kept| (inputs, kept, output, steps.clone())))
        });
        (output, None)
    }

    fn gru(inputs: [FloatTensor<Self>; 5], reset: GruReset, steps: &Steps, _keep: bool) -> Recurrence<Self, 2> {
        type Kept<B> = ([FloatTensor<B>; 5], [FloatTensor<B>; 2], FloatTensor<B>, GruReset, Steps);
        let backward = |(inputs, kept, output, reset, steps): Kept<B>, grad, needs| {
            B::gru_backward(inputs, kept, output, grad, reset, &steps, needs)
        };
        let output = recorded::<B, C, _, 5>(inputs, backward, |inputs, keep| {
            let (output, kept) = B::gru(inputs.clone(), reset, steps, keep);
            (output.clone(), kept.map(|kept| (inputs, kept, output, reset, steps.clone())))
        });
        (output, None)
    }

    fn rnn(inputs: [FloatTensor<Self>; 5], activation: RnnActivation, steps: &Steps) -> FloatTensor<Self> {
        type Kept<B> = ([FloatTensor<B>; 5], FloatTensor<B>, RnnActivation, Steps);
        let backward = |(inputs, output, activation, steps): Kept<B>, grad, needs| {
            B::rnn_backward(inputs, output, grad, activation, &steps, needs)
        };
        recorded::<B, C, _, 5>(inputs, backward, |inputs, _| {
            let output = B::rnn(inputs.clone(), activation, steps);
            (output.clone(), Some((inputs, output, activation, steps.clone())))
        })
    }
}

/// The second result of an operation, through which no gradient flows.
pub(super) fn untracked<B: Backend, C: CheckpointStrategy>(
    second: Option<FloatTensor<B>>,
) -> FloatTensor<Autodiff<B, C>> {
    <Autodiff<B, C> as AutodiffBackend>::from_inner(second.expect("the operation was computed"))
}
