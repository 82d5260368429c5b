//! Operations as functions of tensors: what layers and models call. Each checks the shapes of its inputs once.

use burn::tensor::{Bool, FloatDType, Int, Tensor};
use grove_communicator::Communicator;
use grove_kernels::{Dropout, Quantization, random::Distribution};
use std::ops::Range;

use super::{
    AdamStep, AllReduce, AnyTensor, Attention, Backend, BatchNorm, Chunk, Concat, Conv2dFused, Conv2dOptions,
    Dequantize, DynamicUpdateSlice, Embedding, Gelu, GeluApproximation, Gru, GruReset, KeyRanges, Linear, Lstm,
    MaskedSoftmax, Matmul, Nll, Operation, PendingRead, Pool2dOptions, QuantizedLinear, RandomBits, RandomFoldIn,
    RandomKeyData, RandomSamples, Ranks, Rnn, RnnActivation, Rope, RowNorm, Scale, Selu, Steps, SumOfSquares, SwiGlu,
    UpdateCache, Values, float,
};

/// Checks the shapes of an operation's inputs, runs it and gives its outputs.
///
/// # Panics
/// If the shapes do not fit, with the operation, the shapes and the rule.
#[track_caller]
pub fn apply<B: Backend>(operation: impl Into<Operation>, inputs: Values<B>) -> Values<B> {
    let operation = operation.into();
    let shapes = operation.shapes(&inputs.shapes());
    let outputs = B::run(&operation, inputs, &[]).outputs;
    debug_assert!(outputs.have(&shapes), "{operation:?} gave {:?}, not {shapes:?}", outputs.shapes());
    outputs
}

/// The sums of floating-point tensors over all ranks; see [`AllReduce`]. `what` they are is part of an error's sentence.
pub fn all_reduce<B: Backend>(inputs: Vec<AnyTensor<B>>, what: &str, comm: &Communicator) -> Vec<AnyTensor<B>> {
    if !comm.is_shared() || inputs.is_empty() {
        return inputs;
    }
    let operation = AllReduce { ranks: Ranks::of(comm), what: what.into(), wide: false };
    apply(operation, inputs.into_iter().map(Some).collect()).into_values().into_iter().flatten().collect()
}

/// The sum of an array over all ranks, of any shape, added in f64 where the host adds; see [`AllReduce`]. A gradient flows
/// through it.
pub fn all_reduce_wide<B: Backend, const D: usize>(x: Tensor<B, D>, what: &str, comm: &Communicator) -> Tensor<B, D> {
    if !comm.is_shared() {
        return x;
    }
    let operation = AllReduce { ranks: Ranks::of(comm), what: what.into(), wide: true };
    apply(operation, Values::default().with(x)).take_tensor(0)
}

/// The product of matrices, `[.., m, k]` and `[.., k, n]`; see [`Matmul`].
pub(crate) fn matmul<B: Backend, const D: usize>(lhs: Tensor<B, D>, rhs: Tensor<B, D>) -> Tensor<B, D> {
    apply(Matmul, Values::default().with(lhs).with(rhs)).take_tensor(0)
}

/// `x W + b`, of `[.., in]`, weight `[in, out]` and bias `[out]`; see [`Linear`].
pub fn linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    apply(Linear, Values::default().with(x).with(weight).with_optional(bias)).take_tensor(0)
}

/// `x W^T`, of `[.., in]` and a quantized matrix, blocks of u8 `[out, bytes of a row]`; see [`QuantizedLinear`].
pub fn quantized_linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    blocks: Tensor<B, 2, Int>,
    format: Quantization,
) -> Tensor<B, D> {
    apply(QuantizedLinear { format }, Values::default().with(x).with(blocks)).take_tensor(0)
}

/// A quantized matrix, blocks of u8 `[rows, bytes of a row]`, in f32 `[rows, columns]`; see [`Dequantize`].
pub fn dequantize<B: Backend>(blocks: Tensor<B, 2, Int>, format: Quantization) -> Tensor<B, 2> {
    apply(Dequantize { format }, Values::default().with(blocks)).take_tensor(0)
}

