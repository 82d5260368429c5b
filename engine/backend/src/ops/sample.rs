//! Sampling of tokens on the device of the logits, so that the host reads only token ids.

use burn::tensor::{Int, Tensor, ops::IntTensor};

use super::{Backend, PendingRead};

/// Options of [`Backend::sample`]. They are applied in the order of the fields, as in transformers.
#[derive(Clone, Debug, PartialEq)]
pub struct SampleOptions {
    /// Divisor of positive logits, and factor of negative logits, of tokens that have occurred.
    pub repetition_penalty: f32,
    /// Divisor of the logits. With 0 the largest logit is selected, and the options below are ignored.
    pub temperature: f32,
    /// Retains the k largest logits, and those equal to the k-th.
    pub top_k: Option<usize>,
    /// Retains the smallest set of most likely tokens whose probabilities sum to at least this.
    pub top_p: Option<f32>,
    /// Retains tokens whose probability is at least this fraction of the largest.
    pub min_p: Option<f32>,
    /// Words of the random key of each row, high word first. Not read with temperature 0.
    pub keys: Vec<[u32; 2]>,
}

/// Result of [`sample`].
#[derive(Debug)]
pub struct Sampled<B: Backend> {
    /// Tokens on the device, `[rows]`; 0 for rows that cannot be sampled.
    pub tokens: Tensor<B, 1, Int>,
    /// Tokens that have occurred, including the sampled ones.
    pub occurred: Option<Tensor<B, 2, Int>>,
    /// Copy of the tokens to the host, in progress.
    pub pending: PendingTokens,
}

/// A pending copy of tokens from a device to the host. Dropping it also waits, like [`PendingRead`].
#[derive(Debug)]
pub struct PendingTokens(pub(super) PendingRead);

impl PendingTokens {
    /// Waits for the tokens of all rows. `None` for rows whose logits contain NaN or infinity, or are all minus infinity.
    ///
    /// # Panics
    /// If the device failed.
    pub fn wait(self) -> Vec<Option<u32>> {
        self.0.wait().iter::<i32>().map(|token| u32::try_from(token).ok()).collect()
    }
}

/// The primitives of [`Sampled`].
pub type SampledPrimitives<B> = (IntTensor<B>, Option<IntTensor<B>>, PendingTokens);

/// Samples a token for each row of logits on the device: the argmax of processed logits plus Gumbel noise, the first of
/// equal maxima. `None` on backends that leave sampling to the host; see [`Backend::SAMPLES`].
///
/// Random bits, counts and top-k thresholds equal the host's. Probabilities are summed in f32 in another order, and a
/// device may round divisions and logarithms differently, so a token may differ from the host's if two candidates are
/// almost equal.
///
/// # Shapes
/// - logits `[rows, classes]`
/// - occurred `[rows, classes]`: nonzero for tokens that have occurred; required if the repetition penalty is not 1
///
/// # Panics
/// If a repetition penalty is given without the tokens that have occurred, or if there are fewer keys than rows.
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
