//! The candle backend. Operations that candle lacks are composed of others.

use burn::tensor::DType;

use super::{
    Backend, Operation, Outcome, Values, Wanted, conv2d_by_taps, linear, matmul,
    operation::{run_in_f32, run_vjp_in_f32},
    quantized,
};

impl Backend for crate::Candle {
    const MIXED_DTYPE_WEIGHTS: bool = true;
    const DIVIDES_BY_NUMBERS: bool = false;
    const ADDS_VIEWS: bool = false;

    /// candle's CPU backend, the only one that grove uses, cannot multiply bf16 matrices.
    fn computes_in(device: &Self::Device, dtype: DType) -> bool {
        dtype.is_float()
            && dtype != DType::BF16
            && <Self as burn::tensor::backend::Backend>::supports_dtype(device, dtype)
    }

    fn run(operation: &Operation, inputs: Values<Self>, needs: &[bool]) -> Outcome<Self> {
        match operation {
            // candle supports at most two batch axes.
            Operation::Matmul(_) => matmul::with_one_batch_axis(inputs),
            // candle copies a broadcast matrix for each element of the batch.
            Operation::Linear(_) => linear::by_rows(inputs),
            Operation::QuantizedLinear(linear) => quantized::linear_on_host(*linear, inputs),
            // candle sums 16-bit values in 16 bits.
            Operation::Attention(attention) if inputs.is_half() => {
                run_in_f32(&attention.for_f32(inputs.dtype(0)).into(), inputs, needs)
            }
            // candle has the same stride, padding and dilation for both axes.
            Operation::Conv2d(options) if !options.is_square() => conv2d_by_taps::forward(*options, inputs),
            _ => operation.compose(inputs, needs),
        }
    }

    fn run_vjp(operation: &Operation, residuals: Values<Self>, grads: Values<Self>, wanted: &Wanted) -> Values<Self> {
        match operation {
            Operation::Attention(attention) if grads.is_half() => {
                run_vjp_in_f32(&attention.for_f32(grads.dtype(0)).into(), residuals, grads, wanted)
            }
            Operation::Conv2d(options) if !options.is_square() => {
                conv2d_by_taps::vjp(*options, residuals, grads, wanted)
            }
            // candle has no grouped transposed convolution.
            Operation::Conv2d(options) => options.gradients_by_groups(residuals, grads, wanted),
            _ => operation.compose_vjp(residuals, grads, wanted),
        }
    }
}
