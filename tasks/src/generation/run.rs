use grove_backend::Backend;
use grove_files::say_once;
use grove_models::{CausalLm, ModelError, Result, not_finite};
use grove_tree::Key;

use super::{
    Finish, GenerateOptions, Generated,
    ahead::{self, Sampler},
    decoder::{Again, Decoder, Eager, decode_prompts},
    rows::{Row, Rows, float_vec, int_tensor, seen_before},
    rules::Place,
};

/// Continues prompts as one batch. Shorter prompts are padded on the left and masked, so that each is continued as if
/// it were alone.
///
/// `on_token(row, token)` is called with each new token. If it returns false, the row ends, including that token.
/// Random numbers are a function of the key, the row and the position.
///
/// ```
/// use grove_models::{Gpt2, Gpt2Config, Pretrained};
/// use grove_tasks::{GenerateOptions, generate, generation::Sampling};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// # let model = Gpt2::<B>::init(&config, Key::new(0), &Default::default())?;
/// let options = GenerateOptions { max_new_tokens: 4, sampling: Sampling::greedy(), ..Default::default() };
/// let texts = generate(&model, &[vec![1, 2, 3], vec![4]], &options, |_row, _token| true)?;
/// assert_eq!(texts.iter().map(|text| text.ids.len()).collect::<Vec<_>>(), [4, 4]);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
///
/// # Errors
/// A prompt is empty, has a token outside the vocabulary, or does not fit into the context; an option is out of range;
/// the logits are not finite.
pub fn generate<B: Backend, M: CausalLm<B>>(
    model: &M,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    mut on_token: impl FnMut(usize, u32) -> bool,
) -> Result<Vec<Generated>> {
    generate_by(&Eager(model), prompts, options, &mut on_token)
}

/// Implements [`generate`] with a decoder's steps.
pub(super) fn generate_by<B: Backend, M: CausalLm<B>>(
    decoder: &dyn Decoder<B, M>,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(usize, u32) -> bool,
) -> Result<Vec<Generated>> {
    let model = decoder.model();
    let again = Again::new(decoder);
    let decoder = if options.reads_again(model) { &again } else { decoder };
    options.sampling.validate()?;
    for prompt in prompts {
        check_prompt(model, prompt)?;
    }
    let ends = ends_of(model, options);
    let row = |prompt: &Vec<u32>| {
        let steps = steps_of(model, prompt.len(), options);
        let limit = (steps, limit_of(steps, prompt.len(), options));
        let finish = (steps == 0).then_some(limit.1);
        Row { ids: prompt.clone(), prompt: prompt.len(), limit, finish }
    };
    let mut rows = Rows { rows: prompts.iter().map(row).collect(), ends, on_token };
    let mut done = 0;
    // The longest sequence fills the context first. The others continue without it.
    while !rows.all_ended() {
        done += continue_together(decoder, options, &mut rows, done)?;
    }
    say_beyond(model, rows.rows.iter().map(|row| row.ids.len()).max().unwrap_or(0));
    let finished =
        |row: Row| Generated { ids: row.ids[row.prompt..].to_vec(), finish: row.finish.unwrap_or(row.limit.1) };
    Ok(rows.rows.into_iter().map(finished).collect())
}

/// Continues the rows that have not ended, after `done` new tokens, until all have ended or the longest fills the
/// context. Returns the number of steps.
fn continue_together<B: Backend, M: CausalLm<B>>(
    decoder: &dyn Decoder<B, M>,
    options: &GenerateOptions,
    rows: &mut Rows<'_>,
    done: usize,
) -> Result<usize> {
    let model = decoder.model();
    // The index of a row determines its random numbers. Rows that have ended therefore keep their index, with a dummy
    // token.
    let text = |row: &Row| if row.finish.is_some() { row.ids[..1].to_vec() } else { row.ids.clone() };
    let texts: Vec<Vec<u32>> = rows.rows.iter().map(text).collect();
    let longest = texts.iter().map(Vec::len).max().unwrap_or(0);
    let open = || rows.rows.iter().filter(|row| row.finish.is_none());
    let left = open().map(|row| row.limit.0 - done).max().unwrap_or(0);
    let steps = left.min(room(model, longest));
    let padding: Vec<usize> = texts.iter().map(|text| longest - text.len()).collect();
    let padded = |(text, &pad): (&Vec<u32>, &usize)| [vec![0; pad], text.clone()].concat();
    let input: Vec<Vec<u32>> = texts.iter().zip(&padding).map(padded).collect();
    let begun: Vec<&[u32]> = texts.iter().map(Vec::as_slice).collect();
    match Sampler::new(&begun, done, model.vocab_size(), options, &model.device()) {
        Some(sampler) => ahead::run(decoder, sampler, &input, &padding, steps, rows)?,
        None => run_on_host(decoder, options, input, &padding, (done, steps), rows)?,
    }
    Ok(steps)
}

