//! Selection of a device by name, with a check that the device is available, because Burn panics if it is not.

mod autotune;
mod cache_folder;
#[cfg(feature = "cuda")]
pub(crate) mod cublas;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod cuda_headers;
#[cfg(any(test, feature = "cuda", feature = "rocm"))]
#[cfg_attr(not(any(feature = "cuda", feature = "rocm")), allow(dead_code))]
mod driver;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod kernel_cache;
#[cfg(feature = "cuda")]
pub(crate) mod nccl;
mod probe;

use burn::tensor::DType;
use std::{fmt, str::FromStr};
use thiserror::Error;

use crate::{
    Program,
    matmul_precision::{self, UnknownPrecision},
};

pub use autotune::{AutotuneLevel, set_autotune_level};
pub use cache_folder::cache_folder;
#[cfg(feature = "cuda")]
pub use cublas::without_cublas;

#[cfg(feature = "wgpu")]
pub use probe::wgpu_device;

/// candle's CPU backend. Upstream marks it deprecated. grove keeps it and names it only here.
#[cfg(feature = "candle")]
#[allow(deprecated)]
pub type Candle = burn_candle::Candle<f32, i64>;

/// Backend name, as a user types it.
///
/// ```
/// use grove_backend::BackendName;
/// let backend: BackendName = "xla:tpu".parse()?;
/// assert_eq!((backend.as_str(), backend.feature()), ("xla:tpu", "xla"));
/// # Ok::<(), grove_backend::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BackendName {
    /// Pure-Rust CPU backend.
    #[default]
    Flex,
    /// candle's CPU backend.
    Candle,
    /// NVIDIA GPUs, JIT-fusing.
    Cuda,
    /// Vulkan, Metal or WebGPU, JIT-fusing.
    Wgpu,
    /// AMD GPUs, JIT-fusing.
    Rocm,
    /// OpenXLA on the best available devices.
    Xla,
    /// OpenXLA on the CPU.
    XlaCpu,
    /// OpenXLA on NVIDIA GPUs.
    XlaCuda,
    /// OpenXLA on TPUs.
    XlaTpu,
}

impl BackendName {
    /// All backends that grove knows, compiled in or not.
    pub const ALL: [Self; 9] = [
        Self::Flex,
        Self::Candle,
        Self::Cuda,
        Self::Wgpu,
        Self::Rocm,
        Self::Xla,
        Self::XlaCpu,
        Self::XlaCuda,
        Self::XlaTpu,
    ];

    /// Returns the name that a user types.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Flex => "flex",
            Self::Candle => "candle",
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
            Self::Rocm => "rocm",
            Self::Xla => "xla",
            Self::XlaCpu => "xla:cpu",
            Self::XlaCuda => "xla:cuda",
            Self::XlaTpu => "xla:tpu",
        }
    }

    /// Returns true for OpenXLA's devices.
    pub fn is_xla(self) -> bool {
        matches!(self, Self::Xla | Self::XlaCpu | Self::XlaCuda | Self::XlaTpu)
    }

    /// Returns the Cargo feature that enables the backend.
    pub fn feature(self) -> &'static str {
        if self.is_xla() { "xla" } else { self.as_str() }
    }

    /// Returns true if this build contains the backend.
    pub fn is_compiled(self) -> bool {
        match self {
            Self::Flex => cfg!(feature = "flex"),
            Self::Candle => cfg!(feature = "candle"),
            Self::Cuda => cfg!(feature = "cuda"),
            Self::Wgpu => cfg!(feature = "wgpu"),
            Self::Rocm => cfg!(feature = "rocm"),
            Self::Xla | Self::XlaCpu | Self::XlaCuda | Self::XlaTpu => cfg!(feature = "xla"),
        }
    }
}

impl fmt::Display for BackendName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for BackendName {
    type Err = DeviceError;

    fn from_str(name: &str) -> Result<Self, DeviceError> {
        let known = Self::ALL.into_iter().find(|backend| backend.as_str() == name);
        known.ok_or_else(|| DeviceError::Unknown { name: name.to_owned() })
    }
}

