//! The operations that grove owns.

mod affine;
mod append;
mod attend;
mod autodiff;
mod batch_norm;
#[cfg(feature = "candle")]
mod candle;
mod chunk;
mod convolve;
#[cfg(feature = "candle")]
mod convolve_by_pixels;
#[cfg(feature = "cube")]
mod cube;
mod custom;
mod embed;
#[cfg(feature = "flex")]
mod flex;
mod gated;
mod gelu;
mod key_ranges;
mod max_pool;
mod optimizer;
mod precision;
mod product;
mod quantised;
mod random;
mod read;
mod recurrent;
mod rotary;
mod rows;
mod sample;
mod strided;

use burn::tensor::{
    DType, Shape, Tensor, TensorMetadata, TensorPrimitive,
    ops::{FloatTensor, IntTensor, ModuleOps},
};

use std::ops::Range;

pub use grove_kernels::{Dropout, Quantisation};

pub use attend::AttendOptions;
pub use batch_norm::{BatchNormKept, BatchNormed};
pub use convolve::{ConvolveOptions, ConvolveThen};
#[cfg(feature = "cube")]
pub use cube::matmul::use_f32_kernels_on_every_device;
pub use key_ranges::KeyRanges;
pub use max_pool::PoolOptions;
pub use precision::at_least_f32;
pub use random::{dropout, random_bits};
pub use read::PendingRead;
pub use recurrent::{GruReset, Recurrence, RnnActivation, Steps};
pub use rows::RowNormOptions;
pub use sample::{PendingTokens, SampleOptions, Sampled, SampledPrimitives, sample};

