//! Autotuning level: the effort spent on choosing the fastest kernel for an operation.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

/// Autotuning level of a fusing backend: the number of kernels compiled and measured when an operation first occurs. The
/// fastest one is used from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AutotuneLevel {
    /// As few kernels as Burn's operations allow; several for a matrix product.
    Minimal,
    /// Kernels that are likely to be fast.
    Balanced,
    /// Kernels that may be fast, too.
    Extensive,
    /// All kernels.
    Full,
}

impl AutotuneLevel {
    /// All levels, from the quickest start to the fastest kernels.
    pub const ALL: [Self; 4] = [Self::Minimal, Self::Balanced, Self::Extensive, Self::Full];

    /// Returns the name that a user types, as in CubeCL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minimal => "minimal",
            Self::Balanced => "balanced",
            Self::Extensive => "extensive",
            Self::Full => "full",
        }
    }
}

impl fmt::Display for AutotuneLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

static LEVEL: Mutex<Option<AutotuneLevel>> = Mutex::new(None);

/// Sets the autotuning level of devices that are [probed](crate::DeviceSpec::probe) later. Overrides
/// `CUBECL_AUTOTUNE_LEVEL` and CubeCL's configuration file. Has no effect once a GPU has been probed, nor on CPUs.
pub fn set_autotune_level(level: AutotuneLevel) {
    *LEVEL.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
}

/// Returns the level that the program has set.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(super) fn autotune_level() -> Option<AutotuneLevel> {
    *LEVEL.lock().unwrap_or_else(PoisonError::into_inner)
}
