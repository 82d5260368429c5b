//! CubeCL kernels of grove for Burn's fusing backends (CUDA, wgpu, ROCm).
//!
//! A fusing backend collects operations and fuses them into kernels. Operations that it does not fuse well, with many small
//! launches or copies, are registered here as one [custom operation](register) with one kernel. The kernels use no device
//! feature except shared memory: no planes, no tensor cores, no atomics. They accumulate in f32.
//!
//! Products are custom operations too, if cuBLAS computes them or if tensor cores would [round](matmul) f32 operands; the
//! latter use CubeK's kernels. So are convolutions.

mod attention;
mod cache;
mod chunk;
mod column_sums;
mod conv;
#[cfg(feature = "cuda")]
mod cublas;
mod embedding;
mod gemv;
mod key_range;
mod leaves;
pub(crate) mod matmul;
#[cfg(feature = "cuda")]
mod nccl;
mod nll;
mod random;
mod read;
mod recurrent;
mod recurrent_step;
mod reduce;
mod register;
mod rotary;
mod row_norm;
mod sample;
mod softmax;
mod tensor;

use burn::tensor::{
    DType, Tensor, TensorMetadata,
    ops::{FloatTensor, IntTensor},
};
use burn_cubecl::CubeRuntime;

use super::{
    AnyTensor, Backend, GruReset, Operation, Outcome, PendingRead, SampleOptions, SampledPrimitives, Values, Wanted,
    adam_step::{leaves_of, with_dtype_of_moments},
    embedding::sum_before,
    linear::{self, by_rows},
    primitive,
};
use recurrent::Cell;
use register::FusedTensor;

/// A fusing backend on a runtime.
pub(super) trait Fusing<R: CubeRuntime>:
    Backend<
        FloatTensorPrimitive = FusedTensor<R>,
        IntTensorPrimitive = FusedTensor<R>,
        BoolTensorPrimitive = FusedTensor<R>,
        Device = R::Device,
    >
{
}

impl<R: CubeRuntime, B> Fusing<R> for B where
    B: Backend<
            FloatTensorPrimitive = FusedTensor<R>,
            IntTensorPrimitive = FusedTensor<R>,
            BoolTensorPrimitive = FusedTensor<R>,
            Device = R::Device,
        >
{
}

