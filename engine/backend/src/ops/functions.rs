//! Operations as functions of tensors, for layers and models. Each function checks the shapes of its inputs once.

use burn::tensor::{Bool, FloatDType, Int, Tensor};
use grove_communicator::Communicator;
use grove_kernels::{Dropout, Quantization};
use std::ops::Range;

use super::{
    AdamStep, AllReduce, AnyTensor, Attention, Backend, BatchNorm, Chunk, Concat, Conv2dFused, Conv2dOptions,
    Dequantize, DynamicUpdateSlice, Embedding, Gelu, GeluApproximation, Gru, GruReset, InputPrecision, KeyRanges,
    Linear, Lstm, MaskedSoftmax, Matmul, Nll, Operation, PendingRead, Pool2dOptions, QuantizedLinear, Ranks, Rnn,
    RnnActivation, Rope, RowNorm, Scale, Selu, Steps, SumOfSquares, SwiGlu, UpdateCache, Values, float,
};

/// Checks the shapes of an operation's inputs, runs the operation and returns its outputs.
///
/// # Panics
/// If the shapes do not match, with the operation, the shapes and the rule.
#[track_caller]
pub fn apply<B: Backend>(operation: impl Into<Operation>, inputs: Values<B>) -> Values<B> {
    let operation = operation.into();
    let shapes = operation.shapes(&inputs.shapes());
    let outputs = B::run(&operation, inputs, &[]).outputs;
    debug_assert!(outputs.have(&shapes), "{operation:?} gave {:?}, not {shapes:?}", outputs.shapes());
    outputs
}

/// Sums floating-point tensors over all ranks; see [`AllReduce`]. `what` describes the tensors in error messages.
#[track_caller]
pub fn all_reduce<B: Backend>(inputs: Vec<AnyTensor<B>>, what: &str, comm: &Communicator) -> Vec<AnyTensor<B>> {
    if !comm.is_shared() || inputs.is_empty() {
        return inputs;
    }
    let operation = AllReduce { ranks: Ranks::of(comm), what: what.into(), wide: false };
    apply(operation, inputs.into_iter().map(Some).collect()).into_values().into_iter().flatten().collect()
}

/// Sums an array of any shape over all ranks, in f64 if the host sums; see [`AllReduce`]. Differentiable.
#[track_caller]
pub fn all_reduce_wide<B: Backend, const D: usize>(x: Tensor<B, D>, what: &str, comm: &Communicator) -> Tensor<B, D> {
    if !comm.is_shared() {
        return x;
    }
    let operation = AllReduce { ranks: Ranks::of(comm), what: what.into(), wide: true };
    apply(operation, Values::default().with(x)).take_tensor(0)
}

/// Multiplies matrices, `[.., m, k]` and `[.., k, n]`; see [`Matmul`].
#[track_caller]
pub(crate) fn matmul<B: Backend, const D: usize>(lhs: Tensor<B, D>, rhs: Tensor<B, D>) -> Tensor<B, D> {
    apply(Matmul, Values::default().with(lhs).with(rhs)).take_tensor(0)
}

/// Computes `x W + b` for `x` `[.., in]`, weight `[in, out]` and bias `[out]`; see [`Linear`].
#[track_caller]
pub fn linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    weight: Tensor<B, 2>,
    bias: Option<Tensor<B, 1>>,
) -> Tensor<B, D> {
    apply(Linear, Values::default().with(x).with(weight).with_optional(bias)).take_tensor(0)
}

/// Computes `x W^T` for `x` `[.., in]`, rounded or not, and a quantized matrix, u8 blocks `[out, bytes per row]`; see
/// [`QuantizedLinear`].
#[track_caller]
pub fn quantized_linear<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    blocks: Tensor<B, 2, Int>,
    format: Quantization,
    precision: InputPrecision,
) -> Tensor<B, D> {
    apply(QuantizedLinear { format, precision }, Values::default().with(x).with(blocks)).take_tensor(0)
}

/// Dequantizes a matrix, u8 blocks `[rows, bytes per row]`, to f32 `[rows, columns]`; see [`Dequantize`].
#[track_caller]
pub fn dequantize<B: Backend>(blocks: Tensor<B, 2, Int>, format: Quantization) -> Tensor<B, 2> {
    apply(Dequantize { format }, Values::default().with(blocks)).take_tensor(0)
}

