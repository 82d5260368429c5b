//! Kernels of the flex backend for contiguous f32. Other operations use the defaults.

mod affine;
mod attend;
mod batch_norm;
mod convolve;
mod recurrent;

use burn::tensor::{
    DType, Shape,
    ops::{FloatTensor, IntTensor},
};
use burn_flex::{Flex, FlexTensor, Layout};
use grove_kernels as kernels;

use super::{
    AttendOptions, Backend, BatchNormKept, BatchNormed, ConvolveOptions, ConvolveThen, Dropout, GruReset, KeyRanges,
    PoolOptions, Quantisation, Recurrence, RnnActivation, RowNormOptions, Steps, embed, gated, gelu, optimizer,
    quantised, random, rotary, rows,
};

/// Returns an f32 tensor of a shape.
fn tensor(values: Vec<f32>, shape: Shape) -> FlexTensor {
    FlexTensor::new(burn::tensor::Bytes::from_elems(values), Layout::contiguous(shape), DType::F32)
}

fn is_f32(x: &FlexTensor) -> bool {
    x.dtype() == DType::F32
}

/// Returns the tensor itself if it is contiguous, otherwise a copy.
fn contiguous(x: FlexTensor) -> FlexTensor {
    // The input handle is dropped, so that the output handle may be the only one.
    let y = x.to_contiguous();
    drop(x);
    y
}

/// Returns the elements of a contiguous f32 tensor.
fn elements(x: &FlexTensor) -> &[f32] {
    x.as_slice::<f32>().expect("a contiguous tensor of f32")
}

/// Changes the elements in place, or in a copy if the tensor is shared or not contiguous.
fn changed(x: FlexTensor, f: impl FnOnce(&mut [f32])) -> FlexTensor {
    let mut x = contiguous(x);
    let shape = x.layout().shape().clone();
    let whole = x.layout().contiguous_offsets() == Some((0, shape.num_elements()));
    if whole && let Some(values) = x.try_storage_mut::<f32>().filter(|values| values.len() == shape.num_elements()) {
        f(values);
        return x;
    }
    let mut values = elements(&x).to_vec();
    f(&mut values);
    tensor(values, shape)
}

/// Applies a function to the elements, in a new tensor.
fn mapped(x: FlexTensor, f: fn(&[f32]) -> Vec<f32>) -> FlexTensor {
    let x = contiguous(x);
    tensor(f(elements(&x)), x.layout().shape().clone())
}

fn norm_of(options: RowNormOptions) -> kernels::RowNorm {
    kernels::RowNorm { centred: options.centred, eps: options.eps as f32 }
}

impl Backend for Flex {
    const WIDENS_WEIGHTS: bool = true;

    fn affine(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        affine::forward(x, weight, bias)
    }

    fn affine_backward(
        x: Option<FloatTensor<Self>>,
        weight: Option<FloatTensor<Self>>,
        grad: FloatTensor<Self>,
        bias: bool,
    ) -> [Option<FloatTensor<Self>>; 3] {
        affine::backward(x, weight, grad, bias)
    }

    fn affine_quantised(x: FloatTensor<Self>, blocks: IntTensor<Self>, kind: Quantisation) -> FloatTensor<Self> {
        if !is_f32(&x) || blocks.dtype() != DType::U8 {
            return quantised::affine::<Self>(x, blocks, kind);
        }
        affine::quantised(x, blocks, kind)
    }

    fn dequantise(blocks: IntTensor<Self>, kind: Quantisation) -> FloatTensor<Self> {
        if blocks.dtype() != DType::U8 {
            return quantised::dequantise::<Self>(blocks, kind);
        }
        affine::dequantise(blocks, kind)
    }

    fn rotate(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        interleaved: bool,
    ) -> FloatTensor<Self> {
        if ![&x, &cos, &sin].into_iter().all(is_f32) {
            return rotary::rotate::<Self>(x, cos, sin, interleaved);
        }
        let (cos, sin) = (contiguous(cos), contiguous(sin));
        let (heads, half) = (x.layout().shape()[2], x.layout().shape()[3] / 2);
        changed(x, |x| kernels::rotate(x, elements(&cos), elements(&sin), half, heads, interleaved))
    }

