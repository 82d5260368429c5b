//! Kinds of devices.

use std::fmt;

/// A kind of device, with its own plugin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Google's TPUs.
    Tpu,
    /// NVIDIA's GPUs.
    Cuda,
    /// CPUs.
    Cpu,
}

impl Platform {
    /// All platforms, by preference.
    pub const ALL: [Self; 3] = [Self::Tpu, Self::Cuda, Self::Cpu];

    /// Returns the command that installs the plugin.
    pub fn install(self) -> &'static str {
        match self {
            Self::Tpu => "pip install libtpu",
            Self::Cuda => "pip install \"jax[cuda12]\"",
            Self::Cpu => "pip install xla-cpu-pjrt==0.0.1",
        }
    }

    /// Returns the plugin's files in a folder of Python packages; a `*` matches any part of a name.
    pub(crate) fn files(self) -> &'static [&'static str] {
        match self {
            Self::Tpu => &["libtpu/libtpu.so"],
            Self::Cuda => &["jax_plugins/xla_cuda*/xla_cuda_plugin.so"],
            Self::Cpu => &["xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"],
        }
    }

    /// Returns the plugin's file names in a library folder: that of the package, and that of OpenXLA's build.
    pub(crate) fn libraries(self) -> &'static [&'static str] {
        match self {
            Self::Tpu => &["libtpu.so"],
            Self::Cuda => &["xla_cuda_plugin.so", "pjrt_c_api_gpu_plugin.so"],
            Self::Cpu => &["xla_cpu_pjrt.so", "pjrt_c_api_cpu_plugin.so"],
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tpu => "tpu",
            Self::Cuda => "cuda",
            Self::Cpu => "cpu",
        })
    }
}
