//! Drawing tokens from logits where the logits lie, so that a token is all that the host reads.

use burn::tensor::{Int, Tensor, ops::IntTensor};

use super::{Backend, PendingRead};

/// Settings of [`Backend::sample`]. The steps follow each other in the order of the fields, as in transformers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleOptions {
    /// Divides positive logits, and multiplies negative ones, of tokens that have occurred.
    pub repetition_penalty: f32,
    /// Divides the logits; with 0 the largest logit is taken, and what follows does not count.
    pub temperature: f32,
    /// Keeps the k largest logits, and those equal to the last of them.
    pub top_k: Option<usize>,
    /// Keeps the fewest largest logits whose probabilities add up to this.
    pub top_p: Option<f32>,
    /// Keeps tokens at least this times as likely as the likeliest.
    pub min_p: Option<f32>,
    /// The two words of the random key, the high one first. Row `i` draws with what `fold_in(key, i)` is in JAX.
    pub key: [u32; 2],
}

/// Result of [`sample`].
#[derive(Debug)]
pub struct Sampled<B: Backend> {
    /// The tokens, `[rows]`, on the device. 0 where none could be drawn.
    pub tokens: Tensor<B, 1, Int>,
    /// The tokens that have occurred, with those that were drawn.
    pub occurred: Option<Tensor<B, 2, Int>>,
    /// The tokens on their way to the host.
    pub pending: PendingTokens,
}

/// Tokens on their way from a device to the host. Dropping it waits too, as for [`PendingRead`].
#[derive(Debug)]
pub struct PendingTokens(pub(super) PendingRead);

impl PendingTokens {
    /// Waits for the tokens of all rows. `None` where a row had NaN or infinity among its logits, or nothing but minus
    /// infinity.
    ///
    /// # Panics
    /// If the device failed.
    pub fn wait(self) -> Vec<Option<u32>> {
        self.0.wait().iter::<i32>().map(|token| u32::try_from(token).ok()).collect()
    }
}

/// The primitives of [`Sampled`].
pub type SampledPrimitives<B> = (IntTensor<B>, Option<IntTensor<B>>, PendingTokens);

/// Draws a token for each row of logits on the device: the largest of processed logit plus Gumbel noise, the first of equal
/// ones. `None` on backends that leave it to the host; see [`Backend::SAMPLES`].
///
/// Random bits, counts and thresholds of top-k are those of the host. Probabilities are summed in f32, in another order, and
/// a device may round divisions and logarithms differently, so that a token can be another than the host's where two are as
/// good as equal.
///
/// # Shapes
/// - logits `[rows, classes]`
/// - occurred `[rows, classes]`: not 0 for tokens that have occurred; needed where the repetition penalty is not 1
///
/// # Panics
/// If a repetition penalty comes without the tokens that have occurred.
pub fn sample<B: Backend>(
    logits: Tensor<B, 2>,
    occurred: Option<Tensor<B, 2, Int>>,
    options: SampleOptions,
) -> Option<Sampled<B>> {
    let occurred = occurred.map(Tensor::into_primitive);
    let (tokens, occurred, pending) = B::sample(logits.into_primitive().tensor(), occurred, options)?;
    let occurred = occurred.map(Tensor::from_primitive);
    Some(Sampled { tokens: Tensor::from_primitive(tokens), occurred, pending })
}
