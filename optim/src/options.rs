//! Options of optimizers: setters, and validation of values in files.

use grove_backend::Backend;
use grove_tree::{Filter, by_path, is_inexact};
use serde::{
    Deserialize, Deserializer,
    de::{Error, Unexpected},
};
use serde_json::Value;

use crate::{Scalar, ScalarOrSchedule, Schedule, matrices};

/// Generates a setter for each option, so that `Adamw::default().weight_decay(0.1)` needs no conversion. An `into`
/// setter accepts everything that converts into the type, a `some` setter everything that converts into the content of
/// the `Option`.
macro_rules! setters {
    ($Options:ident: $($how:ident $field:ident: $Type:ty,)*) => {
        impl<B: Backend> $Options<B> {
            $(setters!(@$how $field $Type);)*
        }
    };
    (@into $field:ident $Type:ty) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        #[must_use]
        pub fn $field(self, $field: impl Into<$Type>) -> Self {
            Self { $field: $field.into(), ..self }
        }
    };
    (@some $field:ident $Type:ty) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        #[must_use]
        pub fn $field(self, $field: impl Into<$Type>) -> Self {
            Self { $field: Some($field.into()), ..self }
        }
    };
    (@plain $field:ident $Type:ty) => {
        #[doc = concat!("Sets `", stringify!($field), "`.")]
        #[must_use]
        pub fn $field(self, $field: $Type) -> Self {
            Self { $field, ..self }
        }
    };
}
pub(crate) use setters;

/// A constant of at least 0.
impl<'de, B: Backend> Deserialize<'de> for Scalar<B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        nonnegative(deserializer)
    }
}

/// A constant of at least 0, or a schedule.
impl<'de, B: Backend> Deserialize<'de> for ScalarOrSchedule<B> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        if value.is_object() {
            let schedule = Schedule::deserialize(value).map_err(D::Error::custom)?;
            schedule.check().map_err(D::Error::custom)?;
            return Ok(schedule.into());
        }
        nonnegative(value).map_err(D::Error::custom)
    }
}

/// A number of at least 0.
pub(crate) fn nonnegative<'de, D: Deserializer<'de>, T: From<f64>>(deserializer: D) -> Result<T, D::Error> {
    number(deserializer, |x| x >= 0.0, "a number of at least 0")
}

/// A decay rate: at least 0 and below 1.
pub(crate) fn fraction<'de, D: Deserializer<'de>, T: From<f64>>(deserializer: D) -> Result<T, D::Error> {
    number(deserializer, |x| (0.0..1.0).contains(&x), "a number of at least 0 and below 1")
}

/// A positive number.
pub(crate) fn positive<'de, D: Deserializer<'de>, T: From<f64>>(deserializer: D) -> Result<T, D::Error> {
    number(deserializer, |x| x > 0.0, "a positive number")
}

/// [`fraction`] for an option that may be absent.
pub(crate) fn some_fraction<'de, D: Deserializer<'de>, T: From<f64>>(deserializer: D) -> Result<Option<T>, D::Error> {
    fraction(deserializer).map(Some)
}

/// [`positive`] for an option that may be absent.
pub(crate) fn some_positive<'de, D: Deserializer<'de>, T: From<f64>>(deserializer: D) -> Result<Option<T>, D::Error> {
    positive(deserializer).map(Some)
}

fn number<'de, D: Deserializer<'de>, T: From<f64>>(
    deserializer: D,
    valid: impl Fn(f64) -> bool,
    expected: &'static str,
) -> Result<T, D::Error> {
    let x = f64::deserialize(deserializer)?;
    match x.is_finite() && valid(x) {
        true => Ok(x.into()),
        false => Err(D::Error::invalid_value(Unexpected::Float(x), &expected)),
    }
}

/// Number of iterations in each step, from 1 to 100.
pub(crate) fn iterations<'de, D: Deserializer<'de>>(deserializer: D) -> Result<usize, D::Error> {
    let count = u64::deserialize(deserializer)?;
    match count {
        1..=100 => Ok(count as usize),
        _ => Err(D::Error::invalid_value(Unexpected::Unsigned(count), &"a whole number from 1 to 100")),
    }
}

/// A parameter mask: `"all"`, `"matrices"` or a list of path patterns.
pub(crate) fn mask<'de, D: Deserializer<'de>, B: Backend>(deserializer: D) -> Result<Option<Filter<B>>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(Some(match value.as_str() {
        Some("all") => is_inexact(),
        Some("matrices") => matrices(),
        _ => any_path(&Vec::<String>::deserialize(&value).map_err(|_| {
            D::Error::custom(format!(
                "{value} selects no parameters; expected `all`, `matrices` or a list of path patterns"
            ))
        })?),
    }))
}

/// Passes the leaves whose paths match one of the patterns.
pub(crate) fn any_path<B: Backend>(patterns: &[String]) -> Filter<B> {
    let nothing = Filter::new(|_, _| false);
    patterns.iter().fold(nothing, |filter, pattern| filter | by_path(pattern))
}
