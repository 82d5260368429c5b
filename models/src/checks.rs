//! Checks of fields that are common to all configurations. An error is a
//! [`ModelError::Config`](crate::ModelError::Config) that names the fields.

use crate::error::{Result, invalid};

/// Checks that sizes are between 1 and `2^bits`, so that no number of elements overflows. Each size has the name of its
/// field.
pub(crate) fn check_sizes<'a>(bits: u32, sizes: impl IntoIterator<Item = (&'a str, usize)>) -> Result<()> {
    let possible = |size| 0 < size && size <= 1 << bits;
    sizes.into_iter().try_for_each(|(name, size)| {
        check(possible(size), || format!("{name} is {size}; it must be between 1 and 2^{bits}"))
    })
}

/// Checks that dropout rates are at least 0 and less than 1. Each rate has the name of its field.
pub(crate) fn check_rates<'a>(rates: impl IntoIterator<Item = (&'a str, f64)>) -> Result<()> {
    rates.into_iter().try_for_each(|(name, rate)| {
        check((0.0..1.0).contains(&rate), || format!("{name} is {rate}; it must be at least 0 and less than 1"))
    })
}

/// Checks that a size is a multiple of another. Each size has the name of its field.
pub(crate) fn check_divisible(size: (&str, usize), by: (&str, usize)) -> Result<()> {
    check(size.1.is_multiple_of(by.1), || format!("{}, {}, is not divisible by {}, {}", size.0, size.1, by.0, by.1))
}

/// Checks that a number of layers is at most 10000.
pub(crate) fn check_depth(name: &str, layers: usize) -> Result<()> {
    check(layers <= 10_000, || format!("{name} is {layers}; more than 10000 are not supported"))
}

/// Checks that an image classifier has at most 2^24 classes.
pub(crate) fn check_classes(classes: usize) -> Result<()> {
    check(classes <= 1 << 24, || format!("{classes} classes are too many"))
}

/// Checks that the epsilon of a norm is positive.
pub(crate) fn check_epsilon(name: &str, epsilon: f64) -> Result<()> {
    check(epsilon.is_finite() && epsilon > 0.0, || format!("{name} is {epsilon}; it must be positive"))
}

/// Checks that the standard deviation of initial weights is not negative.
pub(crate) fn check_initializer_range(range: f64) -> Result<()> {
    check(range.is_finite() && range >= 0.0, || format!("initializer_range is {range}; it must not be negative"))
}

/// Checks the `model_type` of a `config.json`.
pub(crate) fn check_model_type(found: &str, expected: &str) -> Result<()> {
    check(found == expected, || format!("model_type is '{found}', but this is the loader of {expected}"))
}

/// Returns an error unless the configuration is `possible`.
pub(crate) fn check(possible: bool, reason: impl FnOnce() -> String) -> Result<()> {
    if possible { Ok(()) } else { invalid(reason()) }
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
