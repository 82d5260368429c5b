use grove_backend::Backend;
use grove_files::note_once;
use grove_models::{CausalLm, ModelError, Result, not_finite};
use grove_tree::Key;
use std::collections::VecDeque;

use super::{
    Finish, GenerateOptions, Generated,
    batch::Batch,
    decoder::{Again, Decoder, Eager, joins},
    rows::{Row, Rows},
    rules::Place,
};

/// Continues prompts, all together or in batches of at most [`batch_size`](GenerateOptions::batch_size). Shorter prompts are
/// padded on the left and masked, so that each is continued as if it were alone.
///
/// `on_token(row, token)` is called with each new token. If it returns false, the row ends, including that token.
/// Random numbers are a function of the key, the row and the position.
///
/// A model whose hidden states all depend on the sequence length continues prompts of different lengths one after the other.
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
    on_token: impl FnMut(usize, u32) -> bool,
) -> Result<Vec<Generated>> {
    generate_many(model, prompts, options, on_token, |_row, _generated| ())
}

/// Continues prompts as [`generate`] does, and calls `on_end(row, generated)` as soon as a row has ended.
///
/// ```
/// use grove_models::{Gpt2, Gpt2Config, Pretrained};
/// use grove_tasks::{GenerateOptions, generation::generate_many};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 32, ..Default::default() };
/// # let model = Gpt2::<B>::init(&config, Key::new(0), &Default::default())?;
/// let prompts: Vec<Vec<u32>> = (1..10).map(|length| vec![3; length]).collect();
/// let options = GenerateOptions { max_new_tokens: 4, batch_size: Some(4), ..Default::default() };
/// let mut ended = vec![];
/// let texts = generate_many(&model, &prompts, &options, |_, _| true, |i, text| ended.push((i, text.clone())))?;
/// ended.sort_by_key(|(i, _)| *i);
/// assert_eq!(ended.into_iter().map(|(_, text)| text).collect::<Vec<_>>(), texts);
/// # Ok::<(), grove_models::ModelError>(())
/// ```
///
/// # Errors
/// As [`generate`].
pub fn generate_many<B: Backend, M: CausalLm<B>>(
    model: &M,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    mut on_token: impl FnMut(usize, u32) -> bool,
    mut on_end: impl FnMut(usize, &Generated),
) -> Result<Vec<Generated>> {
    generate_by(&Eager(model), prompts, options, &mut on_token, &mut on_end)
}

/// Maximum number of tokens of prompts, with padding, that are processed at once, unless one prompt is longer.
const PROMPT_TOKENS: usize = 8192;

/// Fraction of a batch, as a divisor, that is free before the next prompts are processed. Each time, the caches are copied.
const FREE_PART: usize = 8;

/// Implements [`generate_many`] with a decoder's steps.
pub(super) fn generate_by<B: Backend, M: CausalLm<B>>(
    decoder: &dyn Decoder<B, M>,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &mut dyn FnMut(usize, u32) -> bool,
    on_end: &mut dyn FnMut(usize, &Generated),
) -> Result<Vec<Generated>> {
    let model = decoder.model();
    let again = Again::new(decoder);
    let decoder = if options.reads_again(model) { &again } else { decoder };
    let mut rows = rows_of(model, prompts, options, on_token, on_end)?;
    let mut waiting: VecDeque<usize> = (0..prompts.len()).filter(|&i| !rows.ended(i)).collect();
    // A batch with rows of several lengths has the states of the longest.
    let whole = model.reads_prompts_whole();
    let alone = whole && prompts.iter().any(|prompt| prompt.len() != prompts[0].len());
    let most = if alone { 1 } else { options.batch_size.unwrap_or(usize::MAX).min(waiting.len()) };
    let joins = !whole && joins::<B, M>();
    let mut batch = None::<Batch<'_, B, M>>;
    loop {
        batch = batch.filter(|batch| batch.open(&rows) > 0);
        let (len, open) = batch.as_ref().map_or((0, 0), |batch| (batch.len(), batch.open(&rows)));
        let (size, free) = match waiting.is_empty() {
            true if decoder.compiles() => (len, 0),
            true => (len, len - open),
            false => (most, most - open),
        };
        if batch.is_none() || joins && free > 0 && free * FREE_PART >= size {
            let mut next: Vec<usize> = waiting.drain(..free.min(waiting.len())).collect();
            next.sort_by_key(|&i| rows.rows[i].ids.len());
            let groups = if joins { groups(next, prompts) } else { vec![next] };
            let mut batches: Vec<_> = batch.take().into_iter().collect();
            for group in groups.into_iter().filter(|group| !group.is_empty()) {
                batches.push(Batch::read(decoder, options, group, &mut rows)?);
            }
            batch = if joins { Batch::join(batches, &mut rows)? } else { batches.pop() };
        }
        batch = match batch {
            Some(batch) => Some(batch.step(&mut rows)?),
            None if waiting.is_empty() => break,
            None => None,
        };
    }
    note_beyond_context(model, rows.rows.iter().map(|row| row.ids.len()).max().unwrap_or(0));
    Ok(rows.rows.iter().map(Row::generated).collect())
}

