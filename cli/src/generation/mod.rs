//! Text generation, from the prompt to the printed continuation.

pub mod chat;
pub mod decoder;
mod options;
mod speak;

use grove::tasks::generation::{Score, check_prompt, generate_with_draft, score_text};
use std::time::Instant;

use crate::{input, prelude::*};
pub use options::GenerationArgs;
pub use speak::Write;

/// Default prompt.
const DEFAULT_PROMPT: &str = "The next morning brought a letter from her sister,";

/// Continues the prompt, with a draft model if one is named, or scores it. `load` loads the model at a path; its second argument
/// is the number of prompt tokens.
pub fn write<B: Backend, M: TraceableLm<B>>(
    options: &GenerationArgs,
    path: &Path,
    load: impl Fn(&Path, usize) -> Result<M, Exit>,
) -> Result<Ended, Exit> {
    let prompt = Prompt::read(options, path)?;
    let begun = Instant::now();
    let model = load(path, prompt.ids.len())?;
    if options.score {
        let score = score_text(&model, &prompt.ids, options.stride)?;
        return print_score(options, &model, &prompt.ids, score);
    }
    // Checked before the prompt is printed.
    check_prompt(&model, &prompt.ids)?;
    let draft = options.draft.as_deref();
    let draft = draft
        .map(|draft| {
            let draft = resolve_named(draft, &FilePatterns::model())?;
            prompt.same_tokens(path, &draft)?;
            load(&draft, prompt.ids.len())
        })
        .transpose()?;
    let jitted = options.jit.then(|| model.jitted());
    prompt.speak(
        options,
        begun.elapsed().as_secs_f64(),
        &mut |prompts, settings, on_token| match (&draft, &jitted) {
            (_, Some(jitted)) => Ok((jitted.generate_with(prompts, settings, on_token)?, None)),
            (None, None) => Ok((generate(&model, prompts, settings, on_token)?, None)),
            (Some(draft), None) => {
                let on_token = |token| on_token(0, token);
                let (row, drafted) =
                    generate_with_draft(&model, draft, &prompts[0], options.draft_tokens, settings, on_token)?;
                Ok((vec![row], Some(drafted)))
            }
        },
    )?;
    Ok(Ended::Finished)
}

/// Prompt, tokenizer and settings of a generation, which need no weights.
pub struct Prompt {
    tokenizer: Option<Tokenizer>,
    /// Tokens of the prompt.
    pub ids: Vec<u32>,
    settings: GenerateOptions,
}

impl Prompt {
    /// Rejects a draft whose vocabulary differs from the model's. Models without a tokenizer are not checked.
    pub fn same_tokens(&self, model: &Path, draft: &Path) -> Result<(), Exit> {
        let (Some(own), Ok(drafts)) = (&self.tokenizer, Tokenizer::beside(draft)) else { return Ok(()) };
        match own.same_tokens(&drafts) {
            true => Ok(()),
            false => Err(failure(ModelError::Draft { model: model.into(), draft: draft.into() })),
        }
    }

    /// Reads the prompt from the options or from standard input and encodes it with the tokenizer of the model at `path`. Settings
    /// missing from the options come from the model's files.
    pub fn read(options: &GenerationArgs, path: &Path) -> Result<Self, Exit> {
        let tokenizer = match Tokenizer::beside(path) {
            Ok(tokenizer) => Some(tokenizer),
            // The prompt is given as token ids.
            Err(_) if options.prompt_ids.is_some() && options.stop.is_empty() => None,
            // The model has a tokenizer, but its file is broken.
            Err(error @ ModelError::Weights(_)) => return Err(failure(error)),
            Err(error) => {
                return Err(failure(format!("{error}; without a tokenizer, give the prompt as --prompt-ids 5,17,400")));
            }
        };
        let ids = match (&options.prompt_ids, &tokenizer) {
            (Some(ids), _) => ids.clone(),
            (None, None) => Vec::new(),
            (None, Some(tokenizer)) => tokenizer.encode(&match options.prompt() {
                Some(text) => text.to_owned(),
                None => input::text()?.unwrap_or_else(|| DEFAULT_PROMPT.into()),
            })?,
        };
        Ok(Self { tokenizer, ids, settings: options.settings(path)? })
    }
}

/// Prints the loss and perplexity of a text.
pub fn print_score<B: Backend>(
    options: &GenerationArgs,
    model: &impl CausalLm<B>,
    ids: &[u32],
    Score { loss, windows }: Score,
) -> Result<Ended, Exit> {
    let (perplexity, context) = (loss.exp(), model.context().unwrap_or(ids.len()));
    if windows > 1 && !options.json {
        eprintln!(
            "[the text is longer than the model's context of {context} tokens: it was read in {windows} windows]"
        );
    }
    let text = format!("{} tokens, {loss:.4} nats a token, perplexity {perplexity:.2}", ids.len());
    report(
        options.json,
        &json!({ "prompt_ids": ids, "loss": loss, "perplexity": perplexity, "windows": windows }),
        &text,
    )
}
