//! Prints generated text.

use grove::tasks::generation::{Drafted, Finish, TextStream, Timing, timed};

use super::{GenerationArgs, Prompt};
use crate::{prelude::*, show};

/// Function that continues prompts and passes each token to a callback. Returns statistics of the draft, if there was one.
type Write<'a> = dyn FnMut(
        &[Vec<u32>],
        &GenerateOptions,
        &mut dyn FnMut(usize, u32) -> bool,
    ) -> Result<(Vec<Generated>, Option<Drafted>), ModelError>
    + 'a;

impl Prompt {
    /// Prints the text that `write` generates, token by token, or as JSON at the end.
    pub(super) fn speak(self, options: &GenerationArgs, load_seconds: f64, write: &mut Write<'_>) -> Result<(), Exit> {
        let Self { tokenizer, ids, settings } = &self;
        let prompts = vec![ids.clone(); options.samples];
        let mut first_run = None;
        for _ in 1..options.repeat {
            let (_, _, times) = timed(&mut |_, _| true, |on_token| write(&prompts, settings, on_token))?;
            first_run.get_or_insert(times);
        }
        let mut texts: Vec<Option<TextStream<'_>>> = (0..options.samples)
            .map(|_| tokenizer.as_ref().map(|tokenizer| TextStream::after(tokenizer, &settings.stop_strings, ids)))
            .collect();
        let live = options.samples == 1 && !options.json;
        if let Some(tokenizer) = tokenizer.as_ref().filter(|_| live) {
            show(&tokenizer.decode_text(ids)?)?;
        }
        let mut broken = None;
        let mut on_token = |row: usize, token: u32| {
            let piece = match &mut texts[row] {
                Some(stream) => stream.push(token).map_err(Exit::from),
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
        let written = timed(&mut on_token, |on_token| write(&prompts, settings, on_token));
        if live && written.is_err() {
            // Ends the line of the text, so that the error starts a new one.
            write_line("")?;
        }
        let (generated, drafted, timing) = written?;
        if let Some(error) = broken {
            return Err(error);
        }
        for stream in texts.iter_mut().flatten() {
            let rest = stream.finish()?;
            if live {
                show(&rest)?;
            }
        }

        if options.json {
            let one_or_all = |mut all: Vec<Value>| if all.len() == 1 { all.remove(0) } else { all.into() };
            return write_json(&json!({
                "prompt_ids": ids,
                "generated_ids": one_or_all(generated.iter().map(|row| json!(row.ids)).collect()),
                "finish": one_or_all(generated.iter().map(|row| json!(reason(row.finish))).collect()),
                "text": one_or_all(texts.iter().map(|text| json!(text.as_ref().map(TextStream::text))).collect()),
                "tokens_per_second": timing.tokens_per_second,
                "first_token_seconds": timing.first_token_seconds,
                "seconds": timing.seconds,
                "first_run": first_run,
                "load_seconds": load_seconds,
                "draft": drafted,
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
        eprintln!("[{}]", describe(&generated, &timing, drafted, load_seconds));
        Ok(())
    }
}

/// Describes a generation: its size, the reason why it ended, and its speed.
fn describe(generated: &[Generated], timing: &Timing, drafted: Option<Drafted>, load_seconds: f64) -> String {
    let tokens = generated.iter().map(|row| row.ids.len()).sum();
    let is = |finish| generated.iter().any(|row| row.finish == finish);
    let ended = match (is(Finish::Callback), is(Finish::Stop), is(Finish::Context)) {
        (true, ..) => ", stopped at a stop string",
        (_, true, _) => ", stopped at an end token",
        (.., true) => ", stopped because the model's context is full: --max-new-tokens is too large for it",
        _ => "",
    };
    let speed = timing.tokens_per_second.map_or_else(String::new, |speed| format!(", {speed:.1} tokens per second"));
    let draft = drafted.map_or_else(String::new, |Drafted { proposed, accepted }| {
        format!("; {accepted} of {proposed} draft tokens were accepted")
    });
    format!("{}{ended}; loaded in {load_seconds:.2} s{speed}{draft}", counted(tokens, "token"))
}

/// Returns the reason why a text ended, for JSON.
pub(super) fn reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
        Finish::Context => "context",
        // The callback watches for stop strings only.
        Finish::Callback => "stop_string",
    }
}
