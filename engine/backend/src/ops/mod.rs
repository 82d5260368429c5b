//! The operations that grove defines.
//!
//! An [`Operation`] is a value: an enum of structs of static parameters, like a primitive in JAX. The file of an operation
//! contains its contract, its shape rule, its composition of Burn's operations and its derivative. [`Backend::run`] runs
//! any operation. Layers and models call only the functions of this module, such as [`linear`] and [`attention()`].
//! `engine/backend/README.md` explains how to add an operation, a kernel or a backend.

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
pub mod int_division;
mod key_ranges;
mod linear;
mod masked_softmax;
mod matmul;
mod max_pool2d;
pub mod max_pooling;
mod nll;
mod operation;
mod ordering;
mod precision;
mod quantized;
mod random;
mod read;
mod recorded;
mod recurrent;
mod reshape;
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
pub use grove_kernels::{Dropout, GruReset, InputPrecision, Quantization, RnnActivation, chain, loops};

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
pub use indexing::{index_copy, scatter, select_assign, select_rows};
pub use int_division::{int_div, int_remainder};
pub use key_ranges::KeyRanges;
pub use linear::Linear;
pub use masked_softmax::MaskedSoftmax;
pub use matmul::Matmul;
pub use max_pool2d::Pool2dOptions;
pub use nll::Nll;
pub use operation::{BatchAxis, Differentiation, Operation, Residual, Residuals};
pub use ordering::{argsort, argsort_int, one_hot, sort, top_k};
pub use precision::{at_least_f32, cast, to_dtype};
pub use quantized::{Dequantize, QuantizedLinear, rounded_to_int8};
pub use random::{
    RandomBits, RandomFoldIn, RandomKeyData, RandomSamples, random_bits, random_booleans, random_floats,
    random_fold_in, random_integers, random_key_data,
};
pub use read::PendingRead;
pub use recorded::{Call, Recorder};
pub use recurrent::{Gru, Lstm, Rnn, Steps};
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
pub(crate) use reshape::{flattened_first, reshape};

fn float<B: burn::tensor::backend::Backend, const D: usize>(x: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(x))
}

fn primitive<B: burn::tensor::backend::Backend, const D: usize>(x: Tensor<B, D>) -> FloatTensor<B> {
    x.into_primitive().tensor()
}

/// Slices for a range of one axis and all of the others.
pub(crate) fn part_of_axis(rank: usize, dim: usize, range: Range<usize>) -> Vec<Slice> {
    let mut slices = vec![Slice::full(); rank];
    slices[dim] = Slice::from(range);
    slices
}

/// Flattens a tensor to one axis.
fn flat<B: burn::tensor::backend::Backend>(x: FloatTensor<B>) -> Tensor<B, 1> {
    let count = x.shape().num_elements();
    float(B::float_reshape(x, [count].into()))
}

/// Burn's backend trait plus one method that runs grove's operations.
///
/// By default an operation is composed of Burn's own, so a backend joins with an empty `impl`. A backend overrides the
/// operations for which it has kernels. [`Autodiff`](crate::Autodiff) differentiates all of them in one place.
pub trait Backend: burn::tensor::backend::Backend {
    /// True if the backend compiles consecutive operations into one kernel. The fused operations, and hence the rounding,
    /// may depend on earlier operations.
    const FUSES: bool = false;

    /// True if a matrix-vector product may be wrong when the backend fuses the product with later operations.
    ///
    /// Fused autotuning of Burn 0.21 includes a kernel that reads every matrix as row-major (for
    /// [m = 1](https://github.com/tracel-ai/cubek/pull/262) and
    /// [n = 1](https://github.com/tracel-ai/burn/issues/5122)), and selects that kernel if it is the fastest.
    /// [`matmul`](crate::matmul()) avoids the problem.
    const BROKEN_FUSED_GEMV: bool = false;

    /// True if products accept 16-bit or quantized weights with f32 inputs, and compute in f32.
    const MIXED_DTYPE_WEIGHTS: bool = false;

    /// True if Burn's methods divide integers as [`int_div`] and [`int_remainder`] do, by 0 too.
    const DIVIDES_BY_ZERO: bool = false;

    /// False if Burn's methods that divide integers by a number are not implemented.
    const DIVIDES_BY_NUMBERS: bool = true;

    /// False if Burn's additions at indices panic for arrays that are not contiguous.
    const ADDS_VIEWS: bool = true;

    /// True if Burn's max pooling propagates NaN.
    const POOLS_NAN: bool = false;

    /// True if [`sample`](Self::sample) is implemented.
    const SAMPLES: bool = false;

    /// Returns true if a device supports matrix products, convolutions and sums of a floating-point dtype, so that layers
    /// can compute in that dtype and not only store it.
    ///
    /// Loading a model rejects other dtypes. [`DeviceSpec::computes_in`](crate::DeviceSpec::computes_in) checks this before
    /// loading.
    fn computes_in(device: &Self::Device, dtype: DType) -> bool {
        dtype.is_float() && Self::supports_dtype(device, dtype)
    }

    /// Casts a floating-point tensor to a floating-point dtype.
    fn cast_float(x: FloatTensor<Self>, dtype: DType) -> FloatTensor<Self> {
        Self::float_cast(x, dtype.into())
    }