/// Rotary position embedding of `[b, t, n_head, head_dim]` by angles `[b or 1, t, head_dim / 2]`; see [`Rope`].
pub fn apply_rope<B: Backend>(
    x: Tensor<B, 4>,
    cos: Tensor<B, 3>,
    sin: Tensor<B, 3>,
    interleaved: bool,
) -> Tensor<B, 4> {
    apply(Rope { interleaved }, Values::default().with(x).with(cos).with(sin)).take_tensor(0)
}

/// `silu(gate) * up`, `[b, t, size]`; see [`SwiGlu`].
pub fn swiglu<B: Backend>(gate: Tensor<B, 3>, up: Tensor<B, 3>) -> Tensor<B, 3> {
    apply(SwiGlu, Values::default().with(gate).with(up)).take_tensor(0)
}

/// Gaussian error linear unit, of any shape; see [`Gelu`].
pub fn gelu<B: Backend, const D: usize>(x: Tensor<B, D>, approximate: GeluApproximation) -> Tensor<B, D> {
    apply(Gelu { approximate }, Values::default().with(x)).take_tensor(0)
}

/// Scaled exponential linear unit, of any shape; see [`Selu`].
pub fn selu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    apply(Selu, Values::default().with(x)).take_tensor(0)
}

/// Parameters of [`attention`].
#[derive(Clone, Debug)]
pub struct AttentionOptions<B: Backend> {
    /// Factor of the scores.
    pub scale: f64,
    /// The keys that each query sees.
    pub visible: KeyRanges<B>,
    /// True where a query must not look besides, `[b or 1, n_head or 1, t or 1, s]`. A query from which all keys are hidden
    /// gathers zeros.
    pub mask: Option<Tensor<B, 4, Bool>>,
    /// Added to the scaled scores, `[b or 1, n_head or 1, t or 1, s]`: a relative position bias, ALiBi, a mask of numbers. It
    /// gets a gradient. With one, every backend runs the composition and writes the scores down.
    pub bias: Option<Tensor<B, 4>>,
    /// Dropout of the weights, `[b, n_head, t, s]`.
    pub dropout: Option<Dropout>,
}

impl<B: Backend> AttentionOptions<B> {
    /// Attention with nothing but a range of keys for each query.
    pub fn new(scale: f64, visible: KeyRanges<B>) -> Self {
        Self { scale, visible, mask: None, bias: None, dropout: None }
    }
}

/// `softmax(q k^T * scale + bias) v`, of queries `[b, n_head, t, head_dim]` and keys and values `[b, n_kv_head, s, head_dim]`; see
/// [`Attention`].
pub fn attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    options: AttentionOptions<B>,
) -> Tensor<B, 4> {
    let AttentionOptions { scale, visible: KeyRanges { causal, window, padding, lengths }, mask, bias, dropout } =
        options;
    // A hidden score is minus infinity before it is scaled, which 0 would make NaN.
    let (q, scale) = if scale == 0.0 { (q.mul_scalar(0.0), 1.0) } else { (q, scale) };
    let inputs = Values::default().with(q).with(k).with(v);
    let inputs = inputs.with_optional(padding).with_optional(lengths).with_optional(mask).with_optional(bias);
    apply(Attention { scale, causal, window, dropout }, inputs).take_tensor(0)
}

/// Softmax of `scale * scores`, `[b, n_head, t, s]`, over the keys that are visible; see [`MaskedSoftmax`].
pub fn masked_softmax<B: Backend>(scores: Tensor<B, 4>, scale: f64, visible: &KeyRanges<B>) -> Tensor<B, 4> {
    let KeyRanges { causal, window, padding, lengths } = visible.clone();
    let inputs = Values::default().with(scores).with_optional(padding).with_optional(lengths);
    apply(MaskedSoftmax { scale, causal, window }, inputs).take_tensor(0)
}

/// Writes new keys and values into buffers from position `at` on. Gives the buffers, and of each the positions that are
/// `seen`; see [`UpdateCache`].
pub fn update_cache<B: Backend>(
    [keys, values]: [Tensor<B, 4>; 2],
    [new_keys, new_values]: [Tensor<B, 4>; 2],
    at: usize,
    seen: Range<usize>,
) -> [[Tensor<B, 4>; 2]; 2] {
    let inputs = Values::default().with(keys).with(values).with(new_keys).with(new_values);
    let mut outputs = apply(UpdateCache { at, seen }, inputs);
    [[0, 1], [2, 3]].map(|pair| pair.map(|i| outputs.take_tensor(i)))
}

