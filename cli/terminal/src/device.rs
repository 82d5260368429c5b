//! Options of the device, the dtype and the kernels of GPUs.

use clap::{Args, ValueEnum};
use grove::{
    backend::{
        AutotuneLevel, BackendName, DeviceSpec, MatmulPrecision, compile_progress, set_autotune_level,
        set_matmul_precision,
    },
    distributed::local_rank,
    tensor::{DType, FloatDType},
};
use serde::{Deserialize, Serialize};

use crate::{Exit, terminal::is_silent};

/// Environment variable with the lowest level of messages that XLA's plugins print: 0 is info, 1 is warnings.
const PLUGIN_LOG: &str = "TF_CPP_MIN_LOG_LEVEL";

/// Silences messages of XLA's plugins below warnings, unless the environment sets the level. Must be called before threads start.
pub fn quiet_plugins() {
    if std::env::var_os(PLUGIN_LOG).is_none() {
        // SAFETY: no other thread reads or writes the environment: programs call this while they read their options, before they
        // start threads.
        unsafe { std::env::set_var(PLUGIN_LOG, "1") };
    }
}

/// Device, dtype and kernel options.
#[derive(Args, Debug, Clone)]
pub struct DeviceArgs {
    /// Backend: flex, candle, cuda, wgpu, rocm or xla; also xla:cpu, xla:cuda and xla:tpu
    #[arg(long, value_name = "NAME", default_value = "flex", help_heading = "Device")]
    pub backend: String,

    /// Index of the backend's device, from 0 [default: 0; under mpirun, each rank of a machine uses its own GPU]
    #[arg(long, value_name = "N", help_heading = "Device")]
    pub device_index: Option<usize>,

    /// Type of the weights and of the computation
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32, help_heading = "Device")]
    pub dtype: Dtype,

    /// Kernel options of GPUs.
    #[command(flatten)]
    pub kernels: KernelArgs,
}

/// Precision and autotuning of a GPU's kernels.
#[derive(Args, Serialize, Deserialize, Debug, Clone, Copy, Default)]
pub struct KernelArgs {
    /// Precision of f32 matrix products and convolutions on GPUs [default: GROVE_MATMUL_PRECISION, or highest]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Device")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub precision: Option<Precision>,

    /// Effort of autotuning GPU kernels at their first use [default: CubeCL's configuration, or balanced]
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Device")]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autotune: Option<Autotune>,
}

impl KernelArgs {
    /// Applies the options to all devices probed from now on.
    pub fn set(&self) {
        if let Some(precision) = self.precision {
            set_matmul_precision(precision.into());
        }
        if let Some(level) = self.autotune {
            set_autotune_level(level.into());
        }
    }
}

impl DeviceArgs {
    /// Applies the options and returns the device, which may not exist.
    pub fn spec(&self) -> Result<DeviceSpec, Exit> {
        self.kernels.set();
        let backend = self.backend.parse()?;
        let of_rank = || DeviceSpec::of_rank(backend, local_rank());
        let device = self.device_index.map_or_else(of_rank, |index| DeviceSpec::new(backend, index));
        device.computes_in(self.dtype.into()).map_err(|error| Exit::Usage(format!("--dtype: {error}")))?;
        if let Some(note) = half_note(device.backend, self.dtype).filter(|_| !is_silent()) {
            eprintln!("{note}");
        }
        if device.backend == BackendName::Cuda {
            compile_progress::show();
        }
        if device.backend.is_xla() {
            quiet_plugins();
        }
        Ok(device)
    }
}

/// Returns the note on a 16-bit type on candle, whose kernels for it are slower than those for f32.
fn half_note(backend: BackendName, dtype: Dtype) -> Option<String> {
    let is_half = matches!(dtype, Dtype::F16 | Dtype::Bf16);
    let name = dtype.name();
    (is_half && backend == BackendName::Candle).then(|| {
        format!("[--dtype {name}: {backend} converts 16-bit values to f32, which saves memory and is usually slower than f32]")
    })
}

/// Floating-point type.
#[allow(missing_docs)] // Docs of variants would be shown by --help.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    /// The type in the file if the model supports it, else f32
    Auto,
}

impl Dtype {
    /// Returns the name on the command line.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// Returns the requested type; `None` for `Auto`.
    pub fn wanted(self) -> Option<DType> {
        (self != Self::Auto).then(|| self.into())
    }
}

impl From<Dtype> for FloatDType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 | Dtype::Auto => Self::F32,
            Dtype::F16 => Self::F16,
            Dtype::Bf16 => Self::BF16,
        }
    }
}

impl From<Dtype> for DType {
    fn from(dtype: Dtype) -> Self {
        FloatDType::from(dtype).into()
    }
}

/// Precision of f32 matrix products and convolutions, with the names of `torch.set_float32_matmul_precision`.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Full f32
    Highest,
    /// TF32 on GPUs with tensor cores for it
    High,
}

impl Precision {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        MatmulPrecision::from(self).as_str()
    }
}

impl From<Precision> for MatmulPrecision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Highest => Self::Highest,
            Precision::High => Self::High,
        }
    }
}

/// Effort of autotuning.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Autotune {
    /// Use the first kernel that runs: fastest start
    Minimal,
    /// Try kernels that are likely to be fast
    Balanced,
    /// Also try kernels that may be fast
    Extensive,
    /// Try all kernels
    Full,
}

impl From<Autotune> for AutotuneLevel {
    fn from(level: Autotune) -> Self {
        match level {
            Autotune::Minimal => Self::Minimal,
            Autotune::Balanced => Self::Balanced,
            Autotune::Extensive => Self::Extensive,
            Autotune::Full => Self::Full,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_16_bits_on_a_cpu() {
        let note = half_note(BackendName::Candle, Dtype::F16).expect("a note");
        assert!(note.contains("--dtype f16") && note.contains("slower"), "{note}");
        for (backend, dtype) in
            [(BackendName::Candle, Dtype::F32), (BackendName::Flex, Dtype::Bf16), (BackendName::Cuda, Dtype::F16)]
        {
            assert_eq!(half_note(backend, dtype), None);
        }
    }
}
