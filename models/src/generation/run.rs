use burn::tensor::{DType, Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::loss::cross_entropy;
use grove_tree::Key;

use super::{Decoder, Sampling};
use crate::error::{ModelError, Result};

/// What to generate.
#[derive(Clone, Debug)]
pub struct GenerateOptions {
    /// Most tokens to add to each prompt.
    pub max_new_tokens: usize,
    /// How tokens are drawn.
    pub sampling: Sampling,
    /// Tokens that end a text, besides the model's own; they are not part of the result.
    pub stop_tokens: Vec<u32>,
    /// Goes on after the model's own end tokens.
    pub ignore_eos: bool,
    /// Where the random numbers come from.
    pub key: Key,
}

impl Default for GenerateOptions {
    /// Up to 128 tokens, sampled at temperature 1 with key 0.
    fn default() -> Self {
        Self {
            max_new_tokens: 128,
            sampling: Sampling::default(),
            stop_tokens: Vec::new(),
            ignore_eos: false,
            key: Key::new(0),
        }
    }
}

impl GenerateOptions {
    /// The key of a row's next token, `step` tokens after the prompt.
    pub(super) fn key_of(&self, step: usize, row: usize) -> Key {
        self.key.fold_in(step as u32).fold_in(row as u32)
    }
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it, or a stop token did.
    Stop,
    /// As many tokens as allowed, or the model's context is full.
    Length,
    /// The function that watches the tokens said so.
    Watcher,
}

/// A continuation of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generated {
    /// The new tokens, without the one that ended the text.
    pub ids: Vec<u32>,
    /// Why it ended.
    pub finish: Finish,
}

/// A row that is being generated.
struct Row {
    /// Prompt and new tokens.
    ids: Vec<u32>,
    prompt: usize,
    finish: Option<Finish>,
}

/// Continues prompts, all at once, each as if it were alone: shorter ones are padded on the left and masked.
///
/// `watch(row, token)` sees each new token as it is drawn; when it returns false that row ends (with the token).
/// Random numbers are a function of the key, the row and the position.
///
/// # Errors
/// A prompt is empty, has a token that the model has not, or does not fit into the context with at least one token
/// more; an option is out of its range.
pub fn generate<B: Backend, M: Decoder<B>>(
    model: &M,
    prompts: &[Vec<u32>],
    options: &GenerateOptions,
    mut watch: impl FnMut(usize, u32) -> bool,
) -> Result<Vec<Generated>> {
    options.sampling.validate()?;
    for prompt in prompts {
        check_prompt(model, prompt)?;
    }
    let longest = prompts.iter().map(Vec::len).max().unwrap_or(0);
    let steps = steps_of(model, longest, options);
    let ends = ends_of(model, options);

    let row = |prompt: &Vec<u32>| Row { ids: prompt.clone(), prompt: prompt.len(), finish: None };
    let mut rows: Vec<Row> = prompts.iter().map(row).collect();
    let padding: Vec<usize> = prompts.iter().map(|prompt| longest - prompt.len()).collect();
    let padded = |(prompt, &pad): (&Vec<u32>, &usize)| [vec![0; pad], prompt.clone()].concat();
    let mut input: Vec<Vec<u32>> = prompts.iter().zip(&padding).map(padded).collect();
    let device = model.device();
    let mut state = model.start(longest.saturating_add(steps));
    for step in 0..steps {
        if rows.iter().all(|row| row.finish.is_some()) {
            break;
        }
        let (logits, next_state) = model.decode(int_tensor(&input, &device), &padding, state);
        state = next_state;
        let mut logits = float_vec(logits);
        for (i, row) in rows.iter_mut().enumerate() {
            if row.finish.is_some() {
                continue;
            }
            let vocab_size = model.vocab_size();
            let logits = &mut logits[i * vocab_size..(i + 1) * vocab_size];
            let token = options.sampling.draw(logits, &row.ids, options.key_of(step, i));
            if ends.contains(&token) {
                row.finish = Some(Finish::Stop);
                continue;
            }
            row.ids.push(token);
            if !watch(i, token) {
                row.finish = Some(Finish::Watcher);
            }
        }
        // Rows that have ended go on with their last token, unread.
        input = rows.iter().map(|row| row.ids.last().copied().into_iter().collect()).collect();
    }
    let finished =
        |row: Row| Generated { ids: row.ids[row.prompt..].to_vec(), finish: row.finish.unwrap_or(Finish::Length) };
    Ok(rows.into_iter().map(finished).collect())
}

/// Mean negative log-likelihood of a text's tokens after the first, in nats; its exponential is the perplexity.
/// `logits` are a forward pass's, `[1, t, vocab_size]`.
///
/// # Errors
/// [`ModelError::TooShortToScore`] for fewer than two tokens.
pub fn score<B: Backend>(logits: Tensor<B, 3>, ids: &[u32]) -> Result<f64> {
    let t = ids.len();
    if t < 2 {
        return Err(ModelError::TooShortToScore { len: t });
    }
    let [_, _, vocab_size] = logits.dims();
    let logits = logits.slice([0..1, 0..t - 1]).reshape([t - 1, vocab_size]).cast(DType::F32);
    let labels = int_tensor(&[ids[1..].to_vec()], &logits.device()).reshape([t - 1]);
    let loss = cross_entropy(logits, labels).into_data();
    Ok(loss.iter::<f64>().next().unwrap_or(f64::NAN))
}

/// Checks that a model can read a prompt: it has tokens, the model knows them, and they fit into its context.
///
/// # Errors
/// [`ModelError::EmptyPrompt`], [`ModelError::TokenOutside`] or [`ModelError::PromptTooLong`].
pub fn check_prompt<B: Backend, M: Decoder<B>>(model: &M, prompt: &[u32]) -> Result<()> {
    if prompt.is_empty() {
        return Err(ModelError::EmptyPrompt);
    }
    let vocab_size = model.vocab_size();
    if let Some(&id) = prompt.iter().find(|&&id| id as usize >= vocab_size) {
        return Err(ModelError::TokenOutside { id, vocab_size });
    }
    match model.context() {
        Some(context) if prompt.len() > context => Err(ModelError::PromptTooLong { len: prompt.len(), context }),
        _ => Ok(()),
    }
}

/// How many tokens can follow a prompt that the model can read.
pub(super) fn steps_of<B: Backend, M: Decoder<B>>(model: &M, prompt: usize, options: &GenerateOptions) -> usize {
    let room = model.context().map_or(usize::MAX, |context| context.saturating_sub(prompt).saturating_add(1));
    options.max_new_tokens.min(room)
}

/// The tokens that end a text.
pub(super) fn ends_of<B: Backend, M: Decoder<B>>(model: &M, options: &GenerateOptions) -> Vec<u32> {
    let own = if options.ignore_eos { vec![] } else { model.end_tokens() };
    options.stop_tokens.iter().copied().chain(own).collect()
}

/// Rows of equal length as a tensor, `[rows, t]`.
pub(super) fn int_tensor<B: Backend>(rows: &[Vec<u32>], device: &B::Device) -> Tensor<B, 2, Int> {
    let t = rows.first().map_or(0, Vec::len);
    let ids: Vec<i64> = rows.iter().flatten().map(|&id| i64::from(id)).collect();
    Tensor::from_data(TensorData::new(ids, [rows.len(), t]), device)
}

/// The numbers of a tensor of any floating-point type.
pub(super) fn float_vec<B: Backend>(x: Tensor<B, 2>) -> Vec<f32> {
    let data = x.into_data();
    data.convert::<f32>().into_vec().unwrap_or_default()
}
