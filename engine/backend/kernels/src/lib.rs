//! CPU kernels: functions of f32 slices that make one pass over memory instead of the many of Burn's operations.
//!
//! They do not depend on tensors. `grove-backend` calls them for its flex backend. This is a separate crate so that it can be
//! compiled at the highest optimisation level while `grove-backend` shares its instantiations.
//!
//! The loops are plain Rust that the compiler vectorises. They are compiled for any CPU of the target, with AVX2 and FMA, and
//! with AVX-512. One version is selected at run time (`GROVE_CPU_CAPABILITY=avx2` or `baseline` selects a lower one). Products of
//! bf16 use AMX where the CPU has it (`GROVE_CPU_CAPABILITY=avx512` disables it). Rows
//! are divided among rayon's threads. [`set_deterministic`] documents the results that depend on the number of threads, and
//! disables this dependence. NaN in the inputs propagates to the outputs.
#![warn(missing_docs)]

mod adam;
mod attention;
mod batch_norm;
pub mod chain;
mod conv;
mod determinism;
mod dispatch;
mod dropout;
pub mod exact;
mod fresh;
mod gelu;
mod half;
pub mod loops;
mod math;
mod matmul;
mod memory;
mod nll;
mod norm;
mod pool;
mod quantized;
pub mod random;
mod recurrent;
mod rotate;
mod selu;
mod silu;
mod softmax;
pub mod threefry;

pub use adam::{AdamStep, Gradients, sum_of_squares};
pub use attention::{Attention, Heads, Hidden, KeyHeads};
pub use batch_norm::BatchNorm;
pub use conv::{
    Conv2d, Epilogue, conv2d, conv2d_backward_input, conv2d_backward_input_bf16, conv2d_backward_weight,
    conv2d_backward_weight_bf16, conv2d_half,
};
pub use determinism::{deterministic, set_deterministic};
pub use dispatch::{CpuCapability, as_worker, for_chunks, in_pool};
pub use dropout::{Dropout, random_bits};
pub use gelu::{gelu_erf, gelu_erf_backward, gelu_erf_in_place, gelu_tanh, gelu_tanh_backward, gelu_tanh_in_place};
pub use half::{
    HalfFormat, HalfMatrix, matmul_half, narrowed, narrowed_and_scaled, product_bf16, rounded_product_bf16, widen,
    widened, widened_rows,
};
pub use matmul::{Matrix, matmul, product, sum_rows};
pub use memory::{is_single_threaded, keep_freed_memory};
pub use nll::{nll, nll_backward};
pub use norm::RowNorm;
pub use pool::Pool2d;
pub use quantized::{InputPrecision, Quantization, QuantizedMatrix, dequantize, matmul_quantized};
pub use recurrent::{GruReset, RnnActivation, Steps, gru, gru_backward, lstm, lstm_backward, rnn, rnn_backward};
pub use rotate::rotate;
pub use selu::{selu, selu_backward, selu_in_place};
pub use silu::{silu_mul, silu_mul_backward};
pub use softmax::{softmax_rows, softmax_rows_backward, softmax_rows_of};