/// An array with a part along an axis replaced, at a position `[1]` that is an array; see [`DynamicUpdateSlice`].
pub fn dynamic_update_slice<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    part: Tensor<B, D>,
    position: Tensor<B, 1, Int>,
    axis: usize,
) -> Tensor<B, D> {
    apply(DynamicUpdateSlice { axis }, Values::default().with(x).with(part).with(position)).take_tensor(0)
}

/// Convolution of images `[b, in, h, w]` with a weight `[out, in / groups, kh, kw]`; see [`Conv2dOptions`].
pub fn conv2d<B: Backend>(x: Tensor<B, 4>, weight: Tensor<B, 4>, options: Conv2dOptions) -> Tensor<B, 4> {
    apply(options, Values::default().with(x).with(weight)).take_tensor(0)
}

/// Scale, shift, residual and ReLU behind a convolution, in this order.
#[derive(Clone, Debug)]
pub struct Epilogue<B: Backend> {
    /// Factor of each channel, `[out]`.
    pub scale: Tensor<B, 1>,
    /// Added to each channel, `[out]`.
    pub shift: Tensor<B, 1>,
    /// Added then, of the output's shape.
    pub residual: Option<Tensor<B, 4>>,
    /// True if a ReLU comes last.
    pub relu: bool,
}

/// [`conv2d`] and its epilogue in one pass, `relu(scale * conv + shift + residual)`; see [`Conv2dFused`].
pub fn conv2d_fused<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 4>,
    epilogue: Epilogue<B>,
    conv: Conv2dOptions,
) -> Tensor<B, 4> {
    let Epilogue { scale, shift, residual, relu } = epilogue;
    let inputs = Values::default().with(x).with(weight).with(scale).with(shift).with_optional(residual);
    apply(Conv2dFused { conv, relu }, inputs).take_tensor(0)
}

/// Result of [`batch_norm`].
#[derive(Clone, Debug)]
pub struct BatchNormed<B: Backend> {
    /// As the input, `[b, c, h, w]`.
    pub output: Tensor<B, 4>,
    /// Of each channel, `[c]`, in f32 where the batch has 16 bits. No gradient flows there.
    pub mean: Tensor<B, 1>,
    /// Mean squared distance from the mean of each channel, `[c]`; otherwise as the mean.
    pub variance: Tensor<B, 1>,
}

/// `relu(weight * normal + bias + residual)` of images `[b, c, h, w]`, normalised by their own statistics; see
/// [`BatchNorm`].
pub fn batch_norm<B: Backend>(
    x: Tensor<B, 4>,
    weight: Tensor<B, 1>,
    bias: Tensor<B, 1>,
    residual: Option<Tensor<B, 4>>,
    options: BatchNorm,
) -> BatchNormed<B> {
    let inputs = Values::default().with(x).with(weight).with(bias).with_optional(residual);
    let mut outputs = apply(options, inputs);
    BatchNormed { output: outputs.take_tensor(0), mean: outputs.take_tensor(1), variance: outputs.take_tensor(2) }
}

/// Largest value of each window of images `[b, c, h, w]`; see [`Pool2dOptions`].
pub fn max_pool2d<B: Backend>(x: Tensor<B, 4>, options: Pool2dOptions) -> Tensor<B, 4> {
    apply(options, Values::default().with(x)).take_tensor(0)
}

/// Layer norm or RMS norm of rows `[rows, size]`, and their means and inverse roots `[rows, 2]`; see [`RowNorm`].
pub fn row_norm<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 1>,
    bias: Option<Tensor<B, 1>>,
    options: RowNorm,
) -> (Tensor<B, 2>, Tensor<B, 2>) {
    let mut outputs = apply(options, Values::default().with(x).with(weight).with_optional(bias));
    (outputs.take_tensor(0), outputs.take_tensor(1))
}

