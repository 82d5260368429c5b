//! Sampling on the device of the logits.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{Backend, PendingTokens, sample};

use super::{GenerateOptions, rows::Rows};

/// Samples tokens on the device, and records there the tokens that have occurred.
pub(super) struct DeviceSampler<'a, B: Backend> {
    options: &'a GenerateOptions,
    occurred: Option<Tensor<B, 2, Int>>,
    /// Index of each row, which determines its random numbers, and the number of tokens sampled for it.
    rows: Vec<(usize, usize)>,
}

impl<'a, B: Backend> DeviceSampler<'a, B> {
    /// Creates a sampler for rows. Returns `None` if the host samples: on backends that sample on the host, with token
    /// rules, and for temperatures so low that the scaled logits may overflow.
    pub fn new(
        rows: &[usize],
        all: &Rows<'_>,
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
            for (flags, &row) in flags.chunks_exact_mut(vocab_size).zip(rows) {
                all.rows[row].ids.iter().for_each(|&token| flags[token as usize] = 1);
            }
            Tensor::from_data(TensorData::new(flags, [rows.len(), vocab_size]), device)
        });
        Some(Self { options, occurred, rows: rows.iter().map(|&row| (row, all.rows[row].step())).collect() })
    }

    /// Samples the next token of each row, `[rows]`. The tokens are on the device, and their copy to the host has
    /// begun.
    pub fn draw(&mut self, logits: Tensor<B, 2>) -> (Tensor<B, 1, Int>, PendingTokens) {
        let keys = self.rows.iter().map(|&(row, step)| self.options.key_of(step, row)).collect();
        self.rows.iter_mut().for_each(|(_, step)| *step += 1);
        let options = self.options.sampling.on_device(keys);
        let sampled = sample(logits, self.occurred.take(), options).expect("a backend that draws tokens");
        self.occurred = sampled.occurred;
        (sampled.tokens, sampled.pending)
    }
}
