//! The operations that grove owns.
//!
//! An [`Operation`] is a value: a struct of static parameters in one enum, as a primitive in JAX. Its file holds the
//! contract, the shape rule, the composition out of Burn's operations and the derivative. [`Backend::run`] runs any of
//! them; the functions of this module, such as [`linear`] and [`attention()`], are the operations on tensors, and all that
//! layers and models call. `engine/backend/README.md` says how to add an operation, a kernel or a backend.

mod adam_step;
mod all_reduce;
mod any_tensor;
mod argsort;
mod attention;
mod autodiff;
mod awaited;
mod batch_norm;
#[cfg(feature = "candle")]
mod candle;
mod chunk;
mod concat;
mod conv2d;
#[cfg(feature = "candle")]
mod conv2d_by_taps;
mod conv2d_fused;
#[cfg(feature = "cube")]
mod cube;
mod dropout;
mod dynamic_update_slice;
mod embedding;
#[cfg(feature = "flex")]
mod flex;
mod function;
mod functions;
mod gelu;
mod indexing;
mod key_ranges;
mod linear;
mod masked_softmax;
mod matmul;
mod max_pool2d;
mod nll;
mod operation;
mod ordering;
mod precision;
mod quantized;
mod random_bits;
mod random_keys;
mod random_samples;
mod read;
mod recorded;
mod recurrent;
mod rope;
mod row_norm;
mod sample;
mod scale;
mod selu;
mod shapes;
mod sharding_constraint;
mod strided;
mod sum_of_squares;
mod swiglu;
mod tracked;
mod update_cache;
mod values;

use std::{any::Any, ops::Range};

use burn::tensor::{
    DType, IntDType, Shape, Slice, Tensor, TensorData, TensorMetadata, TensorPrimitive,
    backend::ExecutionError,
    ops::{FloatTensor, IntTensor},
};

use grove_communicator::Communicator;
pub use grove_kernels::{Dropout, Quantization, chain, loops};

pub use adam_step::AdamStep;
pub use all_reduce::{AllReduce, Ranks};
pub use any_tensor::AnyTensor;
pub use argsort::Argsort;
pub use attention::Attention;
pub use awaited::{AwaitedGradients, GradientListener, await_gradients, count_of_holders};
pub use batch_norm::BatchNorm;
pub use chunk::Chunk;
pub use concat::Concat;
pub use conv2d::Conv2dOptions;
pub use conv2d_fused::Conv2dFused;
#[cfg(feature = "cube")]
pub use cube::matmul::use_f32_kernels_on_every_device;
pub use dynamic_update_slice::DynamicUpdateSlice;
pub use embedding::Embedding;
pub use function::{Function, FunctionVjp};
pub use functions::*;
pub use gelu::{Gelu, GeluApproximation};
pub use indexing::{index_copy, scatter, select_assign};
pub use key_ranges::KeyRanges;
pub use linear::Linear;
pub use masked_softmax::MaskedSoftmax;
pub use matmul::Matmul;
pub use max_pool2d::Pool2dOptions;
pub use nll::Nll;
pub use operation::{Differentiation, Operation, Residual, Residuals};
pub use ordering::{argsort, argsort_int, one_hot, sort, top_k};
pub use precision::{at_least_f32, cast};
pub use quantized::{Dequantize, QuantizedLinear};
pub use random_bits::RandomBits;
pub use random_keys::{RandomFoldIn, RandomKeyData};
pub use random_samples::RandomSamples;
pub use read::PendingRead;
pub use recorded::{Call, Recorder};
pub use recurrent::{Gru, GruReset, Lstm, Rnn, RnnActivation, Steps};
pub use rope::Rope;
pub use row_norm::RowNorm;
pub use sample::{PendingTokens, SampleOptions, Sampled, SampledPrimitives, sample};
pub use scale::Scale;
pub use selu::Selu;
pub use shapes::{Shapes, Spec, Wanted};
pub use sharding_constraint::ShardingConstraint;
pub use sum_of_squares::SumOfSquares;
pub use swiglu::SwiGlu;
pub use update_cache::UpdateCache;
pub use values::{Outcome, Values};

