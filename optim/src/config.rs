//! Optimizers as plain data, for configuration files.

use grove_backend::Backend;
use grove_tree::Tree;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{
    Boxed, ForAnyTree, OptimError, Schedule, adabelief, adafactor, adagrad, adam, adamw, amsgrad, apply_if_finite,
    boxed, clip_by_global_norm, except, lamb, lars, lion, muon, nadamw, options::any_path, radam, rmsprop,
    selective_transform, sgd,
};

/// An optimizer with its schedule, masks and wrappers, as plain data.
///
/// A file contains one object with the fields of this struct and the options of the optimizer, such as those of
/// [`Adamw`](crate::Adamw). Only `name` and `learning_rate` are required; the other fields have optax's defaults. The
/// mask of weight decay is called `weight_decay_mask` in every optimizer: `"all"`, `"matrices"` or a list of path
/// patterns. [`build`](Self::build) makes the chain. Gradient accumulation is an option of the training loop,
/// `grove_train::FitOptions`.
///
/// ```
/// use grove_optim::{GradientTransformation, OptimizerConfig};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let config = OptimizerConfig::from_json(
///     r#"{
///         "name": "adamw",
///         "learning_rate": {"warmup_cosine_decay": {"peak_value": 3e-4, "warmup_steps": 100, "decay_steps": 1000}},
///         "weight_decay": 0.1,
///         "weight_decay_mask": "matrices",
///         "clip": 1.0
///     }"#,
/// )?;
/// let optimizer = config.build::<B, Array<B, 2>>()?;
/// let state = optimizer.init(&Array::absent([2, 3]));
/// assert!(state.contains_key("1.0.mu"));
///
/// let misspelt = OptimizerConfig::from_json(r#"{"name": "adamw", "learning_rate": 1e-3, "weightdecay": 0.1}"#)?;
/// let error = misspelt.build::<B, Array<B, 2>>().err().expect("an error").to_string();
/// assert!(error.contains("unknown field `weightdecay`, expected one of `b1`, `b2`"), "{error}");
/// # Ok::<(), grove_optim::OptimError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerConfig {
    /// The optimizer.
    pub name: OptimizerName,
    /// The learning rate. In a file: a number, or a schedule in the format of [`Schedule`].
    pub learning_rate: Schedule,
    /// Maximum global norm of the gradients; `None` for no clipping.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f64>,
    /// Path patterns of the frozen parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<String>,
    /// Number of consecutive non-finite gradients that are ignored; `None` ignores none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_if_finite: Option<u64>,
    /// The optimizer's own options; in a file, fields of the same object. A null value selects the default.
    #[serde(flatten)]
    pub options: Map<String, Value>,
}

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

impl OptimizerConfig {
    /// Creates a configuration with optax's defaults and without clipping, masks or wrappers.
    pub fn new(name: OptimizerName, learning_rate: impl Into<Schedule>) -> Self {
        let learning_rate = learning_rate.into();
        Self { name, learning_rate, clip: None, frozen: Vec::new(), apply_if_finite: None, options: Map::new() }
    }

    /// Parses a configuration. The optimizer's own options are read by [`build`](Self::build).
    ///
    /// # Errors
    /// [`OptimError`]: invalid JSON, an unknown optimizer or schedule, or an invalid value.
    pub fn from_json(text: &str) -> Result<Self, OptimError> {
        let value = serde_json::from_str(text).map_err(|error| OptimError::Syntax(error.to_string()))?;
        let config: Self = read(value)?;
        config.check()?;
        Ok(config)
    }

    /// Builds the chain: gradient clipping, then the optimizer. `apply_if_finite` wraps this chain, and `frozen` wraps
    /// the result.
    ///
    /// # Errors
    /// [`OptimError`] if the configuration is invalid.
    pub fn build<B: Backend, P: Tree<B> + 'static>(&self) -> Result<Boxed<B, P>, OptimError> {
        self.check()?;
        let clip = self.clip.map(|max_norm| clip_by_global_norm(max_norm));
        let mut chain = boxed((clip, self.optimizer()?));
        if let Some(errors) = self.apply_if_finite {
            chain = boxed(apply_if_finite(chain, errors));
        }
        if !self.frozen.is_empty() {
            chain = boxed(selective_transform(chain, any_path(&self.frozen)));
        }
        Ok(chain)
    }

    /// Builds the chain for trees of any type; see [`build`](Self::build). Programs that train several types of models
    /// compile the optimizers once.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_for_any_tree<B: Backend>(&self) -> Result<ForAnyTree<B>, OptimError> {
        self.build().map(ForAnyTree::new)
    }

    /// Checks that each path pattern of `frozen` and of `weight_decay_mask` matches a parameter. The optimizer panics
    /// otherwise when it makes its state.
    ///
    /// # Errors
    /// [`OptimError::UnmatchedPattern`].
    pub fn check_patterns<B: Backend>(&self, params: &impl Tree<B>) -> Result<(), OptimError> {
        let mask = self.options.get("weight_decay_mask").and_then(Value::as_array);
        let mask = mask.into_iter().flatten().filter_map(Value::as_str);
        let patterns: Vec<&str> = self.frozen.iter().map(String::as_str).chain(mask).collect();
        except(params, &patterns, "").map(drop)
    }

    fn optimizer<B: Backend, P: Tree<B> + 'static>(&self) -> Result<Boxed<B, P>, OptimError> {
        let rate = self.learning_rate.clone();
        Ok(match self.name {
            OptimizerName::Adabelief => boxed(adabelief(rate, self.options()?)),
            OptimizerName::Adafactor => boxed(adafactor(rate, self.options()?)),
            OptimizerName::Adagrad => boxed(adagrad(rate, self.options()?)),
            OptimizerName::Adam => boxed(adam(rate, self.options()?)),
            OptimizerName::Adamw => boxed(adamw(rate, self.options()?)),
            OptimizerName::Amsgrad => boxed(amsgrad(rate, self.options()?)),
            OptimizerName::Lamb => boxed(lamb(rate, self.options()?)),
            OptimizerName::Lars => boxed(lars(rate, self.options()?)),
            OptimizerName::Lion => boxed(lion(rate, self.options()?)),
            OptimizerName::Muon => boxed(muon(rate, self.options()?)),
            OptimizerName::Nadamw => boxed(nadamw(rate, self.options()?)),
            OptimizerName::Radam => boxed(radam(rate, self.options()?)),
            OptimizerName::Rmsprop => boxed(rmsprop(rate, self.options()?)),
            OptimizerName::Sgd => boxed(sgd(rate, self.options()?)),
        })
    }

    /// Parses the optimizer's own options.
    fn options<T: DeserializeOwned>(&self) -> Result<T, OptimError> {
        let given = self.options.iter().filter(|(_, value)| !value.is_null());
        read(given.map(|(name, value)| (name.clone(), value.clone())).collect())
    }

    /// Checks the values that do not depend on the optimizer.
    fn check(&self) -> Result<(), OptimError> {
        self.learning_rate.check()?;
        match self.clip {
            Some(clip) if !(clip.is_finite() && clip > 0.0) => {
                let (name, value, expected) = ("clip".into(), clip.to_string(), "a positive number");
                Err(OptimError::Value { name, value, expected })
            }
            _ => Ok(()),
        }
    }
}

/// Deserializes a value. The error names the field.
fn read<T: DeserializeOwned>(value: Value) -> Result<T, OptimError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let field = error.path().to_string();
        let reason = error.into_inner();
        OptimError::Syntax(if field == "." { reason.to_string() } else { format!("`{field}`: {reason}") })
    })
}
