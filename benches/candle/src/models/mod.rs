//! Rows of whole models: forward passes, training steps, decoding, loading.

mod bert;
mod gpt2;
mod resnet;
mod transformer;
mod vit;

use anyhow::{Context, Result};
use candle_core::{DType, Device, Module, Tensor};
use candle_nn::{Optimizer, VarMap};
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::hint::black_box;

use crate::{
    Run,
    ops::{Pass, Random, adamw, randn, run, weights},
    unsupported,
    work::{Work, is_gpt2},
};
use gpt2::{Gpt2, Gpt2Config, read};
use vit::Vit;

/// Creates the model and input of a row, and returns its run.
pub fn prepare(row: &Work) -> Result<Run> {
    Ok(match row {
        Work::Resnet { train: true, .. } => {
            return Err(unsupported("candle's max pooling has no backward pass where windows overlap"));
        }
        Work::Resnet { depths, widths, classes, size, batch, .. } => {
            let model = resnet::resnet(depths, *widths, *classes, weights())?;
            let x = randn((*batch, 3, *size, *size))?;
            run(move || model.forward(&x))
        }
        Work::Vit { sizes, train } => {
            let x = randn(&sizes.images())?;
            if *train {
                let random = trained();
                let model = Vit::load(sizes, random.builder())?;
                let labels = random_ids(sizes.classes, &[sizes.batch])?;
                trainer(&random, labels, move || model.forward(&x))?
            } else {
                let model = vit::published(sizes)?;
                run(move || model.forward(&x))
            }
        }
        Work::Bert(text) if text.train => return Err(no_backward("BERT", "layer normalisation has")),
        Work::Bert(text) => bert::bert(text)?,
        Work::Gpt2(text) => {
            let config: Gpt2Config = config(&text.config)?;
            let shape = [text.batch, text.tokens];
            let ids = random_ids(config.vocab_size, &shape)?;
            if text.train {
                let random = trained();
                let model = Gpt2::load(&config, Pass::Train, random.builder())?;
                let labels = random_ids(config.vocab_size, &shape)?.flatten_all()?;
                trainer(&random, labels, move || model.forward(&ids)?.flatten_to(1))?
            } else {
                let model = Gpt2::load(&config, Pass::Forward, weights())?;
                run(move || model.forward(&ids))
            }
        }
        Work::GptNeo(_) => return Err(unsupported("candle-transformers has no GPT-Neo")),
        Work::Llama(text) if text.train => {
            return Err(no_backward("LLaMA", "RMS normalisation, rotation and softmax have"));
        }
        Work::Llama(_) => {
            return Err(unsupported("candle-transformers' LLaMA computes the logits of the last position only"));
        }
        Work::Decode { config, batch, .. } if *batch > 1 || !is_gpt2(config) => {
            return Err(unsupported("candle's side decodes one sequence of a GPT-2"));
        }
        Work::Decode { config: fields, prompt, new_tokens, .. } => {
            let (config, new_tokens): (Gpt2Config, _) = (config(fields)?, *new_tokens);
            let model = Gpt2::load(&config, Pass::Forward, weights())?;
            let prompt = random_ids(config.vocab_size, &[1, *prompt])?;
            Box::new(move || {
                black_box(model.decode(&prompt, new_tokens)?);
                Ok(())
            })
        }
        Work::Load { path, config: fields } => {
            let (config, path): (Gpt2Config, _) = (config(fields)?, path.clone());
            Box::new(move || {
                black_box(read(&path, &config, true)?);
                Ok(())
            })
        }
        Work::Start { path, config: fields, tokens } => {
            let (config, path): (Gpt2Config, _) = (config(fields)?, path.clone());
            let ids = random_ids(config.vocab_size, &[1, *tokens])?;
            Box::new(move || {
                black_box(read(&path, &config, false)?.forward(&ids)?);
                Ok(())
            })
        }
        _ => return Err(unsupported("candle's side has no such row")),
    })
}

/// Returns the error of a model that candle-transformers supports for inference only.
fn no_backward(model: &str, what: &str) -> anyhow::Error {
    unsupported(format!("candle-transformers' {model} cannot be trained: its {what} no backward pass"))
}

/// Parses a configuration in the published format.
fn config<C: DeserializeOwned>(fields: &Value) -> Result<C> {
    C::deserialize(fields).context("the row's configuration")
}

/// Returns random integers below `bound`.
fn random_ids(bound: usize, shape: &[usize]) -> candle_core::Result<Tensor> {
    Tensor::rand(0f64, bound as f64, shape, &Device::Cpu)?.to_dtype(DType::U32)
}

/// Returns a source of trainable weights.
fn trained() -> Random {
    Random { variables: Some(VarMap::new()) }
}

/// Returns a run of one training step: forward, loss, backward, AdamW, and the loss read at the end.
fn trainer(
    random: &Random,
    labels: Tensor,
    forward: impl Fn() -> candle_core::Result<Tensor> + 'static,
) -> Result<Run> {
    let variables = random.variables.as_ref().map(VarMap::all_vars).unwrap_or_default();
    let mut adamw = adamw(variables)?;
    Ok(Box::new(move || {
        let loss = candle_nn::loss::cross_entropy(&forward()?, &labels)?;
        adamw.backward_step(&loss)?;
        black_box(loss.to_scalar::<f32>()?);
        Ok(())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    pub(super) fn largest_difference(a: &Tensor, b: &Tensor) -> f32 {
        (a - b).and_then(|d| d.abs()?.max_all()?.to_scalar()).expect("tensors of one shape")
    }

    pub(super) fn moves_every_variable(
        random: &Random,
        labels: Tensor,
        forward: impl Fn() -> candle_core::Result<Tensor> + 'static,
    ) {
        let variables = random.variables.as_ref().expect("variables").data().lock().unwrap().clone();
        let before: HashMap<_, _> = variables.iter().map(|(name, var)| (name, var.copy().unwrap())).collect();
        let loss = |forward: &dyn Fn() -> candle_core::Result<Tensor>| {
            candle_nn::loss::cross_entropy(&forward().unwrap(), &labels).unwrap().to_scalar::<f32>().unwrap()
        };
        let first = loss(&forward);
        let forward = std::rc::Rc::new(forward);
        let again = forward.clone();
        let mut run = trainer(random, labels.clone(), move || again()).expect("a trainer");
        (0..20).for_each(|_| run().expect("a step"));
        for (name, before) in before {
            // Embeddings of unused tokens may not change.
            assert!(largest_difference(&before, &variables[name]) > 1e-6, "{name} stays");
        }
        assert!(loss(&*forward) < first);
    }
}