/// Runs an operation; see [`Backend::run`].
fn run<R: CubeRuntime, B: Fusing<R>>(operation: &Operation, mut inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
    if has_no_kernel(operation, &inputs) {
        return operation.compose(inputs, needs);
    }
    let keep = needs.contains(&true);
    match operation {
        Operation::Matmul(_) => {
            let (a, b) = (inputs.shape(0), inputs.shape(1));
            let (d, one_type) = (a.num_dims(), inputs.dtype(0) == inputs.dtype(1));
            let one_batch = a[..d - 2] == b[..d - 2];
            if one_batch && one_type && gemv::is_narrow(a[d - 2], a[d - 1], b[d - 1]) {
                return Outcome::new([gemv::matmul(inputs.take_float(0), inputs.take_float(1))]);
            }
            let is_empty = a.num_elements() * b[d - 1] == 0;
            let sizes = [a[d - 2], a[d - 1], b[d - 1]];
            if one_type && !is_empty && matmul::takes(inputs.float(0), sizes) {
                return Outcome::new([matmul::matmul(inputs.take_float(0), inputs.take_float(1))]);
            }
            operation.compose(inputs, needs)
        }
        Operation::Linear(_) => {
            let (shape, weights) = (inputs.shape(0), inputs.shape(1));
            let rows = shape[..shape.num_dims() - 1].iter().product();
            if rows <= gemv::MAX_ROWS && gemv::is_narrow(rows, weights[0], weights[1]) {
                let (x, weight) = (inputs.take_float(0), inputs.take_float(1));
                return Outcome::new([gemv::linear(x, weight, inputs.take_optional_float(2))]);
            }
            if matmul::takes(inputs.float(0), [rows, weights[0], weights[1]]) {
                return by_rows(inputs);
            }
            operation.compose(inputs, needs)
        }
        Operation::Conv2d(options) if conv::takes(inputs.float(0)) => {
            let [x, weight] = inputs.take_floats();
            Outcome::new([conv::forward::<B, R>(x, weight, *options)])
        }
        Operation::Conv2d(options) if conv::is_product(inputs.float(0), inputs.float(1), *options) => {
            let [x, weight] = inputs.take_floats();
            Outcome::new([conv::pointwise::<B, R>(x, weight)])
        }
        Operation::Rope(rope) => {
            let [x, cos, sin] = inputs.take_floats();
            Outcome::new([rotary::rotate(x, cos, sin, rope.interleaved)])
        }
        Operation::RowNorm(norm) => {
            let (x, weight) = (inputs.take_float(0), inputs.take_float(1));
            Outcome::new(row_norm::row_norm(x, weight, inputs.take_optional_float(2), *norm))
        }
        Operation::Attention(attention)
            if !keep
                && attention.dropout.is_none()
                && inputs.get(6).is_none()
                && [1, 2].into_iter().all(|i| inputs.dtype(i) == inputs.dtype(0))
                && attention::is_small(&inputs.shape(0), &inputs.shape(1), attention.causal) =>
        {
            Outcome::new([attention::attention::<R, B>(*attention, inputs)])
        }
        Operation::UpdateCache(update) => {
            Outcome::new(cache::append(inputs.take_floats(), update.at, update.seen.clone()))
        }
        Operation::MaskedSoftmax(softmax) => Outcome::new([softmax::masked_softmax::<R, B>(*softmax, inputs)]),
        Operation::Nll(_) => Outcome::new(nll::nll(inputs.take_float(0), inputs.take_int(1))),
        Operation::Chunk(chunk) => Outcome::new(chunk::chunk(inputs.take_float(0), chunk.count, chunk.axis)),
        Operation::Concat(concat) if inputs.len() <= chunk::MAX_PARTS => {
            Outcome::new([chunk::unchunk(inputs.into_floats(), concat.axis)])
        }
        Operation::RandomBits(random) => {
            let bits = random::random_bits::<R>(random.key, random.shape.clone(), inputs.device());
            Values::default().with(AnyTensor::Int(bits)).into()
        }
        Operation::Dropout(dropout) => Outcome::new([random::dropout(inputs.take_float(0), *dropout)]),
        Operation::Lstm(lstm) if inputs.all_f32() => {
            recurrent::forward::<B, R>(Cell::Lstm, inputs.take_floats(), &lstm.steps, keep)
        }
        Operation::Gru(gru) if gru.reset == GruReset::After && inputs.all_f32() => {
            let [x, w_ih, w_hh, bias, h] = inputs.take_floats();
            // A GRU has no sixth input; `h` is a placeholder.
            recurrent::forward::<B, R>(Cell::Gru, [x, w_ih, w_hh, bias, h.clone(), h], &gru.steps, keep)
        }
        Operation::AdamStep(_) if inputs.dtype(inputs.len() - 1) == DType::F32 => {
            let (leaves, hyperparameters) = leaves_of(inputs);
            let step = |leaves| leaves::adam_steps(leaves, hyperparameters);
            Outcome::new(with_dtype_of_moments::<B>(leaves, step))
        }
        Operation::SumOfSquares(_) if !has_f64(&inputs) => {
            let device = B::float_device(inputs.float(0));
            let leaves = inputs.into_floats().into_iter().filter(|x| x.shape().num_elements() > 0).collect();
            let zero = || B::float_zeros([1].into(), &device, DType::F32.into());
            Outcome::new([leaves::sum_of_squares(leaves).unwrap_or_else(zero)])
        }
        Operation::Scale(_) if inputs.dtype(0) != DType::F64 => {
            let mut tensors = inputs.into_floats();
            let factor = tensors.remove(0);
            Outcome::new(leaves::scale(tensors, factor))
        }
        _ => operation.compose(inputs, needs),
    }
}

