//! Backends, and their selection at run time.
//!
//! [`Backend`] is Burn's backend trait plus one method that runs the [operations](ops) that grove defines. All of grove is
//! generic over it. [`DeviceSpec`] is a device as a user names it (`flex`, `candle`, `cuda`, `wgpu`, `rocm`).
//! [`DeviceSpec::run`] checks that the device is available and calls a [`Program`] with the concrete backend.
//!
//! # Build time
//! The CUDA backend takes minutes to instantiate. In the dev profile (`opt-level = 1`) rustc shares instantiations between
//! crates, so this crate instantiates the operations of every backend once (`src/anchor.rs`), the facade `grove`
//! instantiates the models, and programs link to those. docs/environment.md lists the build times.
#![warn(missing_docs)]
#![recursion_limit = "256"]
// Without any backend, dispatch code is unused.
#![cfg_attr(
    not(any(feature = "flex", feature = "candle", feature = "cuda", feature = "wgpu", feature = "rocm")),
    allow(unused_variables, dead_code)
)]

#[cfg(feature = "cuda")]
use grove_cuda_kernels as _;

#[cfg(all(shares_generics, not(test)))]
mod anchor;
mod autodiff;
pub mod compile_progress;
mod device;
mod matmul;
mod matmul_precision;
pub mod ops;
pub mod panic_hook;
mod program;

#[cfg(all(shares_generics, not(test)))]
#[doc(hidden)]
pub use anchor::anchors;
#[cfg(feature = "cuda")]
pub use device::without_cublas;
pub use device::{AutotuneLevel, BackendName, DeviceError, DeviceSpec, cache_folder, set_autotune_level};
pub use grove_kernels::{
    CpuCapability, deterministic, for_chunks, keep_freed_memory, random, set_deterministic, threefry,
};
pub use matmul::matmul;
pub use matmul_precision::{MatmulPrecision, UnknownPrecision, matmul_precision, set_matmul_precision};
#[cfg(feature = "cube")]
#[doc(hidden)]
pub use ops::use_f32_kernels_on_every_device;
pub use ops::{
    AnyTensor, AttentionOptions, Backend, Conv2dOptions, Dropout, Epilogue, GeluApproximation, GruReset,
    InputPrecision, KeyRanges, PendingRead, PendingTokens, Pool2dOptions, Quantization, RnnActivation, SampleOptions,
    Sampled, Steps, at_least_f32, dropout, random_bits, sample, to_dtype,
};
pub use program::Program;

#[cfg(feature = "cuda")]
pub use burn_cuda::Cuda;
#[cfg(feature = "flex")]
pub use burn_flex::Flex;
#[cfg(feature = "rocm")]
pub use burn_rocm::Rocm;
#[cfg(feature = "wgpu")]
pub use burn_wgpu::Wgpu;
#[cfg(feature = "candle")]
pub use device::Candle;
#[cfg(feature = "wgpu")]
pub use device::wgpu_device;

pub use autodiff::{
    Autodiff,
    captured::{Captured, capturing, is_capturing},
};
