//! Precision of f32 products on GPUs whose tensor cores round the factors.

use std::{
    fmt,
    str::FromStr,
    sync::{Mutex, PoisonError},
};
use thiserror::Error;

/// Precision of f32 matrix products and convolutions, like `default_matmul_precision` in JAX and
/// `set_float32_matmul_precision` in PyTorch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MatmulPrecision {
    /// f32 on every device.
    #[default]
    Highest,
    /// GPUs with TF32 tensor cores may round the factors to 10 mantissa bits and sum in f32. Other devices compute in f32.
    High,
}

/// Error: no precision has this name.
#[derive(Clone, Error, PartialEq, Eq)]
#[error("unknown precision '{name}'; choose one of highest, high")]
pub struct UnknownPrecision {
    /// The rejected value.
    pub name: String,
}

// `fn main() -> Result<(), Box<dyn Error>>` prints `Debug`.
impl fmt::Debug for UnknownPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl MatmulPrecision {
    /// Every precision.
    pub const ALL: [Self; 2] = [Self::Highest, Self::High];

    /// Returns the name that a user types.
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

/// Environment variable that is read if the program has not called [`set_matmul_precision`].
pub(crate) const VARIABLE: &str = "GROVE_MATMUL_PRECISION";

/// The current precision; `None` until the program or the environment has set it.
static PRECISION: Mutex<Option<MatmulPrecision>> = Mutex::new(None);

/// Sets the precision of subsequent f32 products and convolutions, including those of backward passes. Until the first
/// call, `GROVE_MATMUL_PRECISION=highest` or `high` in the environment sets the precision; the default is
/// [highest](MatmulPrecision::Highest).
///
/// At the highest precision a GPU uses no tensor cores for f32, and no f32 product is fused with later operations. 16-bit
/// dtypes and devices without TF32 are not affected.
pub fn set_matmul_precision(precision: MatmulPrecision) {
    *PRECISION.lock().unwrap_or_else(PoisonError::into_inner) = Some(precision);
}

/// Returns the precision of f32 products and convolutions; see [`set_matmul_precision`].
pub fn matmul_precision() -> MatmulPrecision {
    let mut precision = PRECISION.lock().unwrap_or_else(PoisonError::into_inner);
    *precision.get_or_insert_with(|| from_environment().unwrap_or_default())
}

/// Returns the environment's precision, or the default if the variable is unset or empty.
///
/// # Errors
/// [`UnknownPrecision`] if the variable holds another name.
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
    fn the_last_setting_applies() {
        for precision in [MatmulPrecision::High, MatmulPrecision::Highest] {
            set_matmul_precision(precision);
            assert_eq!(matmul_precision(), precision);
        }
    }
}
