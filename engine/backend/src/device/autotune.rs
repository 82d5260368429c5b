//! Autotuning level: the effort spent on choosing among kernels for the same operation.

use std::{
    fmt,
    sync::{Mutex, PoisonError},
};

/// Level of a fusing backend's autotuning: the number of kernels that are compiled and measured when an operation first
/// occurs. The fastest one is used from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AutotuneLevel {
    /// As few kernels as Burn's operations allow; for a product of matrices still several.
    Minimal,
    /// The kernels that are likely to be fast.
    Balanced,
    /// Also kernels that may be fast.
    Extensive,
    /// All kernels.
    Full,
}

impl AutotuneLevel {
    /// All levels, from the quickest start to the fastest kernels.
    pub const ALL: [Self; 4] = [Self::Minimal, Self::Balanced, Self::Extensive, Self::Full];

    /// Returns the name that a user types, which is CubeCL's.
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

/// Sets the level of autotuning for devices that are [probed](crate::DeviceSpec::probe) later. It overrides
/// `CUBECL_AUTOTUNE_LEVEL` and CubeCL's configuration file. It has no effect once a GPU was probed, nor on CPUs.
pub fn set_autotune_level(level: AutotuneLevel) {
    *LEVEL.lock().unwrap_or_else(PoisonError::into_inner) = Some(level);
}

/// Returns the level that the program has set.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(super) fn autotune_level() -> Option<AutotuneLevel> {
    *LEVEL.lock().unwrap_or_else(PoisonError::into_inner)
}