    fn silu_mul(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&gate) || !is_f32(&up) {
            return gated::silu_mul::<Self>(gate, up);
        }
        let up = contiguous(up);
        changed(gate, |gate| kernels::silu_mul(gate, elements(&up)))
    }

    fn silu_mul_backward(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2] {
        if ![&gate, &up, &grad].into_iter().all(is_f32) {
            return gated::backward::<Self>(gate, up, grad);
        }
        let (gate, up) = (contiguous(gate), contiguous(up));
        let mut d_gate = vec![];
        let d_up = changed(grad, |grad| d_gate = kernels::silu_mul_backward(elements(&gate), elements(&up), grad));
        [tensor(d_gate, gate.layout().shape().clone()), d_up]
    }

    fn random_bits(key: [u32; 2], shape: Shape, _device: &Self::Device) -> IntTensor<Self> {
        let bits = kernels::random_bits(key, shape.num_elements());
        FlexTensor::new(burn::tensor::Bytes::from_elems(bits), Layout::contiguous(shape), DType::U32)
    }

    fn dropout(x: FloatTensor<Self>, dropout: Dropout) -> FloatTensor<Self> {
        if !is_f32(&x) {
            return random::dropout_by_product::<Self>(x, dropout);
        }
        if x.is_unique() {
            return changed(x, |x| dropout.apply(x));
        }
        let x = contiguous(x);
        tensor(dropout.applied(elements(&x)), x.layout().shape().clone())
    }

    fn attend(
        inputs: [FloatTensor<Self>; 3],
        options: AttendOptions<Self>,
        keep: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        attend::forward(inputs, options, keep)
    }

    fn attend_backward(
        inputs: [FloatTensor<Self>; 3],
        options: AttendOptions<Self>,
        kept: Option<FloatTensor<Self>>,
        grad: FloatTensor<Self>,
        needs: [bool; 3],
    ) -> [Option<FloatTensor<Self>>; 3] {
        attend::backward(inputs, options, kept, grad, needs)
    }

    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, options: ConvolveOptions) -> FloatTensor<Self> {
        convolve::forward(x, weight, options)
    }

    fn convolve_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: ConvolveOptions,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<Self>>; 2] {
        convolve::backward(x, weight, grad, options, needs)
    }

    fn convolve_then(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        then: ConvolveThen<Self>,
        options: ConvolveOptions,
    ) -> FloatTensor<Self> {
        convolve::then(x, weight, then, options)
    }

    fn batch_norm(
        inputs: [FloatTensor<Self>; 3],
        residual: Option<FloatTensor<Self>>,
        relu: bool,
        eps: f64,
    ) -> BatchNormed<Self> {
        batch_norm::forward(inputs, residual, relu, eps)
    }

    fn batch_norm_backward(kept: BatchNormKept<Self>, grad: FloatTensor<Self>) -> [FloatTensor<Self>; 4] {
        batch_norm::backward(kept, grad)
    }

    fn max_pool(x: FloatTensor<Self>, options: PoolOptions) -> FloatTensor<Self> {
        convolve::max(x, options)
    }

    fn max_pool_backward(
        x: FloatTensor<Self>,
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: PoolOptions,
    ) -> FloatTensor<Self> {
        convolve::max_backward(x, output, grad, options)
    }

    fn gelu_erf(x: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&x) {
            return gelu::erf::<Self>(x);
        }
        // A new tensor costs more than the function, since its pages come from the system.
        if x.is_unique() { changed(x, kernels::gelu_erf_in_place) } else { mapped(x, kernels::gelu_erf) }
    }

    fn gelu_erf_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&x) || !is_f32(&grad) {
            return gelu::erf_backward::<Self>(x, grad);
        }
        let x = contiguous(x);
        changed(grad, |grad| kernels::gelu_erf_backward(elements(&x), grad))
    }

    fn gelu_tanh(x: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&x) {
            return gelu::tanh::<Self>(x);
        }
        if x.is_unique() { changed(x, kernels::gelu_tanh_in_place) } else { mapped(x, kernels::gelu_tanh) }
    }

    fn gelu_tanh_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&x) || !is_f32(&grad) {
            return gelu::tanh_backward::<Self>(x, grad);
        }
        let x = contiguous(x);
        changed(grad, |grad| kernels::gelu_tanh_backward(elements(&x), grad))
    }

    fn selu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&x) {
            return gelu::selu::<Self>(x);
        }
        if x.is_unique() { changed(x, kernels::selu_in_place) } else { mapped(x, kernels::selu) }
    }

    fn selu_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&x) || !is_f32(&grad) {
            return gelu::selu_backward::<Self>(x, grad);
        }
        let x = contiguous(x);
        changed(grad, |grad| kernels::selu_backward(elements(&x), grad))
    }

    fn attention_weights(scores: FloatTensor<Self>, scale: f64, visible: KeyRanges<Self>) -> FloatTensor<Self> {
        let [.., t, s] = scores.layout().shape()[..] else {
            return rows::attention_weights::<Self>(scores, scale, visible);
        };
        // With more queries than keys, the first queries see nothing, which the kernel does not support.
        if !is_f32(&scores) || visible.causal && t > s || !visible.is_plain() {
            return rows::attention_weights::<Self>(scores, scale, visible);
        }
        let (scale, queries) = (scale as f32, visible.causal.then_some(t));
        if scores.is_unique() {
            return changed(scores, |scores| kernels::softmax_rows(scores, s, scale, queries));
        }
        let scores = contiguous(scores);
        let weights = kernels::softmax_rows_of(elements(&scores), s, scale, queries);
        tensor(weights, scores.layout().shape().clone())
    }

    fn attention_weights_backward(
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        if !is_f32(&weights) || !is_f32(&grad) {
            return rows::attention_weights_backward::<Self>(weights, grad, scale);
        }
        let weights = contiguous(weights);
        let columns = weights.layout().shape()[3];
        changed(grad, |grad| kernels::softmax_rows_backward(elements(&weights), grad, columns, scale as f32))
    }

    fn row_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: RowNormOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        if !is_f32(&x) || !is_f32(&weight) || !bias.as_ref().is_none_or(is_f32) {
            return rows::row_norm::<Self>(x, weight, bias, options);
        }
        let (x, weight, bias) = (contiguous(x), contiguous(weight), bias.map(contiguous));
        let shape = x.layout().shape().clone();
        let (y, stats) = norm_of(options).forward(elements(&x), elements(&weight), bias.as_ref().map(elements));
        let of_rows = Shape::from([shape[0], 2]);
        (tensor(y, shape), tensor(stats, of_rows))
    }

    fn row_norm_backward(
        [x, weight]: [FloatTensor<Self>; 2],
        stats: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: RowNormOptions,
        needs: [bool; 3],
    ) -> [Option<FloatTensor<Self>>; 3] {
        if ![&x, &weight, &grad].into_iter().all(is_f32) {
            return rows::row_norm_backward::<Self>([x, weight], stats, grad, options, needs);
        }
        let (x, weight, stats) = (contiguous(x), contiguous(weight), contiguous(stats));
        let shape = weight.layout().shape().clone();
        let (mut d_weight, mut d_bias) = (vec![0.0; shape.num_elements()], vec![0.0; shape.num_elements()]);
        let dx = changed(grad, |grad| {
            let (x, weight, stats) = (elements(&x), elements(&weight), elements(&stats));
            norm_of(options).backward(x, weight, stats, grad, &mut d_weight, &mut d_bias);
        });
        let [of_weight, of_bias] = [d_weight, d_bias].map(|values| tensor(values, shape.clone()));
        [needs[0].then_some(dx), needs[1].then_some(of_weight), needs[2].then_some(of_bias)]
    }

    fn adam_step(leaf: [FloatTensor<Self>; 4], numbers: FloatTensor<Self>) -> [FloatTensor<Self>; 3] {
        if !leaf.iter().chain([&numbers]).all(is_f32) {
            return optimizer::adam_step::<Self>(leaf, numbers);
        }
        let [params, grads, mu, nu] = leaf;
        let (grads, numbers) = (contiguous(grads), contiguous(numbers));
        let &[b1, of_grad, b2, of_square, eps, eps_root, first, second, rate, decay] = elements(&numbers) else {
            panic!("a step of AdamW has 10 numbers, not {}", elements(&numbers).len());
        };
        let step = kernels::AdamStep {
            b1: [b1, of_grad],
            b2: [b2, of_square],
            eps,
            eps_root,
            correction: [first, second],
            rate,
            decay,
        };
        let (mut new_mu, mut new_nu) = (None, None);
        let params = changed(params, |params| {
            new_mu = Some(changed(mu, |mu| {
                new_nu = Some(changed(nu, |nu| step.apply(params, elements(&grads), mu, nu)));
            }));
        });
        [params, new_mu.expect("it was changed"), new_nu.expect("it was changed")]
    }

    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&x) {
            return optimizer::sum_of_squares::<Self>(x);
        }
        tensor(vec![kernels::sum_of_squares(elements(&contiguous(x)))], Shape::from([1]))
    }

    fn embed_backward(sum: FloatTensor<Self>, symbols: IntTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        if !is_f32(&sum) || !is_f32(&grad) || symbols.dtype() != DType::I64 {
            return embed::add::<Self>(sum, symbols, grad);
        }
        let (symbols, grad) = (contiguous(symbols), contiguous(grad));
        let size = sum.layout().shape()[1];
        let symbols = symbols.as_slice::<i64>().expect("a contiguous tensor of i64");
        changed(sum, |sum| {
            for (&symbol, grad) in symbols.iter().zip(elements(&grad).chunks_exact(size.max(1))) {
                let row = &mut sum[symbol as usize * size..][..size];
                row.iter_mut().zip(grad).for_each(|(sum, grad)| *sum += grad);
            }
        })
    }

    fn nll(logits: FloatTensor<Self>, labels: IntTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        if !is_f32(&logits) || labels.dtype() != DType::I64 {
            return rows::nll::<Self>(logits, labels);
        }
        let (logits, labels) = (contiguous(logits), contiguous(labels));
        let labels = labels.as_slice::<i64>().expect("a contiguous tensor of i64");
        let (mut loss, mut normaliser) = (vec![0.0; labels.len()], vec![0.0; labels.len()]);
        kernels::nll(elements(&logits), labels, &mut loss, &mut normaliser);
        let shape = Shape::from([labels.len()]);
        (tensor(loss, shape.clone()), tensor(normaliser, shape))
    }

    fn nll_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        normaliser: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        if !is_f32(&logits) || !is_f32(&grad) || labels.dtype() != DType::I64 {
            return rows::nll_backward::<Self>(logits, labels, normaliser, grad);
        }
        let (logits, labels) = (contiguous(logits), contiguous(labels));
        let (normaliser, grad) = (contiguous(normaliser), contiguous(grad));
        let labels = labels.as_slice::<i64>().expect("a contiguous tensor of i64");
        let grads = kernels::nll_backward(elements(&logits), labels, elements(&normaliser), elements(&grad));
        tensor(grads, logits.layout().shape().clone())
    }

    fn lstm(inputs: [FloatTensor<Self>; 6], steps: &Steps, keep: bool) -> Recurrence<Self, 2> {
        recurrent::lstm(inputs, steps, keep)
    }

    fn lstm_backward(
        inputs: [FloatTensor<Self>; 6],
        kept: [FloatTensor<Self>; 2],
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        steps: &Steps,
        needs: [bool; 6],
    ) -> [Option<FloatTensor<Self>>; 6] {
        recurrent::lstm_backward(inputs, kept, output, grad, steps, needs)
    }

    fn gru(inputs: [FloatTensor<Self>; 5], reset: GruReset, steps: &Steps, keep: bool) -> Recurrence<Self, 2> {
        recurrent::gru(inputs, reset, steps, keep)
    }

    fn gru_backward(
        inputs: [FloatTensor<Self>; 5],
        kept: [FloatTensor<Self>; 2],
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        reset: GruReset,
        steps: &Steps,
        needs: [bool; 5],
    ) -> [Option<FloatTensor<Self>>; 5] {
        recurrent::gru_backward(inputs, kept, output, grad, reset, steps, needs)
    }

    fn rnn(inputs: [FloatTensor<Self>; 5], activation: RnnActivation, steps: &Steps) -> FloatTensor<Self> {
        recurrent::rnn(inputs, activation, steps)
    }

    fn rnn_backward(
        inputs: [FloatTensor<Self>; 5],
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        activation: RnnActivation,
        steps: &Steps,
        needs: [bool; 5],
    ) -> [Option<FloatTensor<Self>>; 5] {
        recurrent::rnn_backward(inputs, output, grad, activation, steps, needs)
    }
}
