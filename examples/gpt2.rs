//! GPT-2 continues a text: `cargo run --example gpt2 -- --prompt "The letter was"`.

mod common;

use clap::Parser;
use grove::{
    models::{
        Gpt2, Gpt2Config, ModelError, Tokenizer, generate,
        generation::{Finish, GenerateOptions, Sampling, TextStream, check_prompt, score},
    },
    prelude::*,
    tree::summary,
    weights::{HubOptions, Source, Wanted},
};
use serde_json::json;
use std::{
    io::{IsTerminal, Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Instant,
};

use common::{DeviceArgs, Exit, finish, shipped};

/// The model where nothing else is given: a small one that grove trained itself, on Jane Austen's novels.
const SHIPPED: &str = "gpt2-austen";

/// What is continued where nothing else is given.
const DEFAULT_PROMPT: &str = "The next morning brought a letter from her sister,";

/// How tokens are drawn where neither the options nor the model say it.
const DEFAULT_SAMPLING: Sampling =
    Sampling { temperature: 0.8, top_k: None, top_p: None, min_p: None, repetition_penalty: 1.0 };

/// Generates text with GPT-2, in any published size.
#[derive(Parser, Debug)]
#[command(name = "gpt2", version)]
struct Options {
    /// Directory, weights file, or hub id (as `openai-community/gpt2`, `gpt2-xl`, `user/model@revision`). Without it,
    /// the small model that ships with grove
    #[arg(long)]
    model: Option<String>,

    #[command(flatten)]
    device: DeviceArgs,

    /// Text to continue; without it, standard input is read, or a small text of our own is used
    #[arg(long, conflicts_with = "prompt_ids")]
    prompt: Option<String>,

    /// Tokens to continue, as numbers: 5,17,400. No tokenizer is needed then
    #[arg(long, value_delimiter = ',', value_name = "IDS")]
    prompt_ids: Option<Vec<u32>>,

    /// Most tokens to generate
    #[arg(long, default_value_t = 128, value_name = "N", help_heading = "Generation")]
    max_new_tokens: usize,

    /// How bold to be: 0 always takes the likeliest token [default: 0.8]
    ///
    /// What is not given here or below is taken from the model's generation_config.json, where that asks for sampling.
    #[arg(long, value_name = "T", help_heading = "Generation")]
    temperature: Option<f32>,

    /// Draw among the K likeliest tokens
    #[arg(long, value_name = "K", help_heading = "Generation")]
    top_k: Option<usize>,

    /// Draw among the likeliest tokens that make up this probability
    #[arg(long, value_name = "P", help_heading = "Generation")]
    top_p: Option<f32>,

    /// Draw among tokens at least this times as likely as the likeliest
    #[arg(long, value_name = "P", help_heading = "Generation")]
    min_p: Option<f32>,

    /// Make tokens that have occurred less likely; 1 does not [default: 1]
    #[arg(long, value_name = "R", help_heading = "Generation")]
    repetition_penalty: Option<f32>,

    /// How many continuations to generate
    #[arg(long, default_value_t = 1, value_name = "N", help_heading = "Generation")]
    samples: usize,

    /// End before this text; can be given several times
    #[arg(long, value_name = "TEXT", help_heading = "Generation")]
    stop: Vec<String>,

    /// Go on after the model has ended its text
    #[arg(long, help_heading = "Generation")]
    ignore_eos: bool,

    /// Where the random numbers come from
    #[arg(long, default_value_t = 0, help_heading = "Generation")]
    seed: u64,

    /// Do not generate: print the prompt's mean negative log-likelihood (nats a token) and perplexity
    #[arg(long)]
    score: bool,

    /// Do not generate: print the table of parameters. No weights are read; a preset's name will do as the model
    #[arg(long, conflicts_with = "score")]
    summary: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    finish(|| {
        check(&options)?;
        options.device.spec()?.run(Run(&options))?
    })
}

/// What can be told from the options alone.
fn check(options: &Options) -> Result<(), Exit> {
    if options.samples == 0 {
        return Err(Exit::Usage("--samples is 0; it must be at least 1".into()));
    }
    if options.prompt.as_deref() == Some("") || options.prompt_ids.as_ref().is_some_and(Vec::is_empty) {
        return Err(Exit::Usage(ModelError::EmptyPrompt.to_string()));
    }
    sampling(options, DEFAULT_SAMPLING).validate().map_err(|error| Exit::Usage(error.to_string()))
}

/// What the options say, and where they say nothing what the model does.
fn sampling(options: &Options, default: Sampling) -> Sampling {
    Sampling {
        temperature: options.temperature.unwrap_or(default.temperature),
        top_k: options.top_k.or(default.top_k),
        top_p: options.top_p.or(default.top_p),
        min_p: options.min_p.or(default.min_p),
        repetition_penalty: options.repetition_penalty.unwrap_or(default.repetition_penalty),
    }
}

fn failure(error: impl std::fmt::Display) -> Exit {
    Exit::Failure(error.to_string())
}

/// The program, for whichever backend was chosen.
struct Run<'a>(&'a Options);

