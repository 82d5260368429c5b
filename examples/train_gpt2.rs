//! Trains a GPT-2 on text: `cargo run --example train_gpt2 -- --data book.txt --output run`.

use grove::{
    models::Gpt2,
    prelude::*,
    train::{Ended, Outcome, data::TokenBatch, fit},
};
use grove_cli::{
    Exit,
    arguments::parse_options,
    language::{Gpt2Options, LanguageRun},
    program::{self, Command, finish_run},
};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = parse_options::<Gpt2Options>();
    if options.language.run.jit {
        return program::main(&options); // the command `grove train gpt2`, which also has a traced loss
    }
    finish_run(|| {
        // `grove::run` selects the backend at run time; the program is compiled for each backend.
        grove::run(options.check()?, Run(&options))?
    })
}

/// The program, generic in the backend.
struct Run<'a>(&'a Gpt2Options);

impl Program for Run<'_> {
    type Output = Result<Ended, Exit>;

    fn run<B: Backend>(self, device: B::Device) -> Result<Ended, Exit> {
        // Sets up a new or pretrained model, windows of the tokenized text, and the directory of the run.
        let Some((model, run)) = LanguageRun::<B>::new(self.0, &device)? else {
            return Ok(Ended::Finished); // --evaluate
        };
        let job = &run.job;

        // Optimizer: by default `chain((clip_by_global_norm(1.0), adamw(schedule, Adamw::default().mask(matrices()))))`.
        let optimizer = self.0.language.run.training.optimizer::<B, Gpt2<B>>(&job.schedule, &model)?;

        // Loss: the mean over the tokens of a batch, with the model on the autodiff backend. The key seeds the dropout.
        let loss = |model: Gpt2<Autodiff<B>>, batch: &TokenBatch, key: Key| {
            let loss = model.next_token_loss(batch.inputs(&device), batch.targets(&device), Some(key));
            Outcome::<B, Gpt2<B>>::new(loss).weight(run.tokens(batch))
        };
        let evaluate = |model: &Gpt2<B>| run.evaluate(|ids, targets| model.next_token_loss(ids, targets, None));

        // `fit` runs the training loop with evaluations, checkpoints and logs, and resumes runs.
        let fitted = fit(model, &optimizer, &job.data, loss, evaluate, job.key, &job.settings)?;
        run.report(fitted)
    }
}
