//! Generation with sampling on the device. The next steps are queued before a token is read.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Backend, PendingTokens, sample};
use grove_models::{CausalLm, Result, not_finite};
use std::collections::VecDeque;

use super::{
    GenerateOptions,
    decoder::{Decoder, decode_prompts},
    rows::{Rows, seen_before},
};

/// Number of steps that are queued before the first of them is read. Steps after the end of all sequences are wasted.
const IN_FLIGHT: usize = 3;

/// Samples tokens on the device, and records there the tokens that have occurred.
pub(super) struct Sampler<'a, B: Backend> {
    options: &'a GenerateOptions,
    occurred: Option<Tensor<B, 2, Int>>,
    /// Number of tokens sampled for each row.
    steps: usize,
}

impl<'a, B: Backend> Sampler<'a, B> {
    /// Creates a sampler for rows with these tokens so far, of which `done` are new. Returns `None` if the host
    /// samples: on backends that sample on the host, with token rules, and for temperatures so low that the scaled
    /// logits may overflow.
    pub fn new(
        rows: &[&[u32]],
        done: usize,
        vocab_size: usize,
        options: &'a GenerateOptions,
        device: &B::Device,
    ) -> Option<Self> {
        let sampling = &options.sampling;
        if !B::SAMPLES || !options.rules.is_empty() || sampling.temperature > 0.0 && sampling.temperature < 1e-3 {
            return None;
        }
        let occurred = (sampling.repetition_penalty != 1.0).then(|| {
            let mut flags = vec![0i64; rows.len() * vocab_size];
            for (flags, tokens) in flags.chunks_exact_mut(vocab_size).zip(rows) {
                tokens.iter().for_each(|&token| flags[token as usize] = 1);
            }
            Tensor::from_data(TensorData::new(flags, [rows.len(), vocab_size]), device)
        });
        Some(Self { options, occurred, steps: done })
    }

    /// Samples the next token of each row, `[rows]`. The tokens are on the device, and their copy to the host has
    /// begun.
    pub fn draw(&mut self, logits: Tensor<B, 2>) -> (Tensor<B, 1, Int>, PendingTokens) {
        let options = self.options.sampling.on_device(self.options.key.fold_in(self.steps as u32));
        self.steps += 1;
        let sampled = sample(logits, self.occurred.take(), options).expect("a backend that draws tokens");
        self.occurred = sampled.occurred;
        (sampled.tokens, sampled.pending)
    }
}

/// Continues rows by at most `steps` tokens. `input` is the first input of the model, `[rows, t]`.
pub(super) fn run<B: Backend, M: CausalLm<B>>(
    decoder: &dyn Decoder<B, M>,
    mut sampler: Sampler<'_, B>,
    input: &[Vec<u32>],
    padding: &[usize],
    steps: usize,
    rows: &mut Rows<'_>,
) -> Result<()> {
    let longest = input.first().map_or(0, Vec::len);
    let model = decoder.model();
    let mut cache = decoder.new_cache(longest, steps);
    let mut drawn: Option<Tensor<B, 1, Int>> = None;
    let mut pending = VecDeque::with_capacity(IN_FLIGHT);
    let mut queued = 0;
    for step in 0..steps {
        if rows.all_ended() {
            break;
        }
        while queued < steps.min(step + IN_FLIGHT) {
            let (logits, next) = match drawn {
                None => decode_prompts(decoder, input, padding, cache),
                Some(tokens) => decoder.decode(tokens.unsqueeze_dim(1), padding, cache, seen_before(longest, queued)),
            };
            let (tokens, read) = sampler.draw(logits);
            (drawn, cache) = (Some(tokens), next);
            pending.push_back(read);
            queued += 1;
        }
        let tokens = pending.pop_front().expect("a step that was queued").wait();
        for (i, token) in tokens.into_iter().enumerate() {
            if !rows.ended(i) {
                rows.push(i, token.ok_or_else(|| not_finite(model))?);
            }
        }
    }
    Ok(())
}
