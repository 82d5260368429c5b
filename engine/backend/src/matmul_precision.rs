//! Precision of products of f32 on GPUs whose tensor cores would round them.

use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU8, Ordering},
};
use thiserror::Error;

/// Precision in which matrix products and convolutions of f32 are computed, as `default_matmul_precision` in JAX and
/// `set_float32_matmul_precision` in PyTorch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// In f32 on every device.
    #[default]
    Highest,
    /// On a GPU with tensor cores for TF32 the factors may be rounded to 10 bits behind the point; sums are in f32. Other
    /// devices compute in f32.
    High,
}

/// No precision has this name.
#[derive(Clone, Error, PartialEq, Eq)]
#[error("unknown precision '{name}'; choose one of highest, high")]
pub struct UnknownPrecision {
    /// The rejected value.
    pub name: String,
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl std::fmt::Debug for UnknownPrecision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl MatmulPrecision {
    /// Every precision.
    pub const ALL: [Self; 2] = [Self::Highest, Self::High];

    /// The name a person types.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Highest => "highest",
            Self::High => "high",
        }
    }
}

impl fmt::Display for MatmulPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for MatmulPrecision {
    type Err = UnknownPrecision;

    fn from_str(name: &str) -> Result<Self, UnknownPrecision> {
        let known = Self::ALL.into_iter().find(|precision| precision.as_str() == name);
        known.ok_or_else(|| UnknownPrecision { name: name.to_owned() })
    }
}

/// The environment variable that is read where a program has not called [`set_matmul_precision`].
pub(crate) const VARIABLE: &str = "GROVE_MATMUL_PRECISION";

/// Nobody has asked or answered yet.
const UNKNOWN: u8 = 0;
const HIGHEST: u8 = 1;
const HIGH: u8 = 2;

static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);

fn state_of(precision: MatmulPrecision) -> u8 {
    match precision {
        MatmulPrecision::Highest => HIGHEST,
        MatmulPrecision::High => HIGH,
    }
}

/// Sets the precision of the products and convolutions of f32 that follow, those of backward passes too. Before the first
/// call the environment decides, by `GROVE_MATMUL_PRECISION=highest` or `high`; without it the precision is
/// [highest](MatmulPrecision::Highest).
///
/// At the highest precision a GPU with tensor cores uses none of them for f32, and no product of f32 is fused with what
/// follows it. Numbers of 16 bits are not affected, nor are devices without TF32.
pub fn set_matmul_precision(precision: MatmulPrecision) {
    STATE.store(state_of(precision), Ordering::Relaxed);
}

/// The precision of products and convolutions of f32; see [`set_matmul_precision`].
pub fn matmul_precision() -> MatmulPrecision {
    let state = match STATE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let state = state_of(from_environment().unwrap_or_default());
            // Unless somebody has set it meanwhile.
            STATE
                .compare_exchange(UNKNOWN, state, Ordering::Relaxed, Ordering::Relaxed)
                .map_or_else(|set| set, |_| state)
        }
        state => state,
    };
    if state == HIGH { MatmulPrecision::High } else { MatmulPrecision::Highest }
}

/// The environment's precision, or the default without one.
///
/// # Errors
/// The variable holds no precision's name.
pub(crate) fn from_environment() -> Result<MatmulPrecision, UnknownPrecision> {
    match std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) {
        Some(value) => value.to_string_lossy().trim().parse(),
        None => Ok(MatmulPrecision::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for precision in MatmulPrecision::ALL {
            assert_eq!(precision.to_string().parse(), Ok(precision));
        }
        let error = "tf32".parse::<MatmulPrecision>().unwrap_err();
        assert_eq!(error.to_string(), "unknown precision 'tf32'; choose one of highest, high");
    }

    #[test]
    fn what_was_set_last_counts() {
        for precision in [MatmulPrecision::High, MatmulPrecision::Highest] {
            set_matmul_precision(precision);
            assert_eq!(matmul_precision(), precision);
        }
    }
}