/// Continues rows with sampling on the host.
fn run_on_host<B: Backend, M: CausalLm<B>>(
    decoder: &dyn Decoder<B, M>,
    options: &GenerateOptions,
    mut input: Vec<Vec<u32>>,
    padding: &[usize],
    (done, steps): (usize, usize),
    rows: &mut Rows<'_>,
) -> Result<()> {
    let model = decoder.model();
    let (device, vocab_size) = (model.device(), model.vocab_size());
    let longest = input.first().map_or(0, Vec::len);
    let mut cache = decoder.new_cache(longest, steps);
    for step in 0..steps {
        if rows.all_ended() {
            break;
        }
        let (logits, next) = match step {
            0 => decode_prompts(decoder, &input, padding, cache),
            _ => decoder.decode(int_tensor(&input, &device), padding, cache, seen_before(longest, step)),
        };
        cache = next;
        let mut logits = float_vec(logits);
        for (i, logits) in logits.chunks_exact_mut(vocab_size).enumerate() {
            if !rows.ended(i) {
                let row = &rows.rows[i];
                let token = draw(model, options, logits, (&row.ids, row.prompt), options.key_of(done + step, i))?;
                rows.push(i, token);
            }
        }
        // Rows that have ended repeat their last token; its results are ignored.
        input = rows.rows.iter().map(|row| row.ids.last().copied().into_iter().collect()).collect();
    }
    Ok(())
}

/// Checks that a model can process a prompt: it is not empty, its tokens are in the vocabulary, and it fits into the
/// context.
///
/// # Errors
/// [`ModelError::EmptyPrompt`], [`ModelError::TokenOutside`] or [`ModelError::PromptTooLong`].
pub fn check_prompt<B: Backend, M: CausalLm<B>>(model: &M, prompt: &[u32]) -> Result<()> {
    if prompt.is_empty() {
        return Err(ModelError::EmptyPrompt);
    }
    check_tokens(model, prompt)?;
    say_beyond(model, prompt.len());
    match model.position_limit() {
        Some(context) if prompt.len() > context => Err(ModelError::PromptTooLong { len: prompt.len(), context }),
        _ => Ok(()),
    }
}

/// Warns once that a sequence is longer than the model's context length.
pub(super) fn say_beyond<B: Backend, M: CausalLm<B>>(model: &M, len: usize) {
    if let (Some(context), None) = (model.context(), model.position_limit())
        && len > context
    {
        say_once(&format!(
            "a text of more than {context} tokens is longer than those for which this model was made; it is read nevertheless"
        ));
    }
}

/// Checks that all tokens are in the model's vocabulary.
pub(super) fn check_tokens<B: Backend, M: CausalLm<B>>(model: &M, ids: &[u32]) -> Result<()> {
    let vocab_size = model.vocab_size();
    match ids.iter().find(|&&id| id as usize >= vocab_size) {
        Some(&id) => Err(ModelError::TokenOutside { id, vocab_size }),
        None => Ok(()),
    }
}

/// Returns the maximum number of new tokens after a prompt, limited by the options and the model's context.
pub(super) fn steps_of<B: Backend, M: CausalLm<B>>(model: &M, prompt: usize, options: &GenerateOptions) -> usize {
    options.most_after(prompt).min(room(model, prompt))
}

/// Returns the number of new tokens for which the model's context has room after `tokens`.
fn room<B: Backend, M: CausalLm<B>>(model: &M, tokens: usize) -> usize {
    model.position_limit().map_or(usize::MAX, |context| context.saturating_sub(tokens).saturating_add(1))
}

/// Returns the reason why a sequence ended that has all of its `steps` after a prompt.
pub(super) fn limit_of(steps: usize, prompt: usize, options: &GenerateOptions) -> Finish {
    if steps < options.most_after(prompt) { Finish::Context } else { Finish::Length }
}

/// Returns all tokens that end a sequence.
pub(super) fn ends_of<B: Backend, M: CausalLm<B>>(model: &M, options: &GenerateOptions) -> Vec<u32> {
    options.stop_tokens.iter().copied().chain(own_ends(model, options)).collect()
}

/// Returns the model's own end tokens.
fn own_ends<B: Backend, M: CausalLm<B>>(model: &M, options: &GenerateOptions) -> Vec<u32> {
    match &options.end_tokens {
        _ if options.ignore_eos => vec![],
        Some(tokens) => tokens.clone(),
        None => model.end_tokens(),
    }
}

/// Samples the next token from a model's logits. `seen` are the tokens so far; the first `prompt` are the prompt's. If
/// the logits are not finite, the error names the model's first tensor that contains NaN or infinity.
pub(super) fn draw<B: Backend, M: CausalLm<B>>(
    model: &M,
    options: &GenerateOptions,
    logits: &mut [f32],
    (seen, prompt): (&[u32], usize),
    key: Key,
) -> Result<u32> {
    // Single logits may be minus infinity, but not all of them.
    let numbers = logits.iter().all(|&x| x < f32::INFINITY);
    if !numbers || logits.iter().all(|&x| x == f32::NEG_INFINITY) {
        return Err(not_finite(model));
    }
    if options.rules.is_empty() {
        return Ok(options.sampling.draw(logits, seen, key));
    }
    let ends = own_ends(model, options);
    let place = Place { ids: seen, prompt, max_new_tokens: options.most_after(prompt), ends: &ends };
    let drawn = options.rules.draw(&options.sampling, logits, place, key);
    drawn.ok_or_else(|| ModelError::Config {
        reason: format!(
            "the rules of generation_config.json exclude every token after {} tokens: loosen one of {}",
            seen.len(),
            options.rules.excluding().join(", ")
        ),
    })
}