/// A backend and the index of one of its devices, as given on a command line.
///
/// ```
/// use grove_backend::{BackendName, DeviceSpec};
/// let device = DeviceSpec::new("flex".parse()?, 0);
/// assert_eq!((device.backend, device.index), (BackendName::Flex, 0));
/// device.probe()?; // an error if there is none
/// # Ok::<(), grove_backend::DeviceError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeviceSpec {
    /// The backend.
    pub backend: BackendName,
    /// Index of the device, from 0. CPU backends have one device.
    pub index: usize,
}

/// Reasons why a device cannot be used.
#[derive(Error, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeviceError {
    /// No backend has this name.
    #[error("unknown backend '{name}'; choose one of flex, candle, cuda, wgpu, rocm, xla, xla:cpu, xla:cuda, xla:tpu")]
    Unknown {
        /// The rejected name.
        name: String,
    },
    /// The backend is not part of this build.
    #[error("backend '{backend}' is not compiled in; build with `--features {}`", backend.feature())]
    NotCompiled {
        /// The requested backend.
        backend: BackendName,
    },
    /// Driver, library or hardware is missing.
    #[error("backend '{backend}' cannot be used here: {reason}")]
    Unavailable {
        /// The requested backend.
        backend: BackendName,
        /// Missing part and its remedy.
        reason: String,
    },
    /// The backend has fewer devices.
    #[error("backend '{backend}' has {} here, numbered from 0; there is no device {index}", devices(*count))]
    Index {
        /// The requested backend.
        backend: BackendName,
        /// Number of the backend's devices.
        count: usize,
        /// The requested index.
        index: usize,
    },
    /// The environment requests an unknown precision.
    #[error("{variable}: {error}")]
    Precision {
        /// The environment variable.
        variable: &'static str,
        /// Error about the variable's value.
        error: UnknownPrecision,
    },
    /// The backend lacks operations for a dtype.
    #[error("backend '{backend}' cannot compute in {dtype}: choose another backend or another dtype")]
    Dtype {
        /// The requested backend.
        backend: BackendName,
        /// Name of the dtype.
        dtype: &'static str,
    },
}