/// Applies rotary position embedding to `[b, t, n_head, head_dim]`, with angles `[b or 1, t, head_dim / 2]`; see [`Rope`].
#[track_caller]
pub fn apply_rope<B: Backend>(
    x: Tensor<B, 4>,
    cos: Tensor<B, 3>,
    sin: Tensor<B, 3>,
    interleaved: bool,
) -> Tensor<B, 4> {
    apply(Rope { interleaved }, Values::default().with(x).with(cos).with(sin)).take_tensor(0)
}

/// Computes `silu(gate) * up`, `[b, t, size]`; see [`SwiGlu`].
#[track_caller]
pub fn swiglu<B: Backend>(gate: Tensor<B, 3>, up: Tensor<B, 3>) -> Tensor<B, 3> {
    apply(SwiGlu, Values::default().with(gate).with(up)).take_tensor(0)
}

/// Applies the Gaussian error linear unit. Any shape; see [`Gelu`].
#[track_caller]
pub fn gelu<B: Backend, const D: usize>(x: Tensor<B, D>, approximate: GeluApproximation) -> Tensor<B, D> {
    apply(Gelu { approximate }, Values::default().with(x)).take_tensor(0)
}

/// Applies the scaled exponential linear unit. Any shape; see [`Selu`].
#[track_caller]
pub fn selu<B: Backend, const D: usize>(x: Tensor<B, D>) -> Tensor<B, D> {
    apply(Selu, Values::default().with(x)).take_tensor(0)
}

/// Options of [`attention`].
#[derive(Clone, Debug)]
pub struct AttentionOptions<B: Backend> {
    /// Scale of the scores.
    pub scale: f64,
    /// Keys that each query attends to.
    pub visible: KeyRanges<B>,
    /// Additional mask, true at masked scores, `[b or 1, n_head or 1, t or 1, s]`. A fully masked query returns zeros.
    pub mask: Option<Tensor<B, 4, Bool>>,
    /// Bias of the scaled scores, `[b or 1, n_head or 1, t or 1, s]`: a relative position bias, ALiBi, an additive mask. It
    /// gets a gradient. A bias disables the fused kernels: every backend materialises the score matrix.
    pub bias: Option<Tensor<B, 4>>,
    /// Dropout of the attention weights, `[b, n_head, t, s]`.
    pub dropout: Option<Dropout>,
}

impl<B: Backend> AttentionOptions<B> {
    /// Creates options with a scale and key ranges, without a mask, bias or dropout.
    #[track_caller]
    pub fn new(scale: f64, visible: KeyRanges<B>) -> Self {
        Self { scale, visible, mask: None, bias: None, dropout: None }
    }
}

/// Computes `softmax(q k^T * scale + bias) v` for queries `[b, n_head, t, head_dim]` and keys and values
/// `[b, n_kv_head, s, head_dim]`; see [`Attention`].
#[track_caller]
pub fn attention<B: Backend>(
    q: Tensor<B, 4>,
    k: Tensor<B, 4>,
    v: Tensor<B, 4>,
    options: AttentionOptions<B>,
) -> Tensor<B, 4> {
    let AttentionOptions { scale, visible: KeyRanges { causal, window, padding, lengths }, mask, bias, dropout } =
        options;
    // Masked scores are set to minus infinity before scaling; a scale of 0 would turn them into NaN.
    let (q, scale) = if scale == 0.0 { (q.mul_scalar(0.0), 1.0) } else { (q, scale) };
    let inputs = Values::default().with(q).with(k).with(v);
    let inputs = inputs.with_optional(padding).with_optional(lengths).with_optional(mask).with_optional(bias);
    apply(Attention { scale, causal, window, dropout }, inputs).take_tensor(0)
}

/// Computes the softmax of `scale * scores`, `[b, n_head, t, s]`, over the visible keys; see [`MaskedSoftmax`].
#[track_caller]
pub fn masked_softmax<B: Backend>(scores: Tensor<B, 4>, scale: f64, visible: &KeyRanges<B>) -> Tensor<B, 4> {
    let KeyRanges { causal, window, padding, lengths } = visible.clone();
    let inputs = Values::default().with(scores).with_optional(padding).with_optional(lengths);
    apply(MaskedSoftmax { scale, causal, window }, inputs).take_tensor(0)
}

/// Writes new keys and values into buffers from position `at` on. Returns the buffers and their slices `seen`; see
/// [`UpdateCache`].
#[track_caller]
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

/// Replaces a slice along an axis, at a position `[1]` given as an array; see [`DynamicUpdateSlice`].
#[track_caller]
pub fn dynamic_update_slice<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    part: Tensor<B, D>,
    position: Tensor<B, 1, Int>,
    axis: usize,
) -> Tensor<B, D> {
    apply(DynamicUpdateSlice { axis }, Values::default().with(x).with(part).with(position)).take_tensor(0)
}