/// Negative log-likelihood of labels `[rows]` under the softmax of logits `[rows, classes]`, and the logarithms of the sums
/// of exponentials; see [`Nll`].
pub fn nll<B: Backend>(logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> (Tensor<B, 1>, Tensor<B, 1>) {
    let mut outputs = apply(Nll, Values::default().with(logits).with(labels));
    (outputs.take_tensor(0), outputs.take_tensor(1))
}

/// Rows of a table `[rows, size]` by indices `[b, t]`; see [`Embedding`].
pub fn embedding<B: Backend>(table: Tensor<B, 2>, indices: Tensor<B, 2, Int>) -> Tensor<B, 3> {
    apply(Embedding, Values::default().with(table).with(indices)).take_tensor(0)
}

/// Equal parts along an axis; see [`Chunk`].
pub fn chunk<B: Backend, const D: usize>(x: Tensor<B, D>, count: usize, axis: usize) -> Vec<Tensor<B, D>> {
    let mut parts = apply(Chunk { count, axis }, Values::default().with(x));
    (0..count).map(|i| parts.take_tensor(i)).collect()
}

/// Parts of one shape, joined along an axis; see [`Concat`].
pub fn concat<B: Backend, const D: usize>(parts: Vec<Tensor<B, D>>, axis: usize) -> Tensor<B, D> {
    apply(Concat { axis }, parts.into_iter().map(|part| Some(part.into())).collect()).take_tensor(0)
}

/// 32 random bits for each element, u32; see [`RandomBits`].
pub fn random_bits<B: Backend, const D: usize>(
    key: [u32; 2],
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D, Int> {
    Tensor::from_primitive(apply::<B>(RandomBits { key, shape: shape.into() }, Values::on(device)).take_int(0))
}

/// The two words of a random key; see [`RandomKeyData`].
pub fn random_key_data<B: Backend>(key: [u32; 2], device: &B::Device) -> Tensor<B, 1, Int> {
    Tensor::from_primitive(apply::<B>(RandomKeyData { key }, Values::on(device)).take_int(0))
}

/// The words of a key for each of several integers, derived from one key `[2]` or as many `[n, 2]`; see [`RandomFoldIn`].
///
/// # Panics
/// If the shapes do not fit.
#[track_caller]
pub fn random_fold_in<B: Backend, const D: usize>(
    key: Tensor<B, D, Int>,
    data: Tensor<B, 1, Int>,
) -> Tensor<B, 2, Int> {
    Tensor::from_primitive(apply::<B>(RandomFoldIn, Values::default().with(key).with(data)).take_int(0))
}

/// Samples of a distribution of real numbers; see [`RandomSamples`].
///
/// # Panics
/// If the distribution is one of integers or truth values.
pub fn random_floats<B: Backend, const D: usize>(
    key: [u32; 2],
    distribution: Distribution,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D> {
    random_samples(key, distribution, shape, device).take_tensor(0)
}

/// Samples of a distribution of integers; see [`RandomSamples`].
///
/// # Panics
/// If the distribution is another one.
pub fn random_integers<B: Backend, const D: usize>(
    key: [u32; 2],
    distribution: Distribution,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D, Int> {
    Tensor::from_primitive(random_samples::<B, D>(key, distribution, shape, device).take_int(0))
}

/// Samples of a distribution of truth values; see [`RandomSamples`].
///
/// # Panics
/// If the distribution is another one.
pub fn random_booleans<B: Backend, const D: usize>(
    key: [u32; 2],
    distribution: Distribution,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D, Bool> {
    Tensor::from_primitive(random_samples::<B, D>(key, distribution, shape, device).take_bool(0))
}

fn random_samples<B: Backend, const D: usize>(
    key: [u32; 2],
    distribution: Distribution,
    shape: [usize; D],
    device: &B::Device,
) -> Values<B> {
    apply::<B>(RandomSamples { key, distribution, shape: shape.into() }, Values::on(device))
}

/// [`Dropout`] of all elements, of any shape, by the random bits of their indices in row-major order.
pub fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, dropout: Dropout) -> Tensor<B, D> {
    apply(dropout, Values::default().with(x)).take_tensor(0)
}

/// Inputs of a recurrent layer before its states.
#[derive(Clone, Debug)]
pub struct RecurrentInputs<B: Backend> {
    /// Packed rows, `[rows, i]`.
    pub x: Tensor<B, 2>,
    /// `[gates n, i]`.
    pub w_ih: Tensor<B, 2>,
    /// `[gates n, n]`.
    pub w_hh: Tensor<B, 2>,
    /// As the layer describes it.
    pub bias: Tensor<B, 1>,
}

impl<B: Backend> RecurrentInputs<B> {
    fn values(self, states: impl IntoIterator<Item = Tensor<B, 2>>) -> Values<B> {
        let inputs = Values::default().with(self.x).with(self.w_ih).with(self.w_hh).with(self.bias);
        states.into_iter().fold(inputs, Values::with)
    }
}

/// Hidden states of a layer of LSTM, `[rows + 2 b, n]`; see [`Lstm`].
pub fn lstm<B: Backend>(inputs: RecurrentInputs<B>, states: [Tensor<B, 2>; 2], steps: &Steps) -> Tensor<B, 2> {
    apply(Lstm { steps: steps.clone() }, inputs.values(states)).take_tensor(0)
}

/// Hidden states of a layer of GRU, `[rows + b, n]`; see [`Gru`].
pub fn gru<B: Backend>(
    inputs: RecurrentInputs<B>,
    state: Tensor<B, 2>,
    reset: GruReset,
    steps: &Steps,
) -> Tensor<B, 2> {
    apply(Gru { reset, steps: steps.clone() }, inputs.values([state])).take_tensor(0)
}

/// Hidden states of a plain recurrent layer, `[rows + b, n]`; see [`Rnn`].
pub fn rnn<B: Backend>(
    inputs: RecurrentInputs<B>,
    state: Tensor<B, 2>,
    activation: RnnActivation,
    steps: &Steps,
) -> Tensor<B, 2> {
    apply(Rnn { activation, steps: steps.clone() }, inputs.values([state])).take_tensor(0)
}

/// One step of AdamW for leaves of any rank, each with its gradient and first and second moments, given 10 hyperparameters;
/// see [`AdamStep`]. Gives parameters and moments.
pub fn adam_step<B: Backend>(leaves: Vec<[AnyTensor<B>; 4]>, hyperparameters: Tensor<B, 1>) -> Vec<[AnyTensor<B>; 3]> {
    let count = leaves.len();
    let inputs: Values<B> = leaves.into_iter().flatten().map(Some).collect();
    let mut outputs = apply(AdamStep, inputs.with(hyperparameters));
    (0..count).map(|leaf| [0, 1, 2].map(|i| AnyTensor::Float(outputs.take_float(3 * leaf + i)))).collect()
}

/// Sum of the squares of all elements of tensors of any rank, `[1]`; `None` without tensors. See [`SumOfSquares`].
pub fn sum_of_squares<B: Backend>(tensors: Vec<AnyTensor<B>>) -> Option<Tensor<B, 1>> {
    (!tensors.is_empty()).then(|| apply::<B>(SumOfSquares, tensors.into_iter().map(Some).collect()).take_tensor(0))
}

/// Tensors of any rank, each times a factor `[1]`; see [`Scale`].
pub fn scale<B: Backend>(tensors: Vec<AnyTensor<B>>, factor: Tensor<B, 1>) -> Vec<AnyTensor<B>> {
    let inputs = tensors.into_iter().fold(Values::default().with(factor), Values::with);
    apply(Scale, inputs).into_floats().into_iter().map(AnyTensor::Float).collect()
}

/// Integers as a floating-point type, which [`Tensor::float`] would take from the device.
pub fn int_into_float<B: Backend, const D: usize>(x: Tensor<B, D, Int>, dtype: FloatDType) -> Tensor<B, D> {
    float(B::int_into_float(x.into_primitive(), dtype))
}

/// Starts to read a tensor; see [`Backend::start_read`].
pub fn start_read<B: Backend, const D: usize>(x: Tensor<B, D>) -> PendingRead {
    B::start_read(x.into_primitive().tensor())
}
