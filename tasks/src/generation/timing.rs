use grove_models::Result;
use serde::Serialize;
use std::time::Instant;

use super::Generated;

/// Timing of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Timing {
    /// Total seconds.
    pub seconds: f64,
    /// Seconds until the first token, mostly for processing the prompts; `None` if there was no token.
    pub first_token_seconds: Option<f64>,
    /// Tokens per second, without the first token of each row; `None` if there were no others.
    pub tokens_per_second: Option<f64>,
}

/// Generates and measures the time. `generate` gets the callback for [`generate`](super::generate) and similar
/// functions, and returns the rows, with any other result.
///
/// ```
/// use grove_models::{Gpt2, Gpt2Config, Pretrained};
/// use grove_tasks::{GenerateOptions, generate, generation::timed};
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let config = Gpt2Config { n_embd: 8, n_layer: 1, n_head: 2, vocab_size: 16, n_positions: 8, ..Gpt2Config::default() };
/// let model = Gpt2::<B>::init(&config, Key::new(0), &device)?;
/// let options = GenerateOptions { max_new_tokens: 4, ..GenerateOptions::default() };
/// let (rows, (), timing) = timed(&mut |_, _| true, |on_token| {
///     Ok((generate(&model, &[vec![1, 2]], &options, on_token)?, ()))
/// })?;
/// assert!(rows.len() == 1 && timing.seconds >= timing.first_token_seconds.unwrap_or(0.0));
/// # Ok::<(), grove_models::ModelError>(())
/// ```
///
/// # Errors
/// Those of `generate`.
pub fn timed<T>(
    on_token: &mut dyn FnMut(usize, u32) -> bool,
    generate: impl FnOnce(&mut dyn FnMut(usize, u32) -> bool) -> Result<(Vec<Generated>, T)>,
) -> Result<(Vec<Generated>, T, Timing)> {
    let (mut first, begun) = (None, Instant::now());
    let (rows, other) = generate(&mut |row, token| {
        first.get_or_insert_with(Instant::now);
        on_token(row, token)
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let first_token_seconds = first.map(|first: Instant| first.duration_since(begun).as_secs_f64());
    let decoded = rows.iter().map(|row| row.ids.len().saturating_sub(1)).sum::<usize>();
    let decoding = seconds - first_token_seconds.unwrap_or(0.0);
    let tokens_per_second = (decoded > 0 && decoding > 0.0).then(|| decoded as f64 / decoding);
    Ok((rows, other, Timing { seconds, first_token_seconds, tokens_per_second }))
}
