//! The optimizer of a training run.

use clap::{ArgMatches, Command as ClapCommand, FromArgMatches, parser::ValueSource};
use grove::optim::{Either, ForAnyTree, OptimizerConfig, OptimizerName, layer_decay_of};
use std::{str::FromStr, sync::OnceLock};

use super::{TrainingArgs, options::Decay};
use crate::prelude::*;

/// A value of `--optimizer`.
#[derive(Debug, Clone, PartialEq)]
pub enum Optimizer {
    /// An optimizer with the hyperparameters of the command line, and Optax's defaults.
    Named(OptimizerName),
    /// A file with the optimizer, its learning rate and its hyperparameters.
    File(OptimizerFile),
}

/// A file of `--optimizer`, which is read once.
#[derive(Debug, Clone, PartialEq)]
pub struct OptimizerFile {
    path: PathBuf,
    config: Box<OnceLock<OptimizerConfig>>,
}

impl OptimizerFile {
    /// Returns the content of the file.
    pub(super) fn config(&self) -> Result<&OptimizerConfig, Exit> {
        if let Some(config) = self.config.get() {
            return Ok(config);
        }
        let text = std::fs::read_to_string(&self.path).map_err(|error| self.failed(&error))?;
        let config = OptimizerConfig::from_json(&text).map_err(|error| self.failed(&error))?;
        Ok(self.config.get_or_init(|| config))
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> Exit {
        failure(format!("--optimizer {}: {error}", self.path.display()))
    }
}

impl FromStr for Optimizer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.ends_with(".json") {
            return Ok(Self::File(OptimizerFile { path: text.into(), config: Box::default() }));
        }
        let name = serde_json::from_value(Value::from(text));
        name.map(Self::Named).map_err(|error| format!("{error}, or a file that ends in .json"))
    }
}

/// The options that the command line contains, as opposed to those with default values. A struct of options has it first,
/// because reading an option removes it.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// Identifiers.
    options: Vec<String>,
}

impl Given {
    /// Returns the first of some options that is given, as it is typed after `--`.
    pub fn first_of(&self, options: &[&'static str]) -> Option<String> {
        options.iter().find(|option| self.has(option)).map(|option| option.replace('_', "-"))
    }

    /// Returns true if an option is given.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|given| given == option)
    }
}

/// Hyperparameters that a file of `--optimizer` contains.
const HYPERPARAMETERS: [&str; 7] =
    ["learning_rate", "schedule", "final_learning_rate", "warmup", "weight_decay", "beta2", "clip"];

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let options = matches.ids().map(|id| id.to_string());
        let given = |option: &String| matches.value_source(option) == Some(ValueSource::CommandLine);
        Ok(Self { options: options.filter(given).collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Adds no options: it looks at those of the struct that has it.
impl Args for Given {
    fn augment_args(command: ClapCommand) -> ClapCommand {
        command
    }

    fn augment_args_for_update(command: ClapCommand) -> ClapCommand {
        command
    }
}

impl TrainingArgs {
    /// Rejects hyperparameters beside a file that contains them, and a final learning rate without a decay.
    pub(super) fn check_optimizer(&self) -> Result<(), Exit> {
        if self.schedule == Decay::Constant && self.given.has("final_learning_rate") {
            return Err(usage("--final-learning-rate has no effect with --schedule constant"));
        }
        match (&self.optimizer, self.given.first_of(&HYPERPARAMETERS)) {
            (Some(Optimizer::File(file)), Some(option)) => Err(usage(format!(
                "--{option}: {} contains the learning rate and the hyperparameters; write it there",
                file.path.display()
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the optimizer of `--optimizer`, with a schedule unless a file contains its own; `None` for AdamW.
    pub(super) fn configuration(&self, schedule: &Schedule) -> Result<Option<OptimizerConfig>, Exit> {
        Ok(match &self.optimizer {
            None | Some(Optimizer::Named(OptimizerName::Adamw)) => None,
            Some(Optimizer::Named(name)) => Some(self.named(*name, schedule)),
            Some(Optimizer::File(file)) => Some(file.config()?.clone()),
        })
    }

    /// Returns the optimizer. AdamW, the default, has gradient clipping and weight decay of matrices only.
    ///
    /// # Errors
    /// The file of `--optimizer` is not valid, or names parameters that the model does not have; or the optimizer does not
    /// have a given hyperparameter.
    pub fn optimizer<B: Backend, M: Tree<B>>(
        &self,
        schedule: &Schedule,
        model: &M,
    ) -> Result<impl GradientTransformation<B, M> + use<B, M>, Exit> {
        let Some(config) = self.configuration(schedule)? else {
            let options = Adamw::default().b2(self.beta2).weight_decay(self.weight_decay).mask(matrices());
            let clip = (self.clip > 0.0).then(|| clip_by_global_norm::<B>(self.clip));
            return Ok(Either::Left(chain((clip, adamw(schedule.clone(), options)))));
        };
        let configured: Result<ForAnyTree<B>, _> = config.build_for_any_tree();
        let checked = configured.and_then(|optimizer| config.check_patterns(model).map(|()| optimizer));
        checked.map(Either::Right).map_err(|error| match &self.optimizer {
            Some(Optimizer::File(file)) => file.failed(&error),
            _ => usage(format!("--optimizer: {error}")),
        })
    }

    /// Returns a named optimizer, with the hyperparameters that the command line contains.
    fn named(&self, name: OptimizerName, schedule: &Schedule) -> OptimizerConfig {
        let mut config = OptimizerConfig::new(name, schedule.clone());
        config.clip = (self.clip > 0.0).then_some(self.clip);
        let mut set = |field: &str, value: Value| config.options.insert(field.into(), value);
        if self.given.has("beta2") {
            set("b2", self.beta2.into());
        }
        if self.given.has("weight_decay") {
            let field = if name == OptimizerName::Adafactor { "weight_decay_rate" } else { "weight_decay" };
            set(field, self.weight_decay.into());
            set("weight_decay_mask", "matrices".into());
        }
        config
    }

    /// Returns [`optimizer`](Self::optimizer) with layer-wise learning-rate decay: each layer below the head multiplies the
    /// learning rate by `factor`. `depth` returns the depth of the layer of a path, from 0 for the head.
    ///
    /// # Errors
    /// As [`optimizer`](Self::optimizer).
    pub fn optimizer_by_layer<B: Backend, M: Tree<B>>(
        &self,
        schedule: &Schedule,
        model: &M,
        factor: f64,
        depth: fn(&M, &str) -> usize,
    ) -> Result<impl GradientTransformation<B, M> + use<B, M>, Exit> {
        let decay = (factor < 1.0).then(|| layer_decay_of::<B>(model, factor, |path| depth(model, path)));
        Ok(chain((self.optimizer::<B, M>(schedule, model)?, decay)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_file_once() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path().join("sgd.json");
        std::fs::write(&path, r#"{"name": "sgd", "learning_rate": 0.5}"#).expect("written");
        let Ok(Optimizer::File(file)) = path.display().to_string().parse() else { panic!("a file") };
        let config = file.config().expect("valid").clone();
        std::fs::remove_file(&path).expect("removed");
        assert_eq!(file.config().expect("in memory"), &config);
    }
}