fn float<B: burn::tensor::backend::Backend, const D: usize>(x: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

fn primitive<B: burn::tensor::backend::Backend, const D: usize>(x: Tensor<B, D>) -> FloatTensor<B> {
    x.into_primitive().tensor()
}

/// A tensor's elements in one row.
fn flat<B: burn::tensor::backend::Backend>(x: FloatTensor<B>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    float(B::float_reshape(x, [count].into()))
}

/// Burn's backend trait plus the operations that grove owns.
///
/// Each operation has a default written with Burn's own, so that a backend joins with an empty `impl`. A backend
/// overrides one with a fused kernel; [`Autodiff`](burn_autodiff::Autodiff) overrides each with an exact backward
/// pass.
pub trait Backend: burn::tensor::backend::Backend {
    /// Whether layers can compute in a type of floating-point numbers on a device, and not only hold numbers of it: whether
    /// there are matrix products, convolutions and sums for it.
    ///
    /// Loading a model refuses other types; [`DeviceSpec::computes_in`](crate::DeviceSpec::computes_in) tells a program early.
    fn computes_in(device: &Self::Device, dtype: DType) -> bool {
        dtype.is_float() && Self::supports_dtype(device, dtype)
    }

    /// Whether a matrix times a vector may come out wrong where the backend fuses the product with what follows.
    ///
    /// Burn 0.21's fused autotuning counts a kernel among the candidates that reads the matrix as though it were row-major
    /// ([m = 1](https://github.com/tracel-ai/cubek/pull/262), [n = 1](https://github.com/tracel-ai/burn/issues/5122)), and
    /// takes it where it is the fastest. [`matmul`](crate::matmul) goes around that.
    const FUSES_VECTORS_WRONGLY: bool = false;

    /// Whether weights of 16 bits, and quantised ones, are for keeping only: where a product takes them with an input of
    /// f32, as they lie in memory, and computes in f32.
    const WIDENS_WEIGHTS: bool = false;

    /// The product of matrices, `[.., m, k]` and `[.., k, n]`, of one type of numbers, right on every backend: what
    /// [`matmul`](crate::matmul) and the backward passes call.
    fn matmul(lhs: FloatTensor<Self>, rhs: FloatTensor<Self>) -> FloatTensor<Self> {
        crate::matmul::by_pairs::<Self>(lhs, rhs)
    }

    /// An affine map of the last axis, `x W + b`, right on every backend. The weight may be of another floating-point type
    /// than the input, whose type the product is computed in; each gradient has the type of what it belongs to.
    ///
    /// # Shapes
    /// - `x` `[.., in]`, `weight` `[in, out]`, `bias` `[out]`
    /// - output `[.., out]`
    fn affine(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        affine::forward::<Self>(x, weight, bias)
    }

    /// Gradients of [`affine`](Self::affine) with respect to `x`, given the weight, the weight, given `x`, and the bias,
    /// if it needs one.
    fn affine_backward(
        x: Option<FloatTensor<Self>>,
        weight: Option<FloatTensor<Self>>,
        grad: FloatTensor<Self>,
        bias: bool,
    ) -> [Option<FloatTensor<Self>>; 3] {
        affine::backward::<Self>(x, weight, grad, bias)
    }

    /// The product with the transpose of a quantised matrix, `x W^T`, without unpacking all of it where the backend can.
    ///
    /// # Shapes
    /// - `x` `[.., in]`, `blocks` of u8 `[out, bytes of a row]`; see [`Quantisation`]
    /// - output `[.., out]`
    fn affine_quantised(x: FloatTensor<Self>, blocks: IntTensor<Self>, kind: Quantisation) -> FloatTensor<Self> {
        quantised::affine::<Self>(x, blocks, kind)
    }

    /// Gradient of [`affine_quantised`](Self::affine_quantised) with respect to `x`.
    fn affine_quantised_backward(
        blocks: IntTensor<Self>,
        kind: Quantisation,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        quantised::affine_backward::<Self>(blocks, kind, grad)
    }

    /// A quantised matrix, of u8 `[rows, bytes of a row]`, in numbers, f32 `[rows, columns]`.
    fn dequantise(blocks: IntTensor<Self>, kind: Quantisation) -> FloatTensor<Self> {
        quantised::dequantise::<Self>(blocks, kind)
    }

    /// Rotary position embedding (Su et al., 2021): pairs of numbers, as points of a plane, turned by the position's angles.
    /// The partners are half of the last axis apart, or with `interleaved` neighbours. No gradient flows to the angles.
    ///
    /// # Shapes
    /// - `x` `[b, t, n_head, head_dim]`; `cos`, `sin` `[b or 1, t, head_dim / 2]`
    /// - output as `x`
    fn rotate(
        x: FloatTensor<Self>,
        cos: FloatTensor<Self>,
        sin: FloatTensor<Self>,
        interleaved: bool,
    ) -> FloatTensor<Self> {
        rotary::rotate::<Self>(x, cos, sin, interleaved)
    }

    /// `silu(gate) * up`, with `silu(x) = x / (1 + exp(-x))`: SwiGLU between its linear maps (Shazeer, 2020).
    ///
    /// # Shapes
    /// - both, and the output, `[b, t, size]`
    fn silu_mul(gate: FloatTensor<Self>, up: FloatTensor<Self>) -> FloatTensor<Self> {
        gated::silu_mul::<Self>(gate, up)
    }

    /// Gradients of [`silu_mul`](Self::silu_mul) with respect to both.
    fn silu_mul_backward(
        gate: FloatTensor<Self>,
        up: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> [FloatTensor<Self>; 2] {
        gated::backward::<Self>(gate, up, grad)
    }

    /// Gaussian error linear unit, exact: `x * Phi(x)` with the normal distribution function `Phi`
    /// (Hendrycks and Gimpel, 2016). Any shape; the shape stays.
    fn gelu_erf(x: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::erf::<Self>(x)
    }

    /// Gradient of [`gelu_erf`](Self::gelu_erf) at `x`, times `grad`.
    fn gelu_erf_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::erf_backward::<Self>(x, grad)
    }

    /// GELU by its tanh approximation, `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`; `gelu_new` in
    /// transformers. Any shape; the shape stays.
    fn gelu_tanh(x: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::tanh::<Self>(x)
    }

    /// Gradient of [`gelu_tanh`](Self::gelu_tanh) at `x`, times `grad`.
    fn gelu_tanh_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::tanh_backward::<Self>(x, grad)
    }

    /// Scaled exponential linear unit (Klambauer et al., 2017). Any shape; the shape stays.
    fn selu(x: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::selu::<Self>(x)
    }

    /// Gradient of [`selu`](Self::selu) at `x`, times `grad`.
    fn selu_backward(x: FloatTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        gelu::selu_backward::<Self>(x, grad)
    }

    /// Scaled dot-product attention, `softmax(q k^T * scale) v` (Vaswani et al., 2017), and, if `keep`, what its backward
    /// pass needs besides the inputs, if anything. The differentiating backend keeps that itself, and gives none.
    ///
    /// A query from which all keys are hidden gathers zeros, and gives and gets gradients of zero.
    ///
    /// # Shapes
    /// - queries `[b, n_head, t, head_dim]`
    /// - keys, values `[b, n_kv_head, s, head_dim]`, where each head serves `n_head / n_kv_head` heads of queries
    /// - output `[b, n_head, t, head_dim]`
    fn attend(
        inputs: [FloatTensor<Self>; 3],
        options: AttendOptions<Self>,
        keep: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        attend::forward::<Self>(inputs, options, keep)
    }

    /// Gradients of [`attend`](Self::attend) with respect to the inputs that need them, given what was kept.
    fn attend_backward(
        inputs: [FloatTensor<Self>; 3],
        options: AttendOptions<Self>,
        kept: Option<FloatTensor<Self>>,
        grad: FloatTensor<Self>,
        needs: [bool; 3],
    ) -> [Option<FloatTensor<Self>>; 3] {
        attend::backward::<Self>(inputs, options, kept, grad, needs)
    }

    /// Writes the keys and values of new positions into a cache's buffers, from position `at` on; in place, where nothing else
    /// holds a buffer. Gives the buffers, and of each the positions that are `seen`.
    ///
    /// # Shapes
    /// - buffers `[b, n_kv_head, capacity, head_dim]`; new keys and values `[b, n_kv_head, t, head_dim]`
    /// - output: buffers, and keys and values `[b, n_kv_head, seen, head_dim]`
    fn append(
        buffers: [FloatTensor<Self>; 2],
        new: [FloatTensor<Self>; 2],
        at: usize,
        seen: Range<usize>,
    ) -> [[FloatTensor<Self>; 2]; 2] {
        let [keys, values] = buffers;
        let [new_keys, new_values] = new;
        let write = |buffer, new| append::one::<Self>(buffer, new, at, seen.clone());
        let ([keys, seen_keys], [values, seen_values]) = (write(keys, new_keys), write(values, new_values));
        [[keys, values], [seen_keys, seen_values]]
    }

    /// A convolution of pictures (as it is called: no kernel is turned around), without a bias.
    ///
    /// # Shapes
    /// - `x` `[b, in, h, w]`, `weight` `[out, in / groups, kh, kw]`
    /// - output `[b, out, h', w']`; see [`ConvolveOptions::output_size`]
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, options: ConvolveOptions) -> FloatTensor<Self> {
        convolve::forward::<Self>(x, weight, options)
    }

    /// Gradients of [`convolve`](Self::convolve) with respect to the input and the weight, if they need one.
    fn convolve_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: ConvolveOptions,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<Self>>; 2] {
        convolve::backward::<Self>(x, weight, grad, options, needs)
    }

    /// [`convolve`](Self::convolve) and what follows it in inference, in one pass: `relu(scale * conv + shift + residual)`.
    fn convolve_then(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        then: ConvolveThen<Self>,
        options: ConvolveOptions,
    ) -> FloatTensor<Self> {
        convolve::then::<Self>(x, weight, then, options)
    }

    /// Batch normalisation in training (Ioffe and Szegedy, 2015), each channel to mean 0 and variance 1 over the batch and
    /// the picture, scaled and shifted, and what follows it in a residual network: `relu(weight * normal + bias + residual)`.
    /// A batch of 16 bits is normalised in f32.
    ///
    /// # Shapes
    /// - inputs: `x` `[b, c, h, w]`, the scale and the shift `[c]`; `residual` as `x`
    /// - output as `x`
    fn batch_norm(
        inputs: [FloatTensor<Self>; 3],
        residual: Option<FloatTensor<Self>>,
        relu: bool,
        eps: f64,
    ) -> BatchNormed<Self> {
        batch_norm::forward::<Self>(inputs, residual, relu, eps)
    }

    /// Gradients of [`batch_norm`](Self::batch_norm) with respect to the input, the scale, the shift and the residual.
    fn batch_norm_backward(kept: BatchNormKept<Self>, grad: FloatTensor<Self>) -> [FloatTensor<Self>; 4] {
        batch_norm::backward::<Self>(kept, grad)
    }

    /// The largest number of each window, `[b, c, h, w]` to `[b, c, h', w']`; see [`PoolOptions::output_size`].
    fn max_pool(x: FloatTensor<Self>, options: PoolOptions) -> FloatTensor<Self> {
        max_pool::forward::<Self>(x, options)
    }

    /// Gradient of [`max_pool`](Self::max_pool), given its output. Of equal numbers in a window the first gets it.
    fn max_pool_backward(
        x: FloatTensor<Self>,
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: PoolOptions,
    ) -> FloatTensor<Self> {
        max_pool::backward::<Self>(x, output, grad, options)
    }

    /// Softmax over the last axis of `scale * scores`, `[b, n_head, t, s]`, of the keys that are visible; the others' weights
    /// are 0.
    ///
    /// A row that is minus infinity everywhere, a query from which all is hidden, becomes zeros, and its gradient too.
    fn attention_weights(scores: FloatTensor<Self>, scale: f64, visible: KeyRanges<Self>) -> FloatTensor<Self> {
        rows::attention_weights::<Self>(scores, scale, visible)
    }

    /// Gradient of [`attention_weights`](Self::attention_weights) with respect to the scores, given its result and that
    /// result's gradient.
    fn attention_weights_backward(
        weights: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        scale: f64,
    ) -> FloatTensor<Self> {
        rows::attention_weights_backward::<Self>(weights, grad, scale)
    }

    /// Each row of `[rows, size]` less its mean, over the root of its variance plus `eps`, scaled and shifted: a layer norm
    /// (Ba et al., 2016). With other [options](RowNormOptions) an RMS norm (Zhang and Sennrich, 2019). The second result,
    /// `[rows, 2]`, has the means and the inverse roots; no gradient flows through it. Rows of 16 bits are normalised in f32,
    /// which is also what the second result then has.
    ///
    /// # Shapes
    /// - `x` and output `[rows, size]`, `weight` and `bias` `[size]`
    fn row_norm(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: Option<FloatTensor<Self>>,
        options: RowNormOptions,
    ) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rows::row_norm::<Self>(x, weight, bias, options)
    }

    /// Gradients of [`row_norm`](Self::row_norm) with respect to the input, the weight and the bias, if they need one, given
    /// its second result.
    fn row_norm_backward(
        inputs: [FloatTensor<Self>; 2],
        stats: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: RowNormOptions,
        needs: [bool; 3],
    ) -> [Option<FloatTensor<Self>>; 3] {
        rows::row_norm_backward::<Self>(inputs, stats, grad, options, needs)
    }

    /// Negative log-likelihood of labels, `[rows]`, each one of the classes, under the softmax of logits,
    /// `[rows, classes]`: `[rows]`; and the logarithms of the sums of exponentials, `[rows]`, through which no gradient
    /// flows. A label that is no class is an error on CPUs, and its row's loss is NaN on GPUs.
    fn nll(logits: FloatTensor<Self>, labels: IntTensor<Self>) -> (FloatTensor<Self>, FloatTensor<Self>) {
        rows::nll::<Self>(logits, labels)
    }

    /// Gradient of [`nll`](Self::nll) with respect to the logits, given its second result.
    fn nll_backward(
        logits: FloatTensor<Self>,
        labels: IntTensor<Self>,
        normaliser: FloatTensor<Self>,
        grad: FloatTensor<Self>,
    ) -> FloatTensor<Self> {
        rows::nll_backward::<Self>(logits, labels, normaliser, grad)
    }

    /// One step of AdamW (Loshchilov and Hutter, 2019): parameters and both moments after it.
    ///
    /// # Shapes
    /// - leaf: parameters, their gradients, and the moments of first and second order, all f32 and of one shape
    /// - numbers `[10]`, f32: how much of the first moment stays, and how much of the gradient comes to it; the same two of
    ///   the second moment; what is added to the root, and below it; what the moments are too small by, having begun at zero;
    ///   the learning rate; the weight decay
    fn adam_step(leaf: [FloatTensor<Self>; 4], numbers: FloatTensor<Self>) -> [FloatTensor<Self>; 3] {
        optimizer::adam_step::<Self>(leaf, numbers)
    }

    /// [`adam_step`](Self::adam_step) of several leaves with the same numbers.
    fn adam_steps(leaves: Vec<[FloatTensor<Self>; 4]>, numbers: FloatTensor<Self>) -> Vec<[FloatTensor<Self>; 3]> {
        leaves.into_iter().map(|leaf| Self::adam_step(leaf, numbers.clone())).collect()
    }

    /// The sum of the squares of all elements, `[1]`; in f32 of numbers of 16 bits.
    fn sum_of_squares(x: FloatTensor<Self>) -> FloatTensor<Self> {
        optimizer::sum_of_squares::<Self>(x)
    }

    /// The sum of the squares of all elements of several tensors of one type, `[1]`, as
    /// [`sum_of_squares`](Self::sum_of_squares). `None` if there are no tensors.
    fn sum_of_all_squares(leaves: Vec<FloatTensor<Self>>) -> Option<FloatTensor<Self>> {
        leaves.into_iter().map(Self::sum_of_squares).reduce(Self::float_add)
    }

    /// Several tensors of any shapes, each times the factor, `[1]`, all of one type.
    fn scale_all(leaves: Vec<FloatTensor<Self>>, factor: FloatTensor<Self>) -> Vec<FloatTensor<Self>> {
        optimizer::scale_all::<Self>(leaves, factor)
    }

    /// Starts to read a tensor of any shape, so that [`PendingRead::wait`] waits for the operations before this call and not
    /// for those after it. Other backends than the fusing ones read when they wait.
    fn start_read(x: FloatTensor<Self>) -> PendingRead {
        let x = flat::<Self>(x);
        PendingRead::new(move || x.try_into_data())
    }

    /// Rows of a table, `[symbols, size]`, one for each of the symbols, `[b, t]`: `[b, t, size]`.
    fn embed(table: FloatTensor<Self>, symbols: IntTensor<Self>) -> FloatTensor<Self> {
        <Self as ModuleOps<Self>>::embedding(table, symbols)
    }

    /// The gradient of the table of [`embed`](Self::embed), given that of the rows, `[b, t, size]`, added to `sum`, `[symbols,
    /// size]`: what else the table was used for.
    fn embed_backward(sum: FloatTensor<Self>, symbols: IntTensor<Self>, grad: FloatTensor<Self>) -> FloatTensor<Self> {
        embed::add::<Self>(sum, symbols, grad)
    }

    /// Equal parts of a tensor along an axis, whose size `count` divides. Their gradients are put together in one pass, where
    /// those of slices would be as many tensors of the whole size.
    fn chunk(x: FloatTensor<Self>, count: usize, axis: usize) -> Vec<FloatTensor<Self>> {
        chunk::parts::<Self>(x, count, axis)
    }

    /// 32 random bits for each element, u32: those of `jax.random.bits(key)`, the same on every backend. `key` has the two
    /// words of a random key, the high one first.
    fn random_bits(key: [u32; 2], shape: Shape, device: &Self::Device) -> IntTensor<Self> {
        random::bits_from_host::<Self>(key, shape, device)
    }

    /// [`Dropout`] of all elements, by the random bits of their indices in row-major order. Any shape; the shape stays.
    ///
    /// The same dropout of a gradient is the backward pass, which keeps nothing.
    fn dropout(x: FloatTensor<Self>, dropout: Dropout) -> FloatTensor<Self> {
        random::dropout_by_product::<Self>(x, dropout)
    }

    /// Whether [`sample`](Self::sample) draws tokens.
    const SAMPLES: bool = false;

    /// A token for each row of logits, drawn on the device; see [`sample`]. `None` where it is left to the host, whose memory
    /// the logits are in anyway.
    fn sample(
        _logits: FloatTensor<Self>,
        _occurred: Option<IntTensor<Self>>,
        _options: SampleOptions,
    ) -> Option<SampledPrimitives<Self>> {
        None
    }

    /// The reverse of [`chunk`](Self::chunk): parts of one shape and type, one after the other along an axis.
    fn unchunk(parts: Vec<FloatTensor<Self>>, axis: usize) -> FloatTensor<Self> {
        Self::float_cat(parts, axis)
    }

    /// A layer of LSTM (Hochreiter and Schmidhuber, 1997), in one direction, over a packed batch.
    ///
    /// With `b` sequences of together `rows` steps, `i` inputs and `n` hidden units, gates in the order input, forget,
    /// cell, output:
    /// - inputs: `x` `[rows, i]`, `w_ih` `[4 n, i]`, `w_hh` `[4 n, n]`, the sum of both biases `[4 n]`, and the states
    ///   before the first step, `h` and `c`, each `[b, n]`
    /// - result `[rows + 2 b, n]`: the hidden states of each row, then `h` and then `c` after each sequence's last step;
    ///   and, if `keep`, what the backward pass needs. The differentiating backend keeps that itself, and gives none.
    fn lstm(inputs: [FloatTensor<Self>; 6], steps: &Steps, keep: bool) -> Recurrence<Self, 2> {
        recurrent::lstm::<Self>(inputs, steps, keep)
    }

    /// Gradients of [`lstm`](Self::lstm) with respect to the inputs that need them, given its results and the gradient of
    /// the first.
    fn lstm_backward(
        inputs: [FloatTensor<Self>; 6],
        kept: [FloatTensor<Self>; 2],
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        steps: &Steps,
        needs: [bool; 6],
    ) -> [Option<FloatTensor<Self>>; 6] {
        recurrent::lstm_backward::<Self>(inputs, kept, output, grad, steps, needs)
    }

    /// A layer of GRU (Cho et al., 2014), in one direction, over a packed batch; as [`lstm`](Self::lstm), with gates in the
    /// order reset, update, new.
    ///
    /// - inputs: `x` `[rows, i]`, `w_ih` `[3 n, i]`, `w_hh` `[3 n, n]`, the bias `[4 n]`, and `h` `[b, n]`. The bias is the
    ///   sum of both for the reset and update gates, and for the new gate that of the input followed by that of the state
    /// - result `[rows + b, n]`: the hidden states of each row, then those after each sequence's last step
    fn gru(inputs: [FloatTensor<Self>; 5], reset: GruReset, steps: &Steps, keep: bool) -> Recurrence<Self, 2> {
        recurrent::gru::<Self>(inputs, reset, steps, keep)
    }

    /// Gradients of [`gru`](Self::gru); see [`lstm_backward`](Self::lstm_backward).
    fn gru_backward(
        inputs: [FloatTensor<Self>; 5],
        kept: [FloatTensor<Self>; 2],
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        reset: GruReset,
        steps: &Steps,
        needs: [bool; 5],
    ) -> [Option<FloatTensor<Self>>; 5] {
        recurrent::gru_backward::<Self>(inputs, kept, output, grad, reset, steps, needs)
    }

    /// A plain recurrent layer, `h' = f(W_ih x + W_hh h + b)` (Elman, 1990), in one direction, over a packed batch; as
    /// [`lstm`](Self::lstm).
    ///
    /// - inputs: `x` `[rows, i]`, `w_ih` `[n, i]`, `w_hh` `[n, n]`, the sum of both biases `[n]`, and `h` `[b, n]`
    /// - result `[rows + b, n]`: the hidden states of each row, then those after each sequence's last step
    fn rnn(inputs: [FloatTensor<Self>; 5], activation: RnnActivation, steps: &Steps) -> FloatTensor<Self> {
        recurrent::rnn::<Self>(inputs, activation, steps)
    }

    /// Gradients of [`rnn`](Self::rnn); see [`lstm_backward`](Self::lstm_backward).
    fn rnn_backward(
        inputs: [FloatTensor<Self>; 5],
        output: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        activation: RnnActivation,
        steps: &Steps,
        needs: [bool; 5],
    ) -> [Option<FloatTensor<Self>>; 5] {
        recurrent::rnn_backward::<Self>(inputs, output, grad, activation, steps, needs)
    }
}
