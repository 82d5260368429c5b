//! Results of a run.

use grove::{
    models::{
        Tokenizer, generate,
        generation::{GenerateOptions, Sampling},
    },
    prelude::*,
    train::{Ended, Fitted},
};

use super::{LanguageArgs, LanguageModel};
use crate::{
    Exit, failure,
    training::{Output, Summary},
    write_json, write_line,
};

/// Tokens of a byte-level tokenizer that has merged nothing: the bytes, and the end of a text.
const CHARACTERS: usize = 257;

/// Saves the best model, and tells what came of the run.
pub fn report<B: Backend, M: LanguageModel<B>>(
    options: &LanguageArgs,
    fitted: Fitted<M>,
    tokenizer: Option<&Tokenizer>,
    output: Option<&Output>,
) -> Result<Ended, Exit> {
    let save = |model: M, directory: &std::path::Path| model.save_pretrained(directory);
    let (model, summary) = Summary::save(fitted, output, options.training.save_dtype, save)?;
    let perplexity = summary.held_out_loss().map(f64::exp);
    if options.run.json {
        write_json(&summary.json("perplexity", perplexity))?;
        return Ok(summary.ended);
    }
    let measure = perplexity.map(|perplexity| ("perplexity", format!("{perplexity:.2}")));
    write_line(&summary.table("token", measure))?;
    if let Some(tokenizer) = tokenizer.filter(|_| summary.ended != Ended::Interrupted) {
        write_line(&format!("\nIt writes:\n{}", sample(&model, tokenizer, options.run.seed)?))?;
    }
    Ok(summary.ended)
}

/// A few lines by the model.
fn sample<B: Backend>(model: &impl CausalLm<B>, tokenizer: &Tokenizer, seed: u64) -> Result<String, Exit> {
    let mut prompt = tokenizer.encode("The").map_err(failure)?;
    // A tokenizer need not have such a word, nor the model so many positions.
    let most = model.context().unwrap_or(usize::MAX);
    prompt.truncate(most - 1);
    if prompt.is_empty() {
        return Ok(String::new());
    }
    // A token of a character model is a letter.
    let length = if tokenizer.vocab_size() <= CHARACTERS { 300 } else { 60 };
    let settings = GenerateOptions {
        max_new_tokens: length.min(most - prompt.len()),
        sampling: Sampling { temperature: 0.8, ..Sampling::default() },
        key: Key::new(seed),
        ..GenerateOptions::default()
    };
    let rows = generate(model, std::slice::from_ref(&prompt), &settings, |_, _| true).map_err(failure)?;
    let ids: Vec<u32> = rows.into_iter().flat_map(|row| prompt.iter().copied().chain(row.ids)).collect();
    tokenizer.decode(&ids).map_err(failure)
}
