//! Frozen parameters and LoRA adapters of a training run.

use grove::{layers::lora, optim::except};

use super::at_least_one;
use crate::prelude::*;

/// Parameters to freeze, and LoRA adapters to train.
#[derive(Args, Debug)]
pub struct LoraArgs {
    /// Parameters of --model that are not trained, by path: "wte.**,h.0.**" of a GPT-2
    #[arg(long, value_delimiter = ',', value_name = "PATTERNS", help_heading = "Model")]
    pub freeze: Vec<String>,

    /// Freeze --model and train adapters of this rank in it (LoRA). The run gets the merged model and, in adapter/, the
    /// adapters in peft's format
    #[arg(long, value_name = "RANK", help_heading = "Model")]
    pub lora_rank: Option<usize>,

    /// LoRA alpha: adapters are scaled by ALPHA / RANK [default: twice the rank]
    #[arg(long, value_name = "ALPHA", requires = "lora_rank", help_heading = "Model")]
    pub lora_alpha: Option<f64>,

    /// Linear layers that get a LoRA adapter, as path patterns
    #[arg(long, value_delimiter = ',', value_name = "PATTERNS", requires = "lora_rank", help_heading = "Model")]
    pub lora_targets: Vec<String>,
}

impl LoraArgs {
    /// Rejects a rank or an alpha that is not positive.
    pub fn check(&self) -> Result<(), Exit> {
        at_least_one([("lora-rank", self.lora_rank.unwrap_or(1))])?;
        match self.lora_alpha.is_some_and(|alpha| !(alpha > 0.0 && alpha.is_finite())) {
            true => Err(usage("--lora-alpha must be a number greater than 0")),
            false => Ok(()),
        }
    }

    /// Rejects a rank above that of the model's matrices. A mistyped rank would exhaust the memory.
    pub fn check_rank<B: Backend>(&self, model: &impl Tree<B>) -> Result<(), Exit> {
        let leaves = tree::leaves(model);
        let matrices = leaves.iter().map(|(_, leaf)| leaf.shape()).filter(|shape| shape.len() == 2);
        let most = matrices.filter_map(|shape| shape.iter().min().copied()).max().unwrap_or(usize::MAX);
        match self.lora_rank.filter(|rank| *rank > most) {
            Some(rank) => {
                Err(usage(format!("--lora-rank is {rank}, but the model's matrices have at most rank {most}")))
            }
            None => Ok(()),
        }
    }

    /// Returns the settings of a run that decide what is trained.
    pub fn settings(&self) -> RunSettings {
        RunSettings::new()
            .with("freeze", self.freeze.join(","))
            .with_option("lora-rank", self.lora_rank)
            .with_option("lora-alpha", self.lora_alpha)
            .with("lora-targets", self.lora_targets.join(","))
    }

    /// Returns a filter of all leaves except those of `--freeze`, whose patterns may leave out the `prefix` of all paths.
    pub fn unfrozen<B: Backend>(&self, model: &impl Tree<B>, prefix: &str) -> Result<Filter<B>, Exit> {
        except(model, &self.freeze, prefix).map_err(|error| usage(format!("--freeze: {error}")))
    }

    /// Returns a model with adapters of `rank` in the target layers.
    pub fn with_adapters<B: Backend, M: Tree<B>>(
        &self,
        model: M,
        targets: &[impl AsRef<str>],
        rank: usize,
        key: Key,
    ) -> Result<M, Exit> {
        let alpha = self.lora_alpha.unwrap_or(2.0 * rank as f64);
        lora::add(model, targets, rank, alpha, key).map_err(|error| usage(format!("--lora-targets: {error}")))
    }
}
