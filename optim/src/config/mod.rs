//! Optimizers as plain data, for configuration files.

mod build;
mod options;
mod schedule;

pub use options::OptimizerName;
pub use schedule::{NamedSchedule, ScheduleConfig};

use grove_backend::Backend;
use grove_tree::{Filter, by_path, is_inexact};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

use crate::{OptimError, matrices};

/// An optimizer with its schedule, masks and wrappers, as plain data.
///
/// In a file it is one object with the fields of this struct, of which only `name` and `learning_rate` are required,
/// and the options of the optimizer under optax's names. [`build`](Self::build) makes the chain.
///
/// ```
/// use grove_optim::{GradientTransformation, OptimizerConfig};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let config = OptimizerConfig::from_json(
///     r#"{
///         "name": "adamw",
///         "learning_rate": {"warmup_cosine": {"peak_value": 3e-4, "warmup_steps": 100, "decay_steps": 1000}},
///         "weight_decay": 0.1,
///         "weight_decay_mask": "matrices",
///         "clip": 1.0
///     }"#,
/// )?;
/// let optimizer = config.build::<B, Array<B, 2>>()?;
/// let state = optimizer.init(&Array::absent([2, 3]));
/// assert!(state.contains_key("1.0.mu"));
///
/// let error = OptimizerConfig::from_json(r#"{"name": "adamw", "learning_rate": 1e-3, "weightdecay": 0.1}"#).unwrap_err();
/// assert!(error.to_string().starts_with("adamw has no option `weightdecay`, did you mean `weight_decay`?"));
/// # Ok::<(), grove_optim::OptimError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Value", into = "Value")]
pub struct OptimizerConfig {
    /// The optimizer.
    pub name: OptimizerName,
    /// The learning rate. In a file, a number or a schedule by its name.
    pub learning_rate: ScheduleConfig,
    /// The optimizer's other options, which in a file are fields of the same object. Missing ones have optax's
    /// defaults.
    pub options: BTreeMap<String, Value>,
    /// Parameters that weight decay applies to. Default all.
    pub weight_decay_mask: MaskConfig,
    /// Largest global norm of the gradients; `None` for no clipping.
    pub clip: Option<f64>,
    /// Path patterns of the parameters that are not trained.
    pub frozen: Vec<String>,
    /// Number of gradients accumulated per step; `None` for 1.
    pub accumulate: Option<u64>,
    /// Number of consecutive non-finite gradients that are ignored; `None` ignores none.
    pub apply_if_finite: Option<u64>,
}

/// A selection of parameters, as plain data.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MaskConfig {
    /// All parameters.
    #[default]
    All,
    /// Parameters with two axes or more.
    Matrices,
    /// Parameters whose path matches one of the patterns of [`by_path`](grove_tree::by_path).
    #[serde(untagged)]
    Paths(Vec<String>),
}

impl MaskConfig {
    /// Returns the filter for these parameters.
    pub fn filter<B: Backend>(&self) -> Filter<B> {
        match self {
            Self::All => is_inexact(),
            Self::Matrices => matrices(),
            Self::Paths(patterns) => any_path(patterns),
        }
    }
}

fn any_path<B: Backend>(patterns: &[String]) -> Filter<B> {
    let nothing = Filter::new(|_, _| false);
    patterns.iter().fold(nothing, |filter, pattern| filter | by_path(pattern))
}

impl OptimizerConfig {
    /// Creates a configuration with optax's defaults and without clipping, masks or wrappers.
    pub fn new(name: OptimizerName, learning_rate: impl Into<ScheduleConfig>) -> Self {
        Self {
            name,
            learning_rate: learning_rate.into(),
            options: BTreeMap::new(),
            weight_decay_mask: MaskConfig::All,
            clip: None,
            frozen: Vec::new(),
            accumulate: None,
            apply_if_finite: None,
        }
    }

    /// Parses a configuration.
    ///
    /// # Errors
    /// [`OptimError`]: invalid JSON, an unknown optimizer or option, or an invalid value.
    pub fn from_json(text: &str) -> Result<Self, OptimError> {
        serde_json::from_str::<Value>(text).map_err(|error| OptimError::Syntax(error.to_string()))?.try_into()
    }

    /// Checks that all values are valid. Parsing and building call this too.
    ///
    /// # Errors
    /// [`OptimError::UnknownOption`] and [`OptimError::Value`].
    pub fn check(&self) -> Result<(), OptimError> {
        self.learning_rate.schedule()?;
        options::check(self.name, &self.options)?;
        let wrong = |name: &str, value: String, expected| Err(OptimError::Value { name: name.into(), value, expected });
        if let Some(clip) = self.clip.filter(|clip| !(clip.is_finite() && *clip > 0.0)) {
            return wrong("clip", clip.to_string(), "a positive number");
        }
        if self.accumulate == Some(0) {
            return wrong("accumulate", "0".into(), "at least 1");
        }
        let decays = options::names(self.name).iter().any(|name| name.starts_with("weight_decay"));
        if !decays && self.weight_decay_mask != MaskConfig::All {
            return wrong("weight_decay_mask", "given".into(), "left out: this optimizer has no weight decay");
        }
        Ok(())
    }
}

/// Removes a field from an object and deserialises it; `None` if it is missing or null.
fn take<T: for<'de> Deserialize<'de>>(object: &mut Map<String, Value>, name: &str) -> Result<Option<T>, OptimError> {
    match object.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            serde_json::from_value(value).map(Some).map_err(|error| OptimError::Syntax(format!("`{name}`: {error}")))
        }
    }
}

impl TryFrom<Value> for OptimizerConfig {
    type Error = OptimError;

    fn try_from(value: Value) -> Result<Self, OptimError> {
        let Value::Object(mut object) = value else {
            return Err(OptimError::Syntax(format!(
                "it is an object, as {{\"name\": \"adamw\", …}}, and this is {value}"
            )));
        };
        let missing = |name: &str| OptimError::Syntax(format!("`{name}` is missing"));
        let name: String = take(&mut object, "name")?.ok_or_else(|| missing("name"))?;
        let config = Self {
            name: name.parse()?,
            learning_rate: take(&mut object, "learning_rate")?.ok_or_else(|| missing("learning_rate"))?,
            weight_decay_mask: take(&mut object, "weight_decay_mask")?.unwrap_or_default(),
            clip: take(&mut object, "clip")?,
            frozen: take(&mut object, "frozen")?.unwrap_or_default(),
            accumulate: take(&mut object, "accumulate")?,
            apply_if_finite: take(&mut object, "apply_if_finite")?,
            options: object.into_iter().collect(),
        };
        config.check()?;
        Ok(config)
    }
}

impl From<OptimizerConfig> for Value {
    fn from(config: OptimizerConfig) -> Self {
        let mut object = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                object.insert(name.to_owned(), value);
            }
        };
        // Values of numbers and strings always serialise to JSON.
        let json = |value: serde_json::Result<Value>| value.unwrap_or_default();
        put("name", Some(config.name.as_str().into()));
        put("learning_rate", Some(json(serde_json::to_value(config.learning_rate))));
        let mask = (config.weight_decay_mask != MaskConfig::All).then_some(config.weight_decay_mask);
        put("weight_decay_mask", mask.map(|mask| json(serde_json::to_value(mask))));
        put("clip", config.clip.map(Value::from));
        put("frozen", (!config.frozen.is_empty()).then(|| config.frozen.into()));
        put("accumulate", config.accumulate.map(Value::from));
        put("apply_if_finite", config.apply_if_finite.map(Value::from));
        object.extend(config.options);
        Value::Object(object)
    }
}