impl Program for Run<'_> {
    type Output = Result<(), Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<(), Exit> {
        let options = self.0;
        if options.summary {
            return print_summary::<B>(options);
        }
        let path = resolve(options, &Wanted::model())?;
        let tokenizer = tokenizer(options, &path)?;
        let ids = prompt_ids(options, tokenizer.as_ref())?;
        let begun = Instant::now();
        let (model, _) = Gpt2::<B>::from_path(&path, &device, Some(options.device.dtype.into())).map_err(failure)?;
        let load_seconds = begun.elapsed().as_secs_f64();
        if options.score {
            return print_score(options, &model, &ids);
        }
        let default = Sampling::published(&path).map_err(failure)?.unwrap_or(DEFAULT_SAMPLING);
        speak(options, &model, tokenizer.as_ref(), &ids, sampling(options, default), load_seconds)
    }
}

/// Where the model's files lie; they are downloaded where they are not here yet.
fn resolve(options: &Options, wanted: &Wanted) -> Result<PathBuf, Exit> {
    let Some(model) = &options.model else { return Ok(shipped(SHIPPED)) };
    let source = Source::parse(model).map_err(failure)?;
    source.resolve(&HubOptions::from_env(), wanted).map_err(failure)
}

fn print_summary<B: Backend>(options: &Options) -> Result<(), Exit> {
    let preset =
        options.model.as_ref().filter(|model| !Path::new(model).exists()).map(|model| Gpt2Config::preset(model));
    let config = match preset {
        Some(Ok(config)) => config,
        _ => Gpt2Config::beside(resolve(options, &Wanted::files(["config.json"]))?).map_err(failure)?,
    };
    let skeleton = Gpt2::<B>::skeleton(&config).map_err(failure)?;
    if options.json {
        let params: serde_json::Map<_, _> =
            tree::leaves(&skeleton).into_iter().map(|(path, leaf)| (path, json!(leaf.shape()))).collect();
        return write_json(&json!({ "parameters": tree::count_params(&skeleton), "shapes": params }));
    }
    write_line(&summary(&skeleton))
}

/// The model's tokenizer; none where the prompt is given in numbers and there is none.
fn tokenizer(options: &Options, path: &Path) -> Result<Option<Tokenizer>, Exit> {
    let directory = if path.is_dir() { path } else { path.parent().unwrap_or(path) };
    match Tokenizer::from_path(directory) {
        Ok(tokenizer) => Ok(Some(tokenizer)),
        Err(_) if options.prompt_ids.is_some() && options.stop.is_empty() => Ok(None),
        Err(error) => Err(failure(format!("{error}; without a tokenizer, give the prompt as --prompt-ids 5,17,400"))),
    }
}

fn prompt_ids(options: &Options, tokenizer: Option<&Tokenizer>) -> Result<Vec<u32>, Exit> {
    if let Some(ids) = &options.prompt_ids {
        return Ok(ids.clone());
    }
    let text = match &options.prompt {
        Some(text) => text.clone(),
        None if std::io::stdin().is_terminal() => DEFAULT_PROMPT.into(),
        None => {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map_err(|error| failure(format!("standard input: {error}")))?;
            // A closed standard input is no prompt at all.
            if text.is_empty() { DEFAULT_PROMPT.into() } else { text }
        }
    };
    tokenizer.map_or(Ok(Vec::new()), |tokenizer| tokenizer.encode(&text)).map_err(failure)
}

fn print_score<B: Backend>(options: &Options, model: &Gpt2<B>, ids: &[u32]) -> Result<(), Exit> {
    check_prompt(model, ids).map_err(failure)?;
    if ids.len() < 2 {
        return Err(failure(ModelError::TooShortToScore { len: ids.len() }));
    }
    let tensor = Tensor::<B, 1, Int>::from_ints(&*ids.iter().map(|&id| id as i32).collect::<Vec<_>>(), &model.device());
    let loss = score(model.forward(tensor.unsqueeze::<2>()), ids).map_err(failure)?;
    let perplexity = loss.exp();
    if options.json {
        return write_json(&json!({ "prompt_ids": ids, "loss": loss, "perplexity": perplexity }));
    }
    write_line(&format!("{} tokens, {loss:.4} nats a token, perplexity {perplexity:.2}", ids.len()))
}

