//! What came of a run.

use grove::{
    models::{
        Gpt2, Tokenizer, generate,
        generation::{GenerateOptions, Sampling},
    },
    prelude::*,
    tensor::FloatDType,
    train::{Ended, Fitted, log::summary_table},
};
use serde_json::json;

use crate::{
    common::{Dtype, Exit},
    options::Options,
    output::Output,
    text::failure,
};

/// Saves the best model, and tells what came of the run.
pub fn report<B: Backend>(
    options: &Options,
    fitted: Fitted<Gpt2<B>>,
    tokenizer: Option<&Tokenizer>,
    output: Option<&Output>,
) -> Result<(), Exit> {
    let (steps, seconds, ended) = (fitted.steps, fitted.seconds, fitted.ended);
    let best = fitted.best.as_ref().map(|(_, step, loss)| (*step, *loss));
    let model = fitted.into_model();
    let directory = output.filter(|_| ended != Ended::Interrupted).map(Output::model);
    if let Some(directory) = &directory {
        let dtype = match options.save_dtype {
            Dtype::F32 => FloatDType::F32,
            Dtype::F16 => FloatDType::F16,
            Dtype::Bf16 => FloatDType::BF16,
        };
        grove::tree::cast(model.clone(), dtype).save_pretrained(directory).map_err(failure)?;
    }
    if options.json {
        let (step, loss) = best.unzip();
        let ended = match ended {
            Ended::Finished => "finished",
            Ended::EarlyStop => "early_stop",
            Ended::Interrupted => "interrupted",
        };
        println!(
            "{}",
            json!({
                "steps": steps, "seconds": seconds, "ended": ended, "best_step": step, "held_out_loss": loss,
                "perplexity": loss.map(f64::exp), "model": directory,
            })
        );
        return Ok(());
    }
    let mut rows = vec![("steps".to_owned(), steps.to_string()), ("time".to_owned(), time(seconds))];
    if let Some((step, loss)) = best {
        rows.push(("held-out loss".into(), format!("{loss:.4} nats a token, at step {step}")));
        rows.push(("perplexity".into(), format!("{:.2}", loss.exp())));
    }
    match (ended, output, &directory) {
        (Ended::Interrupted, Some(_), _) => {
            rows.push(("stopped".into(), "the same command with --resume goes on".into()));
        }
        (Ended::EarlyStop, ..) => rows.push(("stopped".into(), "the held-out loss did not get better".into())),
        _ => {}
    }
    match (output, &directory) {
        (_, Some(directory)) => rows.push(("model".into(), directory.display().to_string())),
        (None, _) => rows.push(("model".into(), "not kept; --output DIR keeps it".into())),
        (Some(_), None) => {}
    }
    println!("{}", summary_table(&rows));
    if let Some(tokenizer) = tokenizer.filter(|_| ended != Ended::Interrupted) {
        println!("\nIt writes:\n{}", sample(&model, tokenizer, options.seed)?);
    }
    Ok(())
}

fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole / 60 % 60),
    }
}

/// A few lines by the model.
fn sample<B: Backend>(model: &Gpt2<B>, tokenizer: &Tokenizer, seed: u64) -> Result<String, Exit> {
    let mut prompt = tokenizer.encode("The").map_err(failure)?;
    // A tokenizer need not have such a word, nor the model so many positions.
    prompt.truncate(model.config.n_positions - 1);
    if prompt.is_empty() {
        return Ok(String::new());
    }
    let settings = GenerateOptions {
        max_new_tokens: 60.min(model.config.n_positions - prompt.len()),
        sampling: Sampling { temperature: 0.8, ..Sampling::default() },
        key: Key::new(seed),
        ..GenerateOptions::default()
    };
    let rows = generate(model, std::slice::from_ref(&prompt), &settings, |_, _| true).map_err(failure)?;
    let ids: Vec<u32> = rows.into_iter().flat_map(|row| prompt.iter().copied().chain(row.ids)).collect();
    tokenizer.decode(&ids).map_err(failure)
}