/// Checks options and prompts, and returns the rows of the prompts. Those without room for a new token have ended.
pub(super) fn rows_of<'a, B: Backend, M: CausalLm<B>>(
    model: &M,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    on_token: &'a mut dyn FnMut(usize, u32) -> bool,
    on_end: &'a mut dyn FnMut(usize, &Generated),
) -> Result<Rows<'a>> {
    options.validate::<B>(&model.device())?;
    for prompt in prompts {
        check_prompt(model, prompt)?;
    }
    let row = |prompt: &Vec<u32>| {
        let limit = limit_of(model, prompt.len(), options);
        Row { ids: prompt.clone(), prompt: prompt.len(), limit, finish: None }
    };
    let mut rows = Rows { rows: prompts.iter().map(row).collect(), ends: ends_of(model, options), on_token, on_end };
    for i in 0..prompts.len() {
        let (steps, reason) = rows.rows[i].limit;
        if steps == 0 {
            rows.end(i, reason);
        }
    }
    Ok(rows)
}

/// Divides prompts, the shortest first, into groups that are processed at once. Equal prompts count once.
fn groups(rows: Vec<usize>, prompts: &[Vec<u32>]) -> Vec<Vec<usize>> {
    let (mut groups, mut distinct) = (Vec::<Vec<usize>>::new(), 0);
    for row in rows {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|&last| prompts[last] == prompts[row]) => group.push(row),
            Some(group) if (distinct + 1) * prompts[row].len() <= PROMPT_TOKENS => {
                group.push(row);
                distinct += 1;
            }
            _ => {
                groups.push(vec![row]);
                distinct = 1;
            }
        }
    }
    groups
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
    note_beyond_context(model, prompt.len());
    match model.position_limit() {
        Some(context) if prompt.len() > context => Err(ModelError::PromptTooLong { len: prompt.len(), context }),
        _ => Ok(()),
    }
}

/// Warns once that a sequence is longer than the model's context length.
pub(super) fn note_beyond_context<B: Backend, M: CausalLm<B>>(model: &M, len: usize) {
    if let (Some(context), None) = (model.context(), model.position_limit())
        && len > context
    {
        note_once(&format!(
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

/// Returns the maximum number of new tokens after a prompt, and the reason for it: the model's context or the options.
pub(super) fn limit_of<B: Backend, M: CausalLm<B>>(
    model: &M,
    prompt: usize,
    options: &GenerateOptions,
) -> (usize, Finish) {
    // The last token is not processed.
    let room = model.position_limit().map_or(usize::MAX, |context| context.saturating_sub(prompt).saturating_add(1));
    let most = options.most_after(prompt);
    if room < most { (room, Finish::Context) } else { (most, Finish::Length) }
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
    // Single logits may be minus infinity, but not all of them. NaN is not below infinity.
    let is_valid = logits.iter().all(|&x| x < f32::INFINITY) && logits.iter().any(|&x| x > f32::NEG_INFINITY);
    if !is_valid {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompts_are_read_in_groups_of_some_tokens() {
        let prompts = [1000, 3000, 3000, 4000, 4200, 9000].map(|length| vec![length; length as usize]);
        let order = (0..prompts.len()).collect();
        assert_eq!(groups(order, &prompts), [vec![0, 1, 2], vec![3], vec![4], vec![5]]);
        let samples = vec![vec![1; 5000]; 40];
        assert_eq!(groups((0..40).collect(), &samples).len(), 1);
        assert!(groups(vec![], &prompts).is_empty());
    }
}
