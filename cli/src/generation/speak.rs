//! A model writes.

use grove::models::{
    ModelError, Tokenizer,
    generation::{Drafted, Finish, GenerateOptions, Generated, TextStream},
};
use serde_json::json;
use std::time::Instant;

use super::GenerationArgs;
use crate::{Exit, failure, show, write_json, write_line};

/// Continues prompts and hands each token to a callback. With figures of the draft, if there was one.
pub type Write<'a> = dyn FnMut(
        &[Vec<u32>],
        &GenerateOptions,
        &mut dyn FnMut(usize, u32) -> bool,
    ) -> Result<(Vec<Generated>, Option<Drafted>), ModelError>
    + 'a;

/// Times of a generation.
struct Times {
    seconds: f64,
    first_token_seconds: Option<f64>,
    /// Without the first token, whose time is that of reading the prompt.
    tokens_per_second: Option<f64>,
}

/// Generates, and measures it.
fn timed(
    write: &mut Write<'_>,
    prompts: &[Vec<u32>],
    settings: &GenerateOptions,
    on_token: &mut dyn FnMut(usize, u32) -> bool,
) -> Result<(Vec<Generated>, Option<Drafted>, Times), ModelError> {
    let mut first = None;
    let begun = Instant::now();
    let mut on_token = |row: usize, token: u32| {
        first.get_or_insert_with(Instant::now);
        on_token(row, token)
    };
    let (generated, drafted) = write(prompts, settings, &mut on_token)?;
    let seconds = begun.elapsed().as_secs_f64();
    let first_token_seconds = first.map(|first: Instant| first.duration_since(begun).as_secs_f64());
    let count: usize = generated.iter().map(|row| row.ids.len()).sum();
    let decoded = count.saturating_sub(prompts.len());
    let decoding = seconds - first_token_seconds.unwrap_or(0.0);
    let tokens_per_second = (decoded > 0 && decoding > 0.0).then(|| decoded as f64 / decoding);
    Ok((generated, drafted, Times { seconds, first_token_seconds, tokens_per_second }))
}

/// Generates, showing the text of a single sample as it is made.
pub fn speak(
    options: &GenerationArgs,
    write: &mut Write<'_>,
    tokenizer: Option<&Tokenizer>,
    ids: &[u32],
    settings: &GenerateOptions,
    load_seconds: f64,
) -> Result<(), Exit> {
    let prompts = vec![ids.to_vec(); options.samples];
    let mut first_run = None;
    for _ in 1..options.repeat {
        let (_, _, times) = timed(write, &prompts, settings, &mut |_, _| true).map_err(failure)?;
        first_run.get_or_insert(times);
    }
    let mut texts: Vec<Option<TextStream<'_>>> = (0..options.samples)
        .map(|_| tokenizer.map(|tokenizer| TextStream::after(tokenizer, &options.stop, ids)))
        .collect();
    let live = options.samples == 1 && !options.json;
    if let Some(tokenizer) = tokenizer.filter(|_| live) {
        show(&tokenizer.decode_text(ids).map_err(failure)?)?;
    }
    let mut broken = None;
    let mut on_token = |row: usize, token: u32| {
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
    };
    let written = timed(write, &prompts, settings, &mut on_token);
    if live && written.is_err() {
        // The error begins a line of its own, below the text so far.
        write_line("")?;
    }
    let (generated, drafted, times) = written.map_err(failure)?;
    if let Some(error) = broken {
        return Err(error);
    }
    for stream in texts.iter_mut().flatten() {
        let rest = stream.finish().map_err(failure)?;
        if live {
            show(&rest)?;
        }
    }

    let Times { first_token_seconds, tokens_per_second, .. } = times;
    if options.json {
        let one_or_all = |mut all: Vec<serde_json::Value>| if all.len() == 1 { all.remove(0) } else { all.into() };
        return write_json(&json!({
            "prompt_ids": ids,
            "generated_ids": one_or_all(generated.iter().map(|row| json!(row.ids)).collect()),
            "finish": one_or_all(generated.iter().map(|row| json!(reason(row.finish))).collect()),
            "text": one_or_all(texts.iter().map(|text| json!(text.as_ref().map(TextStream::text))).collect()),
            "tokens_per_second": tokens_per_second,
            "first_token_seconds": first_token_seconds,
            "seconds": times.seconds,
            "first_run": first_run.map(|Times { seconds, first_token_seconds, tokens_per_second }| json!({
                "seconds": seconds,
                "first_token_seconds": first_token_seconds,
                "tokens_per_second": tokens_per_second,
            })),
            "load_seconds": load_seconds,
            "draft": drafted.map(|Drafted { proposed, accepted }| json!({ "proposed": proposed, "accepted": accepted })),
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
    let count: usize = generated.iter().map(|row| row.ids.len()).sum();
    let is = |finish| generated.iter().any(|row| row.finish == finish);
    let ended = match (is(Finish::Stop) || is(Finish::Callback), is(Finish::Context)) {
        (true, _) => ", ended by itself",
        (false, true) => ", and the model's context is full: --max-new-tokens asks for more than it holds",
        (false, false) => "",
    };
    let speed = tokens_per_second.map_or_else(String::new, |speed| format!(", {speed:.1} tokens per second"));
    let draft = drafted.map_or_else(String::new, |Drafted { proposed, accepted }| {
        format!("; of {proposed} tokens that the draft proposed {accepted} were taken")
    });
    eprintln!("[{count} tokens{ended}; loaded in {load_seconds:.2} s{speed}{draft}]");
    Ok(())
}

/// The reason why a text ended, for scripts.
fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Context => "context",
        // The callback watches for stop strings only.
        Finish::Callback => "stop_string",
    }
}