/// Runs a derivative; see [`Backend::run_vjp`].
fn run_vjp<R: CubeRuntime, B: Fusing<R>>(
    operation: &Operation,
    mut residuals: Values<B>,
    mut grads: Values<B>,
    wanted: &Wanted,
) -> Values<B> {
    if has_no_kernel(operation, &grads) {
        return operation.compose_vjp(residuals, grads, wanted);
    }
    match operation {
        Operation::Conv2d(options) if conv::takes(residuals.float(0)) => {
            let ([x, weight], grad) = (residuals.take_floats(), grads.take_float(0));
            Values::optional_floats(conv::backward::<B, R>(x, weight, grad, *options, wanted.needs()))
        }
        Operation::RowNorm(norm) => {
            let ([x, weight, stats], grad) = (residuals.take_floats(), grads.take_float(0));
            Values::optional_floats(row_norm::row_norm_backward([x, weight], stats, grad, *norm, wanted.needs()))
        }
        Operation::Linear(_) => {
            let sum = |grad: Tensor<B, 2>, dtype| column_sums::column_sums(primitive(grad), dtype);
            linear::vjp(residuals, grads, wanted, sum)
        }
        Operation::Embedding(_) if !has_f64(&grads) && !is_empty(&grads) => {
            let (sum, grad) = sum_before::<B>(&mut grads, wanted);
            Values::floats([embedding::embedding_backward(sum, residuals.take_int(0), grad)])
        }
        Operation::MaskedSoftmax(softmax) => {
            let (weights, grad) = (residuals.take_float(0), grads.take_float(0));
            Values::floats([softmax::masked_softmax_backward(weights, grad, softmax.scale)])
        }
        Operation::Nll(_) => {
            let (logits, labels) = (residuals.take_float(0), residuals.take_int(1));
            let (normaliser, grad) = (residuals.take_float(2), grads.take_float(0));
            Values::floats([nll::nll_backward(logits, labels, normaliser, grad)])
        }
        Operation::Lstm(lstm) if residuals.all_f32() && grads.all_f32() => {
            let [x, w_ih, w_hh, bias, h, c, output, gates, cells] = residuals.take_floats();
            let (inputs, saved, grad) = ([x, w_ih, w_hh, bias, h, c], [gates, cells], grads.take_float(0));
            let needs = wanted.needs();
            let grads = recurrent::backward::<B, R>(Cell::Lstm, inputs, saved, output, grad, &lstm.steps, needs);
            Values::optional_floats(grads)
        }
        Operation::Gru(gru) if gru.reset == GruReset::After && residuals.all_f32() && grads.all_f32() => {
            let [x, w_ih, w_hh, bias, h, output, gates, saved] = residuals.take_floats();
            let (inputs, saved, grad) = ([x, w_ih, w_hh, bias, h.clone(), h], [gates, saved], grads.take_float(0));
            // A GRU has no sixth input; `h` is a placeholder.
            let needs = wanted.needs();
            let grads = recurrent::backward::<B, R>(Cell::Gru, inputs, saved, output, grad, &gru.steps, needs);
            Values::optional_floats(grads)
        }
        _ => operation.compose_vjp(residuals, grads, wanted),
    }
}

/// Returns true for operations that have kernels, but none for values of this type, or for no elements: a kernel cannot be launched
/// for none.
fn has_no_kernel<B: Backend>(operation: &Operation, values: &Values<B>) -> bool {
    match operation {
        Operation::Conv2d(_) => is_empty(values),
        _ => adds_up_in_f32(operation) && (has_f64(values) || is_empty(values)),
    }
}

/// Returns true for operations whose kernels accumulate in f32.
fn adds_up_in_f32(operation: &Operation) -> bool {
    matches!(
        operation,
        Operation::Matmul(_)
            | Operation::Linear(_)
            | Operation::Rope(_)
            | Operation::RowNorm(_)
            | Operation::Attention(_)
            | Operation::MaskedSoftmax(_)
            | Operation::Nll(_)
    )
}

/// Returns true if the first array has no elements.
fn is_empty<B: Backend>(values: &Values<B>) -> bool {
    values.shape(0).num_elements() == 0
}

fn has_f64<B: Backend>(values: &Values<B>) -> bool {
    values.any_float(|dtype| dtype == DType::F64)
}

/// Implements [`Backend`](crate::Backend) for a fusing backend, with the kernels of this module.
macro_rules! fusing_backend {
    ($backend:ty $(, sums: $sums:ident)?) => {
        impl Backend for $backend {
            const FUSES: bool = true;
            const BROKEN_FUSED_GEMV: bool = true;
            const SAMPLES: bool = true;

            $(fn reduces(device: &Self::Device, comm: &grove_communicator::Communicator) -> bool {
                $sums::reduces(device, comm)
            })?

            fn run(operation: &Operation, inputs: Values<Self>, needs: &[bool]) -> Outcome<Self> {
                $(if let Operation::AllReduce(sum) = operation {
                    return $sums::all_reduce(sum, inputs, needs);
                })?
                run(operation, inputs, needs)
            }

            fn run_vjp(
                operation: &Operation,
                residuals: Values<Self>,
                grads: Values<Self>,
                wanted: &Wanted,
            ) -> Values<Self> {
                run_vjp(operation, residuals, grads, wanted)
            }

            fn start_read(x: FloatTensor<Self>) -> PendingRead {
                read::start_read(x)
            }

            fn sample(
                logits: FloatTensor<Self>,
                occurred: Option<IntTensor<Self>>,
                options: SampleOptions,
            ) -> Option<SampledPrimitives<Self>> {
                Some(sample::sample::<_, Self>(logits, occurred, options))
            }
        }
    };
}

#[cfg(feature = "cuda")]
fusing_backend!(burn_cuda::Cuda, sums: nccl);
#[cfg(feature = "rocm")]
fusing_backend!(burn_rocm::Rocm);
#[cfg(feature = "wgpu")]
fusing_backend!(burn_wgpu::Wgpu);