/// Formats a number of devices.
fn devices(count: usize) -> String {
    if count == 1 { "1 device".into() } else { format!("{count} devices") }
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl fmt::Debug for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl DeviceSpec {
    /// Creates the specification of a device.
    pub fn new(backend: BackendName, index: usize) -> Self {
        Self { backend, index }
    }

    /// Returns the device of a rank, from its index among the ranks of its machine: CUDA and ROCm GPUs are assigned
    /// round-robin. For other backends, including OpenXLA's, returns the first device.
    pub fn of_rank(backend: BackendName, local_rank: usize) -> Self {
        let shares =
            matches!(backend, BackendName::Cuda | BackendName::Rocm) && backend.is_compiled() && local_rank > 0;
        let count = if shares { probe::device_count(backend).unwrap_or(1) } else { 1 };
        Self::new(backend, local_rank % count.max(1))
    }

    /// Checks that the device is available, without using Burn.
    ///
    /// For the fusing backends this also prepares the first kernel: it enables the cache of compiled kernels and looks for
    /// CUDA's headers in Python environments. Call this or [`run`](Self::run) before a program creates its first tensor on
    /// the device.
    ///
    /// # Errors
    /// [`DeviceError`] if the backend is not compiled in, its driver or hardware is missing, it has no such device, or
    /// `GROVE_MATMUL_PRECISION` does not name a [precision](crate::MatmulPrecision).
    pub fn probe(self) -> Result<(), DeviceError> {
        let Self { backend, index } = self;
        if !backend.is_compiled() {
            return Err(DeviceError::NotCompiled { backend });
        }
        matmul_precision::from_environment()
            .map_err(|error| DeviceError::Precision { variable: matmul_precision::VARIABLE, error })?;
        let count = probe::device_count(backend).map_err(|reason| DeviceError::Unavailable { backend, reason })?;
        if index >= count {
            return Err(DeviceError::Index { backend, count, index });
        }
        Ok(())
    }

    /// Checks early that the backend has the operations for a floating-point dtype; see
    /// [`Backend::computes_in`](crate::Backend::computes_in). GPUs are not checked here, because their support is known
    /// only at run time.
    ///
    /// # Errors
    /// [`DeviceError::Dtype`] if it does not.
    pub fn computes_in(self, dtype: DType) -> Result<(), DeviceError> {
        let Self { backend, .. } = self;
        let computes = match backend {
            #[cfg(feature = "flex")]
            BackendName::Flex => <burn_flex::Flex as crate::Backend>::computes_in(&burn_flex::FlexDevice, dtype),
            #[cfg(feature = "candle")]
            BackendName::Candle => <Candle as crate::Backend>::computes_in(&Default::default(), dtype),
            _ => true,
        };
        if computes { Ok(()) } else { Err(DeviceError::Dtype { backend, dtype: dtype.name() }) }
    }

    /// Probes for the device, then runs the program on it. On a CPU, the program runs on a thread of the kernels' pool.
    ///
    /// This crate does not contain OpenXLA's backend; `grove::run` runs programs on all devices.
    ///
    /// Does not configure the allocator. Call [`keep_freed_memory`](crate::keep_freed_memory) first to reuse freed memory
    /// for later tensors; otherwise training takes up to a third longer.
    ///
    /// # Errors
    /// As [`probe`](Self::probe).
    pub fn run<P: Program>(self, program: P) -> Result<P::Output, DeviceError> {
        self.probe()?;
        match self.backend {
            #[cfg(feature = "flex")]
            BackendName::Flex => Ok(on_cpu(|| program.run::<burn_flex::Flex>(burn_flex::FlexDevice))),
            #[cfg(feature = "candle")]
            BackendName::Candle => Ok(on_cpu(|| program.run::<Candle>(Default::default()))),
            #[cfg(feature = "cuda")]
            BackendName::Cuda => Ok(program.run::<burn_cuda::Cuda>(burn_cuda::CudaDevice::new(self.index))),
            #[cfg(feature = "wgpu")]
            BackendName::Wgpu => Ok(program.run::<burn_wgpu::Wgpu>(probe::wgpu_device(self.index))),
            #[cfg(feature = "rocm")]
            BackendName::Rocm => Ok(program.run::<burn_rocm::Rocm>(burn_rocm::RocmDevice::new(self.index))),
            backend if backend.is_xla() => {
                let reason = "this function does not support XLA's devices; `grove::run` does".into();
                Err(DeviceError::Unavailable { backend, reason })
            }
            #[allow(unreachable_patterns)]
            backend => Err(DeviceError::NotCompiled { backend }),
        }
    }
}

/// Runs a program on the thread pool that the kernels share.
#[cfg(any(feature = "flex", feature = "candle"))]
fn on_cpu<R: Send>(run: impl FnOnce() -> R + Send) -> R {
    grove_kernels::as_worker(run)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for backend in BackendName::ALL {
            assert_eq!(backend.to_string().parse(), Ok(backend));
        }
        let error = "cude".parse::<BackendName>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown backend 'cude'; choose one of flex, candle, cuda, wgpu, rocm, xla, xla:cpu, xla:cuda, xla:tpu"
        );
    }

    #[test]
    #[cfg(feature = "candle")]
    fn candle_does_not_compute_in_bf16() {
        let candle = DeviceSpec::new(BackendName::Candle, 0);
        let refusal = DeviceError::Dtype { backend: BackendName::Candle, dtype: "bf16" };
        assert_eq!(candle.computes_in(DType::BF16), Err(refusal));
        for dtype in [DType::F16, DType::F32, DType::F64] {
            assert_eq!(candle.computes_in(dtype), Ok(()));
        }
        let flex = DeviceSpec::new(BackendName::Flex, 0);
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            assert_eq!(flex.computes_in(dtype), Ok(()));
        }
        assert!(flex.computes_in(DType::I64).is_err());
    }

    #[test]
    fn a_cpu_has_one_device() {
        assert_eq!(DeviceSpec::new(BackendName::Flex, 0).probe(), Ok(()));
        let error = DeviceSpec::new(BackendName::Flex, 1).probe().unwrap_err();
        assert_eq!(error, DeviceError::Index { backend: BackendName::Flex, count: 1, index: 1 });
    }
}
