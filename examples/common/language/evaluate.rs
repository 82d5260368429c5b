//! Evaluation of a language model.

use grove::{
    models::check_finite,
    prelude::*,
    train::data::{TokenBatch, TokenStream},
};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{LanguageArgs, LanguageModel};
use crate::common::{Exit, failure, write_json, write_line};

/// Mean loss, in nats, of each token of a stream but the first, and the number of those tokens.
///
/// The stream is cut into windows of `context` predictions, the last of which may be shorter; within a window each
/// token is predicted from those before it there.
pub fn mean_loss<B: Backend>(
    model: &impl LanguageModel<B>,
    stream: &TokenStream,
    context: usize,
    batch_size: usize,
    progress: &ProgressBar,
) -> (f64, usize) {
    let count = stream.len().saturating_sub(1);
    let whole = count - count % context;
    let starts: Vec<usize> = (0..whole).step_by(context).collect();
    let device = model.device();
    let sum_of = |starts: &[usize], context: usize| {
        let tokens = starts.iter().flat_map(|&start| stream.read(start..start + context + 1)).collect();
        let batch = TokenBatch { tokens, rows: starts.len(), columns: context + 1 };
        let loss = model.next_token_loss(batch.inputs(&device), batch.targets(&device), None);
        progress.inc((starts.len() * context) as u64);
        loss.into_data().iter::<f64>().next().unwrap_or(f64::NAN) * (starts.len() * context) as f64
    };
    let mut sum: f64 = starts.chunks(batch_size).map(|starts| sum_of(starts, context)).sum();
    if whole < count {
        sum += sum_of(&[whole], count - whole);
    }
    (sum / count as f64, count)
}

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
    let (loss, tokens) = mean_loss(model, stream, context, options.training.batch_size, &progress);
    progress.finish_and_clear();
    check_finite(model, [loss]).map_err(failure)?;
    let perplexity = loss.exp();
    if options.run.json {
        return write_json(&json!({ "loss": loss, "perplexity": perplexity, "tokens": tokens, "context": context }));
    }
    write_line(&format!("{tokens} tokens, {loss:.4} nats a token, perplexity {perplexity:.2}"))
}