/// Convolves images `[b, in, h, w]` with a weight `[out, in / groups, kh, kw]`; see [`Conv2dOptions`].
#[track_caller]
pub fn conv2d<B: Backend>(x: Tensor<B, 4>, weight: Tensor<B, 4>, options: Conv2dOptions) -> Tensor<B, 4> {
    apply(options, Values::default().with(x).with(weight)).take_tensor(0)
}

/// Epilogue of a convolution: scale, shift, residual and ReLU, applied in this order.
#[derive(Clone, Debug)]
pub struct Epilogue<B: Backend> {
    /// Scale of each channel, `[out]`.
    pub scale: Tensor<B, 1>,
    /// Shift of each channel, `[out]`.
    pub shift: Tensor<B, 1>,
    /// Residual, added after the shift, with the output's shape.
    pub residual: Option<Tensor<B, 4>>,
    /// If true, a ReLU is applied last.
    pub relu: bool,
}

/// Computes [`conv2d`] and its epilogue in one pass, `relu(scale * conv + shift + residual)`; see [`Conv2dFused`].
#[track_caller]
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
    /// Output, `[b, c, h, w]`.
    pub output: Tensor<B, 4>,
    /// Mean of each channel, `[c]`, in f32 for 16-bit batches. It gets no gradient.
    pub mean: Tensor<B, 1>,
    /// Biased variance of each channel, `[c]`, in f32 for 16-bit batches. It gets no gradient.
    pub variance: Tensor<B, 1>,
}

/// Computes `relu(weight * normal + bias + residual)` for images `[b, c, h, w]`, normalised with the batch statistics; see
/// [`BatchNorm`].
#[track_caller]
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

/// Computes the maximum of each window of images `[b, c, h, w]`; see [`Pool2dOptions`].
#[track_caller]
pub fn max_pool2d<B: Backend>(x: Tensor<B, 4>, options: Pool2dOptions) -> Tensor<B, 4> {
    apply(options, Values::default().with(x)).take_tensor(0)
}

/// Applies layer norm or RMS norm to rows `[rows, size]`. Also returns their means and inverse roots `[rows, 2]`; see
/// [`RowNorm`].
#[track_caller]
pub fn row_norm<B: Backend>(
    x: Tensor<B, 2>,
    weight: Tensor<B, 1>,
    bias: Option<Tensor<B, 1>>,
    options: RowNorm,
) -> (Tensor<B, 2>, Tensor<B, 2>) {
    let mut outputs = apply(options, Values::default().with(x).with(weight).with_optional(bias));
    (outputs.take_tensor(0), outputs.take_tensor(1))
}

/// Computes the negative log-likelihood of labels `[rows]` under the softmax of logits `[rows, classes]`, and the rows'
/// log-sum-exp; see [`Nll`].
#[track_caller]
pub fn nll<B: Backend>(logits: Tensor<B, 2>, labels: Tensor<B, 1, Int>) -> (Tensor<B, 1>, Tensor<B, 1>) {
    let mut outputs = apply(Nll, Values::default().with(logits).with(labels));
    (outputs.take_tensor(0), outputs.take_tensor(1))
}

/// Looks up rows of a table `[rows, size]` by indices `[b, t]`; see [`Embedding`].
#[track_caller]
pub fn embedding<B: Backend>(table: Tensor<B, 2>, indices: Tensor<B, 2, Int>) -> Tensor<B, 3> {
    apply(Embedding, Values::default().with(table).with(indices)).take_tensor(0)
}

/// Splits into equal parts along an axis; see [`Chunk`].
#[track_caller]
pub fn chunk<B: Backend, const D: usize>(x: Tensor<B, D>, count: usize, axis: usize) -> Vec<Tensor<B, D>> {
    let mut parts = apply(Chunk { count, axis }, Values::default().with(x));
    (0..count).map(|i| parts.take_tensor(i)).collect()
}

/// Concatenates parts along an axis; see [`Concat`].
#[track_caller]
pub fn concat<B: Backend, const D: usize>(parts: Vec<Tensor<B, D>>, axis: usize) -> Tensor<B, D> {
    apply(Concat { axis }, parts.into_iter().map(|part| Some(part.into())).collect()).take_tensor(0)
}

/// Applies [`Dropout`] to all elements, with the random bits of their row-major indices. Any shape.
#[track_caller]
pub fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, dropout: Dropout) -> Tensor<B, D> {
    apply(dropout, Values::default().with(x)).take_tensor(0)
}

