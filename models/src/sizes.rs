//! Checks of the fields that every configuration has.

use crate::error::{ModelError, Result};

/// Checks sizes, each with the name of its field: between 1 and `2^bits`, so that no number of elements overflows a machine
/// word.
///
/// # Errors
/// [`ModelError::Config`] naming the first field that is outside.
pub(crate) fn check_sizes<'a>(bits: u32, sizes: impl IntoIterator<Item = (&'a str, usize)>) -> Result<()> {
    match sizes.into_iter().find(|&(_, size)| size == 0 || size > 1 << bits) {
        Some((name, size)) => {
            Err(ModelError::Config { reason: format!("{name} is {size}; it must be between 1 and 2^{bits}") })
        }
        None => Ok(()),
    }
}

/// Checks dropout rates, each with the name of its field: at least 0 and less than 1.
///
/// # Errors
/// [`ModelError::Config`] naming the first field that is outside.
pub(crate) fn check_rates<'a>(rates: impl IntoIterator<Item = (&'a str, f64)>) -> Result<()> {
    match rates.into_iter().find(|(_, rate)| !(0.0..1.0).contains(rate)) {
        Some((name, rate)) => {
            Err(ModelError::Config { reason: format!("{name} is {rate}; it must be at least 0 and less than 1") })
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_the_field_that_is_outside() {
        assert!(check_sizes(10, [("layers", 1), ("width", 1024)]).is_ok());
        for size in [0, 1025] {
            let error = check_sizes(10, [("layers", 1), ("width", size)]).unwrap_err().to_string();
            assert!(error.contains(&format!("width is {size}; it must be between 1 and 2^10")), "{error}");
        }
        assert!(check_rates([("dropout", 0.0), ("drop_path", 0.99)]).is_ok());
        for rate in [-0.1, 1.0, f64::NAN] {
            let error = check_rates([("dropout", 0.0), ("drop_path", rate)]).unwrap_err().to_string();
            assert!(error.contains(&format!("drop_path is {rate}; it must be at least 0")), "{error}");
        }
    }
}