/// Generates, showing the text of a single sample as it is made.
fn speak<B: Backend>(
    options: &Options,
    model: &Gpt2<B>,
    tokenizer: Option<&Tokenizer>,
    ids: &[u32],
    sampling: Sampling,
    load_seconds: f64,
) -> Result<(), Exit> {
    let settings = GenerateOptions {
        max_new_tokens: options.max_new_tokens,
        sampling,
        ignore_eos: options.ignore_eos,
        key: Key::new(options.seed),
        ..GenerateOptions::default()
    };
    let mut texts: Vec<Option<TextStream<'_>>> =
        (0..options.samples).map(|_| tokenizer.map(|tokenizer| TextStream::new(tokenizer, &options.stop))).collect();
    let live = options.samples == 1 && !options.json;
    if let Some(tokenizer) = tokenizer.filter(|_| live) {
        show(&tokenizer.decode(ids).map_err(failure)?)?;
    }
    let mut broken = None;
    let mut first = None;
    let begun = Instant::now();
    let generated = generate(model, &vec![ids.to_vec(); options.samples], &settings, |row, token| {
        first.get_or_insert_with(Instant::now);
        let piece = match &mut texts[row] {
            Some(stream) => stream.push(token).map_err(failure),
            None => Ok(format!("{token} ")),
        };
        match piece.and_then(|piece| if live { show(&piece) } else { Ok(()) }) {
            Ok(()) => texts[row].as_ref().is_none_or(|stream| !stream.stopped()),
            Err(error) => {
                broken = Some(error);
                false
            }
        }
    })
    .map_err(failure)?;
    let seconds = begun.elapsed().as_secs_f64();
    if let Some(error) = broken {
        return Err(error);
    }
    for stream in texts.iter_mut().flatten() {
        let rest = stream.finish().map_err(failure)?;
        if live {
            show(&rest)?;
        }
    }

    let first_token_seconds = first.map(|first: Instant| first.duration_since(begun).as_secs_f64());
    let count: usize = generated.iter().map(|row| row.ids.len()).sum();
    // Without the first token, whose time is that of reading the prompt.
    let decoded = count.saturating_sub(options.samples);
    let decoding = seconds - first_token_seconds.unwrap_or(0.0);
    let tokens_per_second = (decoded > 0 && decoding > 0.0).then(|| decoded as f64 / decoding);
    if options.json {
        let one_or_all = |mut all: Vec<serde_json::Value>| if all.len() == 1 { all.remove(0) } else { all.into() };
        return write_json(&json!({
            "prompt_ids": ids,
            "generated_ids": one_or_all(generated.iter().map(|row| json!(row.ids)).collect()),
            "text": one_or_all(texts.iter().map(|text| json!(text.as_ref().map(TextStream::text))).collect()),
            "tokens_per_second": tokens_per_second,
            "first_token_seconds": first_token_seconds,
            "load_seconds": load_seconds,
        }));
    }
    if !live {
        for (i, (row, text)) in generated.iter().zip(&texts).enumerate() {
            let ids = || row.ids.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            let text = text.as_ref().map_or_else(ids, |text| text.text().to_owned());
            write_line(&format!("--- sample {} ---\n{}", i + 1, text.trim_start_matches('\n')))?;
        }
    } else {
        write_line("")?;
    }
    let ended = if generated.iter().all(|row| row.finish == Finish::Length) { "" } else { ", ended by itself" };
    let speed = tokens_per_second.map_or_else(String::new, |speed| format!(", {speed:.1} tokens per second"));
    eprintln!("[{count} tokens{ended}; loaded in {load_seconds:.2} s{speed}]");
    if options.model.is_none() {
        eprintln!("[this was grove's own small model; for the published one: --model openai-community/gpt2]");
    }
    Ok(())
}

/// Writes a piece of text at once.
fn show(text: &str) -> Result<(), Exit> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(broken_pipe)
}

fn write_line(line: &str) -> Result<(), Exit> {
    show(&format!("{line}\n"))
}

fn write_json(value: &serde_json::Value) -> Result<(), Exit> {
    write_line(&value.to_string())
}

/// The reader of our output went away, as `head` does: that is no failure of ours.
fn broken_pipe(error: std::io::Error) -> Exit {
    if error.kind() == std::io::ErrorKind::BrokenPipe {
        std::process::exit(0);
    }
    Exit::Failure(format!("standard output: {error}"))
}
