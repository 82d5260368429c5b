//! Text generation, from the prompt to the printed continuation.

pub mod chat;
mod command;
pub mod decoder;
pub mod many;
mod options;
mod speak;

use grove::{
    tasks::generation::{Score, check_prompt, generate_with_draft, score_text},
    text::TextError,
};
use std::time::Instant;

use crate::{input, prelude::*};
pub use command::GenerateCommand;
pub use options::GenerationArgs;

/// Default prompt.
const DEFAULT_PROMPT: &str = "The next morning brought a letter from her sister,";

/// Continues the prompt, with a draft model if one is named, or scores it. `load` loads a model from its files; its second
/// argument is the number of prompt tokens.
fn write<B: Backend, M: TraceableLm<B>>(
    options: &GenerationArgs,
    files: &ModelFiles,
    load: impl Fn(&ModelFiles, usize) -> Result<M, Exit>,
) -> Result<(), Exit> {
    let prompt = Prompt::read(options, files)?;
    let begun = Instant::now();
    let model = load(files, prompt.ids.len())?;
    if options.score {
        let score = score_text(&model, &prompt.ids, options.stride)?;
        return print_score(options, &model, &prompt.ids, score);
    }
    // Checked before the prompt is printed.
    check_prompt(&model, &prompt.ids)?;
    let draft = options.draft.as_deref();
    let draft = draft
        .map(|draft| {
            let draft = resolve_named(draft)?;
            prompt.same_tokens(files.path(), &draft)?;
            load(&ModelFiles::at(draft)?, prompt.ids.len())
        })
        .transpose()?;
    let jitted = options.jit.then(|| model.jitted());
    prompt.speak(options, begun.elapsed().as_secs_f64(), &mut |prompts, settings, on_token| match (&draft, &jitted) {
        (_, Some(jitted)) => Ok((jitted.generate_with(prompts, settings, on_token)?, None)),
        (None, None) => Ok((generate(&model, prompts, settings, on_token)?, None)),
        (Some(draft), None) => {
            let on_token = |token| on_token(0, token);
            let (row, drafted) =
                generate_with_draft(&model, draft, &prompts[0], options.draft_tokens, settings, on_token)?;
            Ok((vec![row], Some(drafted)))
        }
    })
}

/// Prompt, tokenizer and settings of a generation, which need no weights.
struct Prompt {
    tokenizer: Option<Tokenizer>,
    /// Tokens of the prompt.
    ids: Vec<u32>,
    settings: GenerateOptions,
}

impl Prompt {
    /// Rejects a draft whose vocabulary differs from the model's. Models without a tokenizer are not checked.
    fn same_tokens(&self, model: &Path, draft: &Path) -> Result<(), Exit> {
        let (Some(own), Ok(drafts)) = (&self.tokenizer, Tokenizer::beside(draft)) else { return Ok(()) };
        match own.same_tokens(&drafts) {
            true => Ok(()),
            false => Err(failure(ModelError::Draft { model: model.into(), draft: draft.into() })),
        }
    }

    /// Reads the prompt from the options or from standard input and encodes it with the model's tokenizer, or with its adapter's if
    /// that has one. Settings missing from the options come from the files too.
    fn read(options: &GenerationArgs, files: &ModelFiles) -> Result<Self, Exit> {
        let tokenizer = match Tokenizer::beside(files.tokenizer()) {
            Ok(tokenizer) => Some(tokenizer),
            // The prompt is given as token ids.
            Err(_) if options.prompt_ids.is_some() && options.stop.is_empty() => None,
            // The model has a tokenizer, but its file is broken.
            Err(error @ TextError::Weights(_)) => return Err(failure(error)),
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
        Ok(Self { tokenizer, ids, settings: options.settings(files)? })
    }
}

/// Prints the loss and perplexity of a text.
fn print_score<B: Backend>(
    options: &GenerationArgs,
    model: &impl CausalLm<B>,
    ids: &[u32],
    Score { loss, windows }: Score,
) -> Result<(), Exit> {
    let (perplexity, context) = (loss.exp(), model.context().unwrap_or(ids.len()));
    if windows > 1 && !options.json {
        eprintln!(
            "[the text is longer than the model's context of {context} tokens: it was read in {windows} windows]"
        );
    }
    let text = format!("{} tokens, {loss:.4} nats a token, perplexity {perplexity:.2}", ids.len());
    let object = json!({ "prompt_ids": ids, "loss": loss, "perplexity": perplexity, "windows": windows });
    report(options.json, &object, &text).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        generation: GenerationArgs,
    }

    /// Tokens that were added with an adapter are in the adapter's tokenizer.
    #[test]
    fn the_tokenizer_of_an_adapter_replaces_the_models() {
        let adapter = tempfile::tempdir().expect("a temporary directory");
        std::fs::write(adapter.path().join("adapter_config.json"), "{}").expect("written");
        let files = |adapter: &Path| {
            let files = ModelFiles::at(shipped("gpt2-austen")).expect("a model");
            files.with_adapter(adapter.to_str().expect("a path")).expect("an adapter")
        };
        let Words { generation } = Words::parse_from(["program", "trees trees"]);
        let ids = |files: &ModelFiles| Prompt::read(&generation, files).map(|prompt| prompt.ids);
        let of_model = ids(&files(adapter.path())).expect("the model's tokenizer");
        let tokenizer = Tokenizer::train_bpe(&["trees trees trees trees"], 264).expect("a tokenizer");
        tokenizer.save(adapter.path()).expect("written");
        let of_adapter = ids(&files(adapter.path())).expect("the adapter's tokenizer");
        assert_eq!(of_adapter, tokenizer.encode("trees trees").expect("tokens"));
        assert_ne!(of_adapter, of_model);
    }
}
