use grove_backend::Backend;
use grove_layers::Linear;
use grove_tree::{Key, path_fits};

use super::Bert;
use crate::error::{ModelError, Result};

/// Default LoRA targets, as in the paper and in peft for BERT: the query and value projections.
pub const LORA_TARGETS: [&str; 2] = ["encoder.layer.*.attention.query", "encoder.layer.*.attention.value"];

impl<B: Backend> Bert<B> {
    /// Returns the model with LoRA adapters, initially zero, on each linear layer whose path matches one of the
    /// patterns (see [`LowRank`](grove_layers::LowRank)). Train the leaves that `by_path("**.low_rank.**")` selects.
    /// [`merged`](Self::merged) then returns a model without adapters.
    ///
    /// # Errors
    /// [`ModelError::Option`] if the rank is 0, or a pattern matches no linear layer.
    pub fn adapted<S: AsRef<str>>(mut self, targets: &[S], rank: usize, alpha: f64, key: Key) -> Result<Self> {
        if rank == 0 {
            return Err(ModelError::Option { option: "the rank of adapters", value: "0".into(), range: "at least 1" });
        }
        let mut fitted = vec![false; targets.len()];
        for (i, (path, linear)) in self.linears().into_iter().enumerate() {
            let fits: Vec<bool> = targets.iter().map(|target| path_fits(target.as_ref(), &path)).collect();
            if fits.contains(&true) {
                *linear = linear.clone().adapted(rank, alpha, key.fold_in(i as u32));
            }
            fitted.iter_mut().zip(fits).for_each(|(any, fits)| *any |= fits);
        }
        match fitted.iter().position(|any| !any) {
            Some(i) => Err(ModelError::Option {
                option: "a target of adapters",
                value: targets[i].as_ref().to_owned(),
                range: "the path of a linear map, such as encoder.layer.*.attention.query",
            }),
            None => Ok(self),
        }
    }

    /// Returns the model with all LoRA adapters merged into the weights.
    pub fn merged(mut self) -> Self {
        for (_, linear) in self.linears() {
            *linear = linear.clone().merged();
        }
        self
    }

    /// The linear layers and their paths.
    fn linears(&mut self) -> Vec<(String, &mut Linear<B>)> {
        let mut all = vec![];
        for (i, layer) in self.encoder.layer.iter_mut().enumerate() {
            let attention = &mut layer.attention;
            let parts = [
                ("attention.query", &mut attention.query),
                ("attention.key", &mut attention.key),
                ("attention.value", &mut attention.value),
                ("attention.output", &mut attention.output),
                ("intermediate", &mut layer.intermediate),
                ("output", &mut layer.output),
            ];
            all.extend(parts.map(|(name, linear)| (format!("encoder.layer.{i}.{name}"), linear)));
        }
        all
    }
}
