//! Evaluation of a language model.

use grove::{
    models::check_finite,
    prelude::*,
    train::{data::TokenStream, token_loss},
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{LanguageArgs, LanguageModel};
use crate::{Exit, failure, write_json, write_line};

/// Fails where there is nothing to predict.
pub fn check(what: &str, stream: &TokenStream) -> Result<(), Exit> {
    match stream.len() {
        tokens @ (0 | 1) => Err(failure(format!("{what} has {tokens} tokens, and an evaluation needs at least 2"))),
        _ => Ok(()),
    }
}

/// Does what `--evaluate` asks for.
pub fn print<B: Backend>(
    options: &LanguageArgs,
    model: &impl LanguageModel<B>,
    stream: &TokenStream,
    context: usize,
) -> Result<(), Exit> {
    check("the text", stream)?;
    let style = ProgressStyle::with_template("{percent:>3}% {wide_bar} {human_pos}/{human_len} tokens  {eta} left");
    let progress = ProgressBar::new(stream.len() as u64 - 1).with_style(style.map_err(failure)?);
    let device = model.device();
    let loss = |ids, targets| model.next_token_loss(ids, targets, None);
    let batch_size = options.training.batch_size;
    let (loss, tokens) = token_loss(stream, context, batch_size, &device, loss, |tokens| progress.inc(tokens as u64));
    progress.finish_and_clear();
    check_finite(model, [loss]).map_err(failure)?;
    let perplexity = loss.exp();
    if options.run.json {
        return write_json(&json!({ "loss": loss, "perplexity": perplexity, "tokens": tokens, "context": context }));
    }
    write_line(&format!("{tokens} tokens, {loss:.4} nats a token, perplexity {perplexity:.2}"))
}
