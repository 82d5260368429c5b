use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::OptimError;

/// The optimizers that a configuration can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
#[allow(missing_docs)] // Each variant is the function of its name.
pub enum OptimizerName {
    Adabelief,
    Adafactor,
    Adagrad,
    Adam,
    Adamw,
    Amsgrad,
    Lamb,
    Lars,
    Lion,
    Muon,
    Nadamw,
    Radam,
    Rmsprop,
    Sgd,
}

impl OptimizerName {
    /// All optimizers, in alphabetical order.
    pub const ALL: [Self; 14] = [
        Self::Adabelief,
        Self::Adafactor,
        Self::Adagrad,
        Self::Adam,
        Self::Adamw,
        Self::Amsgrad,
        Self::Lamb,
        Self::Lars,
        Self::Lion,
        Self::Muon,
        Self::Nadamw,
        Self::Radam,
        Self::Rmsprop,
        Self::Sgd,
    ];

    /// The name in files and in optax.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Adabelief => "adabelief",
            Self::Adafactor => "adafactor",
            Self::Adagrad => "adagrad",
            Self::Adam => "adam",
            Self::Adamw => "adamw",
            Self::Amsgrad => "amsgrad",
            Self::Lamb => "lamb",
            Self::Lars => "lars",
            Self::Lion => "lion",
            Self::Muon => "muon",
            Self::Nadamw => "nadamw",
            Self::Radam => "radam",
            Self::Rmsprop => "rmsprop",
            Self::Sgd => "sgd",
        }
    }
}

impl fmt::Display for OptimizerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for OptimizerName {
    type Err = OptimError;

    fn from_str(name: &str) -> Result<Self, OptimError> {
        Self::ALL.into_iter().find(|known| known.as_str() == name).ok_or_else(|| OptimError::UnknownOptimizer {
            name: name.to_owned(),
            known: Self::ALL.iter().map(ToString::to_string).collect(),
        })
    }
}

/// The options of an optimizer that a configuration may set.
pub(super) fn names(optimizer: OptimizerName) -> &'static [&'static str] {
    use OptimizerName as Name;
    match optimizer {
        Name::Adam | Name::Adabelief => &["b1", "b2", "eps", "eps_root", "nesterov"],
        Name::Adamw => &["b1", "b2", "eps", "eps_root", "weight_decay", "nesterov"],
        Name::Nadamw | Name::Lamb => &["b1", "b2", "eps", "eps_root", "weight_decay"],
        Name::Amsgrad => &["b1", "b2", "eps", "eps_root", "bias_correction_mu", "bias_correction_nu"],
        Name::Radam => &["b1", "b2", "eps", "eps_root", "threshold", "nesterov"],
        Name::Adagrad => &["initial_accumulator_value", "eps"],
        Name::Lion => &["b1", "b2", "weight_decay"],
        Name::Lars => &["weight_decay", "trust_coefficient", "eps", "momentum", "nesterov"],
        Name::Sgd => &["momentum", "nesterov"],
        Name::Rmsprop => {
            &["decay", "eps", "initial_scale", "eps_in_sqrt", "centered", "momentum", "nesterov", "bias_correction"]
        }
        Name::Adafactor => &[
            "min_dim_size_to_factor",
            "decay_rate",
            "decay_offset",
            "multiply_by_parameter_scale",
            "clipping_threshold",
            "momentum",
            "weight_decay_rate",
            "eps",
            "factored",
        ],
        Name::Muon => &[
            "ns_steps",
            "beta",
            "eps",
            "weight_decay",
            "nesterov",
            "adaptive",
            "adam_b1",
            "adam_b2",
            "adam_eps_root",
            "adam_weight_decay",
            "adam_learning_rate",
            "consistent_rms",
        ],
    }
}

/// The valid values of an option.
enum Kind {
    /// A decay rate: at least 0 and below 1.
    Fraction,
    Nonnegative,
    Positive,
    Flag,
    Count,
    /// Number of iterations that are computed in each step: 1 to 100.
    Few,
}

fn kind(name: &str) -> Kind {
    match name {
        "b1" | "b2" | "adam_b1" | "adam_b2" | "beta" | "decay" | "momentum" => Kind::Fraction,
        "nesterov"
        | "bias_correction"
        | "bias_correction_mu"
        | "bias_correction_nu"
        | "eps_in_sqrt"
        | "centered"
        | "multiply_by_parameter_scale"
        | "factored"
        | "adaptive" => Kind::Flag,
        "min_dim_size_to_factor" | "decay_offset" => Kind::Count,
        "ns_steps" => Kind::Few,
        "trust_coefficient" | "clipping_threshold" | "adam_learning_rate" | "consistent_rms" => Kind::Positive,
        _ => Kind::Nonnegative,
    }
}

/// Checks that the optimizer has all of these options, and that their values are valid. A null value stands for the
/// default.
pub(super) fn check(optimizer: OptimizerName, options: &BTreeMap<String, Value>) -> Result<(), OptimError> {
    for (name, value) in options {
        if !names(optimizer).contains(&name.as_str()) {
            let known = names(optimizer).iter().map(ToString::to_string).collect();
            return Err(OptimError::UnknownOption { optimizer: optimizer.to_string(), name: name.clone(), known });
        }
        let number = value.as_f64().filter(|number| number.is_finite());
        let (fits, expected) = match kind(name) {
            Kind::Fraction => (number.is_some_and(|x| (0.0..1.0).contains(&x)), "a number from 0 on and below 1"),
            Kind::Nonnegative => (number.is_some_and(|x| x >= 0.0), "a number from 0 on"),
            Kind::Positive => (number.is_some_and(|x| x > 0.0), "a positive number"),
            Kind::Flag => (value.is_boolean(), "true or false"),
            Kind::Count => (value.as_u64().is_some_and(|x| x <= u64::from(u32::MAX)), "a whole number from 0 on"),
            Kind::Few => (value.as_u64().is_some_and(|x| (1..=100).contains(&x)), "a whole number from 1 to 100"),
        };
        if !fits && !value.is_null() {
            return Err(OptimError::Value { name: name.clone(), value: value.to_string(), expected });
        }
    }
    Ok(())
}
