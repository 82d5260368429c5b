//! Options of every program that computes: the device, the type of floating-point values, kernels of GPUs.

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

use crate::Exit;

/// The least level of messages that plugins of XLA print; 0 is that of what they do, 1 of warnings.
const PLUGIN_LOG: &str = "TF_CPP_MIN_LOG_LEVEL";

/// Has plugins of XLA print no messages below warnings, unless the environment says what they print. To be called before threads start.
pub fn quiet_plugins() {
    if std::env::var_os(PLUGIN_LOG).is_none() {
        // SAFETY: a program calls it as it reads its options, before it starts threads.
        unsafe { std::env::set_var(PLUGIN_LOG, "1") };
    }
}

/// Device, dtype, and options of a GPU's kernels.
#[derive(Args, Debug, Clone)]
pub struct DeviceArgs {
    /// Backend: flex, candle, cuda, wgpu, rocm, xla, xla:cpu, xla:cuda or xla:tpu
    #[arg(long, value_name = "NAME", default_value = "flex", help_heading = "Device")]
    pub backend: String,

    /// Index of the backend's device, from 0 [default: 0, or under mpirun a GPU for each rank of a machine]
    #[arg(long, value_name = "N", help_heading = "Device")]
    pub device_index: Option<usize>,

    /// Type of the model's numbers
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = Dtype::F32, help_heading = "Device")]
    pub dtype: Dtype,

    /// Kernels of GPUs.
    #[command(flatten)]
    pub kernels: KernelArgs,
}

/// Precision of a GPU's kernels, and the effort of choosing among them.
#[derive(Args, Debug, Clone)]
pub struct KernelArgs {
    /// Precision of matrix products and convolutions of f32 on GPUs [default: GROVE_MATMUL_PRECISION, or highest]
    #[arg(long, value_enum, value_name = "NAME", help_heading = "Device")]
    pub precision: Option<Precision>,

    /// Effort of choosing the fastest kernels on GPUs, at their first use [default: as CubeCL is configured, or balanced]
    #[arg(long, value_enum, value_name = "LEVEL", help_heading = "Device")]
    pub autotune: Option<Autotune>,
}

impl KernelArgs {
    /// Has the devices that are probed from here on compute so.
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
    /// The device, which may turn out not to be there; it will compute as the options say.
    pub fn spec(&self) -> Result<DeviceSpec, Exit> {
        self.kernels.set();
        let backend = self.backend.parse()?;
        let of_rank = || DeviceSpec::of_rank(backend, local_rank());
        let device = self.device_index.map_or_else(of_rank, |index| DeviceSpec::new(backend, index));
        device.computes_in(self.dtype.into()).map_err(|error| Exit::Usage(format!("--dtype: {error}")))?;
        if device.backend == BackendName::Cuda {
            compile_progress::show();
        }
        if device.backend.is_xla() {
            quiet_plugins();
        }
        Ok(device)
    }
}

/// A type of floating-point values.
#[allow(missing_docs)] // Docs of variants would be shown by --help.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    F32,
    F16,
    Bf16,
    /// As the file has them, where the model is made for that; else f32
    Auto,
}

impl Dtype {
    /// Its name on the command line.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The type that was asked for, if one was.
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

/// Precision of matrix products and convolutions of f32, as `torch.set_float32_matmul_precision` has it.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Computed in f32
    Highest,
    /// Factors may be rounded to TF32 where a GPU has tensor cores for it
    High,
}

impl Precision {
    /// Its name on the command line.
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
    /// The first kernel that runs: the quickest start
    Minimal,
    /// The fastest of those that are likely to be fast
    Balanced,
    /// The fastest of those that may be fast too
    Extensive,
    /// The fastest of all
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
