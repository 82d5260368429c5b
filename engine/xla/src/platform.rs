//! Kinds of devices.

use std::fmt;

/// A kind of devices, each with a plugin of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Platform {
    /// Google's TPUs.
    Tpu,
    /// NVIDIA's GPUs.
    Cuda,
    /// The processor.
    Cpu,
}

impl Platform {
    /// In the order in which they are preferred.
    pub const ALL: [Self; 3] = [Self::Tpu, Self::Cuda, Self::Cpu];

    /// The command that brings the plugin.
    pub fn install(self) -> &'static str {
        match self {
            Self::Tpu => "pip install libtpu",
            Self::Cuda => "pip install \"jax[cuda12]\"",
            Self::Cpu => "pip install xla-cpu-pjrt==0.0.1",
        }
    }

    /// Files of the plugin in a folder of Python packages; a `*` is any part of a name.
    pub(crate) fn files(self) -> &'static [&'static str] {
        match self {
            Self::Tpu => &["libtpu/libtpu.so"],
            Self::Cuda => &["jax_plugins/xla_cuda*/xla_cuda_plugin.so"],
            Self::Cpu => &["xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"],
        }
    }

    /// Names of the plugin in a folder of libraries: that of the package, and that of OpenXLA's build.
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