pub(crate) use functions::matmul;
use masked_softmax::masked_softmax_vjp;
use operation::Rules;

fn float<B: burn::tensor::backend::Backend, const D: usize>(x: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

fn primitive<B: burn::tensor::backend::Backend, const D: usize>(x: Tensor<B, D>) -> FloatTensor<B> {
    x.into_primitive().tensor()
}

/// A range of one axis, and all of the others.
pub(crate) fn part_of_axis(rank: usize, dim: usize, range: Range<usize>) -> Vec<Slice> {
    let mut slices = vec![Slice::full(); rank];
    slices[dim] = Slice::from(range);
    slices
}

/// A tensor's elements in one row.
fn flat<B: burn::tensor::backend::Backend>(x: FloatTensor<B>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    float(B::float_reshape(x, [count].into()))
}

/// Burn's backend trait plus one method that runs the operations that grove owns.
///
/// By default an operation is composed of Burn's own, so that a backend joins with an empty `impl`. A backend answers
/// operations for which it has kernels; [`Autodiff`](crate::Autodiff) differentiates all of them in one place.
pub trait Backend: burn::tensor::backend::Backend {
    /// True if the backend compiles consecutive operations into one kernel. What is fused, and so rounded, may depend on
    /// what ran before.
    const FUSES: bool = false;

    /// True if a matrix times a vector may come out wrong when the backend fuses the product with later operations.
    ///
    /// Burn 0.21's fused autotuning counts a kernel among the candidates that reads the matrix as though it were row-major
    /// ([m = 1](https://github.com/tracel-ai/cubek/pull/262), [n = 1](https://github.com/tracel-ai/burn/issues/5122)), and
    /// takes it where it is the fastest. [`matmul`](crate::matmul()) avoids that.
    const BROKEN_FUSED_GEMV: bool = false;

    /// True if a product takes a weight of 16 bits, or a quantized one, with an input of f32, and computes in f32.
    const MIXED_DTYPE_WEIGHTS: bool = false;

    /// True if [`sample`](Self::sample) draws tokens.
    const SAMPLES: bool = false;

    /// Returns true if a device has matrix products, convolutions and sums of a floating-point type, so that layers can
    /// compute in it and not only store it.
    ///
    /// Loading a model refuses other types; [`DeviceSpec::computes_in`](crate::DeviceSpec::computes_in) tells a program early.
    fn computes_in(device: &Self::Device, dtype: DType) -> bool {
        dtype.is_float() && Self::supports_dtype(device, dtype)
    }

    /// Runs an operation on inputs of shapes that [fit](Operation::shapes). `needs[i]` is true if the gradient of input `i`
    /// will be wanted; the outcome then has what the derivative needs besides inputs and outputs. Inputs that are not
    /// mentioned need none.
    fn run(operation: &Operation, inputs: Values<Self>, needs: &[bool]) -> Outcome<Self> {
        operation.compose(inputs, needs)
    }

    /// Gradients of an operation's inputs, by their positions, from its [residuals](Operation::residuals) and the gradients
    /// of its outputs. One may have another floating-point type than its input.
    fn run_vjp(operation: &Operation, residuals: Values<Self>, grads: Values<Self>, wanted: &Wanted) -> Values<Self> {
        operation.compose_vjp(residuals, grads, wanted)
    }

    /// True if operations are recorded, and run as one program when a value is read: programs that differ in a shape are compiled each.
    const LAZY: bool = false;

    /// Notes that a step of a loop ends, where operations are [recorded](Self::LAZY): a step runs as one program when the next one with
    /// the same label has ended, or a value is read. A differentiating backend has no steps.
    fn end_step(_device: &Self::Device, _label: u64) {}

    /// False for a device whose tensors have no values: that of a trace.
    fn has_values(_device: &Self::Device) -> bool {
        true
    }

    /// True if a device runs [`AllReduce`] itself, or as a part of a program, so that sums need not go through the host's
    /// memory. Every rank asks for the same communicators in the same order.
    fn reduces(_device: &Self::Device, _comm: &Communicator) -> bool {
        false
    }

    /// True if the backend runs [chains](Self::run_chain) of functions of elements in one pass over memory.
    const CHAINS: bool = false;

    /// Runs a chain of functions of elements on floating-point tensors of f32. The outputs, and then the sums, have the given
    /// shapes. Is called only where [`CHAINS`](Self::CHAINS) is true.
    fn run_chain(_chain: &chain::Chain, _inputs: Vec<AnyTensor<Self>>, _shapes: &[Shape]) -> Vec<AnyTensor<Self>> {
        unreachable!("a backend without chains is asked for one")
    }

    /// True if arrays are in the host's memory, and [`loops`] compute what the backend's operations compute, bit for bit: loops over
    /// small arrays run as such programs.
    const LOOPS: bool = false;

    /// Reads a tensor of one row, in its type: Burn's `into_data` gives f32 on backends that record.
    ///
    /// # Errors
    /// The device reports an error.
    fn read(x: FloatTensor<Self>) -> Result<TensorData, ExecutionError> {
        float::<Self, 1>(x).try_into_data()
    }

    /// Starts to read a tensor of any shape, so that [`PendingRead::wait`] waits for the operations before this call and not
    /// for those after it: an effect on the host, not an operation. Other backends than the fusing ones read when they wait.
    fn start_read(x: FloatTensor<Self>) -> PendingRead {
        let x = primitive(flat::<Self>(x));
        PendingRead::new(move || Self::read(x))
    }

    /// A token for each row of logits, drawn on the device and on its way to the host; see [`sample`]. `None` where it is
    /// left to the host, whose memory the logits are in anyway.
    fn sample(
        _logits: FloatTensor<Self>,
        _occurred: Option<IntTensor<Self>>,
        _options: SampleOptions,
    ) -> Option<SampledPrimitives<Self>> {
        None
    }

    /// Runs a function that has a derivative of its own. A differentiating backend records the derivative.
    fn run_function<F: Function>(function: &F, inputs: Values<Self>) -> Values<Self> {
        function.run(inputs)
    }

    /// Positions of the `k` largest elements along an axis, the largest first. Burn 0.21's `argtopk` is missing on some backends.
    fn argtopk(x: FloatTensor<Self>, dim: usize, k: usize, dtype: IntDType) -> IntTensor<Self> {
        let sorted = Self::float_argsort(x, dim, true, dtype);
        let part = part_of_axis(sorted.shape().num_dims(), dim, 0..k);
        Self::int_slice(sorted, &part)
    }

    /// What stands for an array, where [`Captured::replaced`](crate::Captured::replaced) has put others in the places of such arrays. Methods of a differentiating
    /// backend do this with their arguments; this is for what a function returns as it is.
    fn in_place_of(x: AnyTensor<Self>) -> AnyTensor<Self> {
        x
    }

    /// The tensor on the innermost of the decorated backends, an [`AnyTensor`] of it, and true if a gradient flows through the
    /// tensor. For a backend that decorates no other, the tensor itself.
    fn into_innermost(x: AnyTensor<Self>) -> (Box<dyn Any>, bool) {
        (Box::new(x), false)
    }

    /// A tensor of the innermost of the decorated backends on this one, without a gradient: the inverse of
    /// [`into_innermost`](Self::into_innermost). `None` if the tensor is of another backend.
    fn from_innermost(x: Box<dyn Any>) -> Option<AnyTensor<Self>> {
        x.downcast().ok().map(|x| *x)
    }
}
