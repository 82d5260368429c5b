//! Generates text with GPT-2: `cargo run --example gpt2 -- --prompt "The letter was"`.

use clap::Parser;
use grove::{
    models::{ModelFiles, ModelKind, family},
    prelude::*,
    tasks::generation::{check_prompt, generate_with_draft, score_text},
    train::Ended,
};
use grove_cli::{
    DeviceArgs, Exit,
    arguments::parse_options,
    generation::{
        Prompt,
        decoder::{DecoderArgs, Rows, print_summary_of, shipped_decoder},
        print_score,
    },
    kind::check_kind,
    program::finish_run,
    resolve, with_adapter,
};
use std::{process::ExitCode, time::Instant};

/// Generates text with GPT-2, in any published size (gpt2, gpt2-medium, gpt2-large, gpt2-xl).
#[derive(Parser, Debug)]
#[command(name = "gpt2", version)]
struct Options {
    #[command(flatten)]
    decoder: DecoderArgs,
}

fn main() -> ExitCode {
    let Options { decoder } = parse_options::<Options>();
    finish_run(|| {
        // `grove::run` selects the backend at run time; the program is compiled for each backend.
        grove::run(decoder.check()?, Run(&decoder))?
    })
}

/// The program, generic in the backend.
struct Run<'a>(&'a DecoderArgs);

impl Program for Run<'_> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        let DecoderArgs { model, device: DeviceArgs { dtype, .. }, generation, summary, adapter } = self.0;
        if *summary {
            return print_summary_of::<B, family::Gpt2>(self.0);
        }
        // Directory of the model, downloaded if `--model` is a hub id.
        let path = resolve(model.as_deref(), shipped_decoder(ModelKind::Gpt2))?;
        check_kind(&path, ModelKind::Gpt2)?;
        let files = with_adapter(&path, adapter.as_deref())?;
        // Tokenizes the prompt, and takes missing settings from the model's generation_config.json.
        let prompt = Prompt::read(generation, &files)?;

        let begun = Instant::now();
        let load = |files: &ModelFiles| -> Result<Gpt2<B>, Exit> {
            self.0.fits::<B, family::Gpt2>(files, prompt.ids.len(), Rows::Samples(generation.samples))?;
            Ok(files.load(&device, dtype.wanted())?.0)
        };
        let model = load(&files)?;
        if generation.score {
            let score = score_text(&model, &prompt.ids, generation.stride)?;
            return print_score(generation, &model, &prompt.ids, score);
        }
        check_prompt(&model, &prompt.ids)?;
        // Speculative decoding: a smaller draft model proposes tokens, which the model verifies.
        let small = match &generation.draft {
            Some(draft) => {
                let draft = resolve(Some(draft), "")?;
                prompt.same_tokens(&path, &draft)?;
                Some(load(&ModelFiles::at(draft)?)?)
            }
            None => None,
        };
        // `show` prints each token, and returns false to stop.
        // With --jit, the step of a token is traced once and compiled.
        let jitted = generation.jit.then(|| model.jitted());
        prompt.speak(
            generation,
            begun.elapsed().as_secs_f64(),
            &mut |prompts, settings, show| match (&small, &jitted) {
                (_, Some(jitted)) => Ok((jitted.generate_with(prompts, settings, show)?, None)),
                (None, None) => Ok((generate(&model, prompts, settings, show)?, None)),
                (Some(small), None) => {
                    let show = |token| show(0, token);
                    let (row, drafted) =
                        generate_with_draft(&model, small, &prompts[0], generation.draft_tokens, settings, show)?;
                    Ok((vec![row], Some(drafted)))
                }
            },
        )?;
        self.0.tell_published(ModelKind::Gpt2);
        Ok(Ended::Finished)
    }
}