/// Inputs of a recurrent layer, without its states.
#[derive(Clone, Debug)]
pub struct RecurrentInputs<B: Backend> {
    /// Packed rows, `[rows, i]`.
    pub x: Tensor<B, 2>,
    /// Input weights, `[gates n, i]`.
    pub w_ih: Tensor<B, 2>,
    /// State weights, `[gates n, n]`.
    pub w_hh: Tensor<B, 2>,
    /// Bias, with the layout that the layer documents.
    pub bias: Tensor<B, 1>,
}

impl<B: Backend> RecurrentInputs<B> {
    fn values(self, states: impl IntoIterator<Item = Tensor<B, 2>>) -> Values<B> {
        let inputs = Values::default().with(self.x).with(self.w_ih).with(self.w_hh).with(self.bias);
        states.into_iter().fold(inputs, Values::with)
    }
}

/// Runs an LSTM layer and returns its hidden states, `[rows + 2 b, n]`; see [`Lstm`].
#[track_caller]
pub fn lstm<B: Backend>(inputs: RecurrentInputs<B>, states: [Tensor<B, 2>; 2], steps: &Steps) -> Tensor<B, 2> {
    apply(Lstm { steps: steps.clone() }, inputs.values(states)).take_tensor(0)
}

/// Runs a GRU layer and returns its hidden states, `[rows + b, n]`; see [`Gru`].
#[track_caller]
pub fn gru<B: Backend>(
    inputs: RecurrentInputs<B>,
    state: Tensor<B, 2>,
    reset: GruReset,
    steps: &Steps,
) -> Tensor<B, 2> {
    apply(Gru { reset, steps: steps.clone() }, inputs.values([state])).take_tensor(0)
}

/// Runs a plain recurrent layer and returns its hidden states, `[rows + b, n]`; see [`Rnn`].
#[track_caller]
pub fn rnn<B: Backend>(
    inputs: RecurrentInputs<B>,
    state: Tensor<B, 2>,
    activation: RnnActivation,
    steps: &Steps,
) -> Tensor<B, 2> {
    apply(Rnn { activation, steps: steps.clone() }, inputs.values([state])).take_tensor(0)
}

/// Runs one step of AdamW for leaves of any rank. Each leaf is its parameters, gradient, first and second moment. Returns
/// the parameters and moments; see [`AdamStep`] for the 10 hyperparameters.
#[track_caller]
pub fn adam_step<B: Backend>(leaves: Vec<[AnyTensor<B>; 4]>, hyperparameters: Tensor<B, 1>) -> Vec<[AnyTensor<B>; 3]> {
    let count = leaves.len();
    let inputs: Values<B> = leaves.into_iter().flatten().map(Some).collect();
    let mut outputs = apply(AdamStep, inputs.with(hyperparameters));
    (0..count).map(|leaf| [0, 1, 2].map(|i| AnyTensor::Float(outputs.take_float(3 * leaf + i)))).collect()
}

/// Sums the squares of all elements of tensors of any rank, `[1]`; `None` for an empty list. See [`SumOfSquares`].
#[track_caller]
pub fn sum_of_squares<B: Backend>(tensors: Vec<AnyTensor<B>>) -> Option<Tensor<B, 1>> {
    (!tensors.is_empty()).then(|| apply::<B>(SumOfSquares, tensors.into_iter().map(Some).collect()).take_tensor(0))
}

/// Multiplies tensors of any rank by a factor `[1]`; see [`Scale`].
#[track_caller]
pub fn scale<B: Backend>(tensors: Vec<AnyTensor<B>>, factor: Tensor<B, 1>) -> Vec<AnyTensor<B>> {
    let inputs = tensors.into_iter().fold(Values::default().with(factor), Values::with);
    apply(Scale, inputs).into_floats().into_iter().map(AnyTensor::Float).collect()
}

/// Converts integers to a floating-point dtype, unlike [`Tensor::float`], whose dtype is the device's default.
#[track_caller]
pub fn int_into_float<B: Backend, const D: usize>(x: Tensor<B, D, Int>, dtype: FloatDType) -> Tensor<B, D> {
    float(B::int_into_float(x.into_primitive(), dtype))
}

/// Starts reading a tensor; see [`Backend::start_read`].
#[track_caller]
pub fn start_read<B: Backend, const D: usize>(x: Tensor<B, D>) -> PendingRead {
    B::start_read(x.into_primitive().tensor())
}