    /// Runs an operation on inputs whose shapes [match](Operation::shapes). `needs[i]` is true if the gradient of input `i`
    /// will be computed; the outcome then includes the saved residuals. Inputs beyond the end of `needs` need no gradient.
    fn run(operation: &Operation, inputs: Values<Self>, needs: &[bool]) -> Outcome<Self> {
        operation.compose(inputs, needs)
    }

    /// Computes the gradients of an operation's inputs, by position, from its [residuals](Operation::residuals) and the
    /// gradients of its outputs. A gradient may have another floating-point dtype than its input.
    fn run_vjp(operation: &Operation, residuals: Values<Self>, grads: Values<Self>, wanted: &Wanted) -> Values<Self> {
        operation.compose_vjp(residuals, grads, wanted)
    }

    /// True if operations are recorded, and compiled and run as one program when a value is read. Each combination of
    /// shapes is compiled separately.
    const LAZY: bool = false;

    /// Marks the end of an iteration of a loop, if operations are [recorded](Self::LAZY). An iteration runs as one program
    /// when the next one with the same label ends or a value is read. Differentiating backends ignore this call.
    fn end_step(_device: &Self::Device, _label: u64) {}

    /// Returns false for a device whose tensors have no values: that of a trace.
    fn has_values(_device: &Self::Device) -> bool {
        true
    }

    /// Returns true if a device runs [`AllReduce`] itself, or as part of a program, without a copy through host memory.
    /// Every rank must call this for the same communicators in the same order.
    fn reduces(_device: &Self::Device, _comm: &Communicator) -> bool {
        false
    }

    /// True if the backend runs [chains](Self::run_chain) of elementwise functions in one pass over memory.
    const CHAINS: bool = false;

    /// Runs a chain of elementwise functions on f32 tensors. `shapes` are the shapes of the outputs, followed by those of
    /// the sums. Called only if [`CHAINS`](Self::CHAINS) is true.
    fn run_chain(_chain: &chain::Chain, _inputs: Vec<AnyTensor<Self>>, _shapes: &[Shape]) -> Vec<AnyTensor<Self>> {
        unreachable!("a backend without chains is asked for one")
    }

    /// True if arrays are in host memory, and [`loops`] give bitwise the same results as the backend's operations. Loops
    /// over small arrays then run as such programs.
    const LOOPS: bool = false;

    /// Reads a tensor with one axis, in its dtype. Burn's `into_data` gives f32 on backends that record.
    ///
    /// # Errors
    /// If the device reports an error.
    fn read(x: FloatTensor<Self>) -> Result<TensorData, ExecutionError> {
        float::<Self, 1>(x).try_into_data()
    }

    /// Starts reading a tensor of any shape. [`PendingRead::wait`] waits for the operations before this call, not for later
    /// ones. This is a host effect, not an operation. Only the fusing backends read asynchronously; others read in `wait`.
    fn start_read(x: FloatTensor<Self>) -> PendingRead {
        let x = primitive(flat::<Self>(x));
        PendingRead::new(move || Self::read(x))
    }

    /// Samples a token for each row of logits on the device and starts copying the tokens to the host; see [`sample`].
    /// `None` for backends that leave sampling to the host, in whose memory the logits are.
    fn sample(
        _logits: FloatTensor<Self>,
        _occurred: Option<IntTensor<Self>>,
        _options: SampleOptions,
    ) -> Option<SampledPrimitives<Self>> {
        None
    }

    /// Runs a function with a custom derivative. A differentiating backend records the derivative.
    fn run_function<F: Function>(function: &F, inputs: Values<Self>) -> Values<Self> {
        function.run(inputs)
    }

    /// Merges the first two axes of a tensor. A backend returns a view if the strides allow it, where Burn's reshape copies.
    fn merge_axes(x: FloatTensor<Self>) -> FloatTensor<Self> {
        let shape = x.shape();
        let merged = [&[shape[0] * shape[1]], &shape[2..]].concat();
        match AnyTensor::<Self>::Float(x).reshape(merged) {
            AnyTensor::Float(x) => x,
            _ => unreachable!("a reshaped tensor keeps its kind"),
        }
    }

    /// Indices of the `k` largest elements along an axis, largest first. Burn 0.21's `argtopk` is missing on some backends.
    fn argtopk(x: FloatTensor<Self>, dim: usize, k: usize, dtype: IntDType) -> IntTensor<Self> {
        let sorted = Self::float_argsort(x, dim, true, dtype);
        let part = part_of_axis(sorted.shape().num_dims(), dim, 0..k);
        Self::int_slice(sorted, &part)
    }

    /// Returns the replacement of an array during [`Captured::replaced`](crate::Captured::replaced), else the array itself.
    /// The methods of a differentiating backend replace their arguments themselves; this is for arrays that a function
    /// returns unchanged.
    fn in_place_of(x: AnyTensor<Self>) -> AnyTensor<Self> {
        x
    }

    /// Returns the tensor on the innermost of nested backends, as its [`AnyTensor`], and whether the tensor needs a
    /// gradient. A backend that wraps no other returns the tensor itself.
    fn into_innermost(x: AnyTensor<Self>) -> (Box<dyn Any>, bool) {
        (Box::new(x), false)
    }

    /// Lifts a tensor of the innermost backend to this one, without a gradient; the inverse of
    /// [`into_innermost`](Self::into_innermost). `None` if the tensor belongs to another backend.
    fn from_innermost(x: Box<dyn Any>) -> Option<AnyTensor<Self>> {
        x.downcast().ok().map(|x| *x)
    }
}
