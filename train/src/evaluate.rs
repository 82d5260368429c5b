//! Evaluation of language models.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_distributed::Communicator;

use crate::{
    Result, TrainError,
    arrays::scalar,
    data::{TokenBatch, TokenStream},
    ranks::or_end,
};

/// Returns the mean loss, in nats, over all tokens of a stream but the first, and the number of those tokens.
///
/// The stream is cut into windows of `context` predictions; the last window may be shorter. Each token is predicted
/// from the tokens before it in its window. `loss` computes the mean loss of token ids `[b, t]` with targets `[b, t]`,
/// the next tokens, for at most `batch_size` windows. `progress` is called with the number of tokens of each batch.
///
/// The result is NaN for a stream of fewer than two tokens.
///
/// # Errors
/// [`TrainError::Options`] if `context` or `batch_size` is 0.
pub fn token_loss<B: Backend>(
    stream: &TokenStream,
    context: usize,
    batch_size: usize,
    device: &B::Device,
    loss: impl FnMut(Tensor<B, 2, Int>, Tensor<B, 2, Int>) -> Tensor<B, 1>,
    progress: impl FnMut(usize),
) -> Result<(f64, usize)> {
    token_loss_on(&Communicator::single(), stream, context, batch_size, device, loss, progress)
}

/// [`token_loss`] distributed over all ranks of a job: each rank evaluates its share of the batches and gets the loss
/// of the whole stream. A failed collective ends the job; see [`Communicator::end_job`].
///
/// # Errors
/// As [`token_loss`].
pub fn token_loss_on<B: Backend>(
    ranks: &Communicator,
    stream: &TokenStream,
    context: usize,
    batch_size: usize,
    device: &B::Device,
    mut loss: impl FnMut(Tensor<B, 2, Int>, Tensor<B, 2, Int>) -> Tensor<B, 1>,
    mut progress: impl FnMut(usize),
) -> Result<(f64, usize)> {
    if context == 0 || batch_size == 0 {
        return Err(TrainError::Options(format!(
            "an evaluation needs windows of at least 1 token in batches of at least 1: the context is {context}, and the \
             batch size {batch_size}"
        )));
    }
    let count = stream.len().saturating_sub(1);
    let whole = count - count % context;
    let starts: Vec<usize> = (0..whole).step_by(context).collect();
    let mut sum_of = |starts: &[usize], context: usize| {
        let tokens = starts.iter().flat_map(|&start| stream.read(start..start + context + 1)).collect();
        let batch = TokenBatch { tokens, rows: starts.len(), columns: context + 1 };
        let mean = loss(batch.inputs(device), batch.targets(device));
        progress(starts.len() * context);
        scalar(mean.into_data()) * (starts.len() * context) as f64
    };
    let mine = starts.chunks(batch_size).skip(ranks.rank()).step_by(ranks.size());
    let mut sum: f64 = mine.map(|starts| sum_of(starts, context)).sum();
    if whole < count && ranks.rank() + 1 == ranks.size() {
        sum += sum_of(&[whole], count - whole);
    }
    let sums = or_end(ranks.all_reduce("the loss of an evaluation", vec![sum]), ranks);
    Ok((sums[0] / count as f64, count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn every_token_but_the_first_counts_once() {
        let stream = TokenStream::new((0..24).collect());
        let mut reported = 0;
        // The loss of a token is its id.
        let loss = |_, targets: Tensor<Flex, 2, Int>| targets.float().mean();
        let (mean, count) =
            token_loss::<Flex>(&stream, 5, 2, &Default::default(), loss, |tokens| reported += tokens).unwrap();
        assert_eq!((count, reported), (23, 23));
        assert!((mean - 12.0).abs() < 1e-4, "{mean}");
    }

    /// A model's files can name a context of 0.
    #[test]
    fn empty_windows_and_batches_are_refused() {
        let stream = TokenStream::new((0..24).collect());
        for (context, batch_size, words) in [(0, 2, "the context is 0"), (5, 0, "the batch size 0")] {
            let loss = |_, targets: Tensor<Flex, 2, Int>| targets.float().mean();
            let evaluated = token_loss::<Flex>(&stream, context, batch_size, &Default::default(), loss, |_| ());
            let error = evaluated.unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
