//! A batch that rows enter and leave at any step.

use burn::tensor::{Int, Tensor};
use grove_backend::{Backend, PendingTokens};
use grove_layers::CacheRows;
use grove_models::{CausalLm, DecodeCache, Result, not_finite};
use std::collections::VecDeque;

use super::{
    GenerateOptions,
    decoder::{Decoder, decode_prompts},
    device_sampler::DeviceSampler,
    rows::{Rows, float_vec, int_tensor},
    run::draw,
};

/// Number of steps that are queued on a device before the first of them is read. Steps after the end of a row are wasted.
const IN_FLIGHT: usize = 3;

/// Maximum number of positions for which joined caches have memory in advance. They are joined again soon.
const ROOM_AFTER_JOIN: usize = 64;

/// Rows that are continued together. All end at the last position of the cache; the shorter ones begin with padding.
pub(super) struct Batch<'a, B: Backend, M: CausalLm<B>> {
    decoder: &'a dyn Decoder<B, M>,
    options: &'a GenerateOptions,
    /// Indices of the rows.
    rows: Vec<usize>,
    /// Number of padding positions at the beginning of each row.
    padding: Vec<usize>,
    cache: M::Cache,
    /// Number of positions in the cache.
    seen: usize,
    /// `None` if the host samples.
    sampler: Option<DeviceSampler<'a, B>>,
    /// Last tokens that were sampled on the device.
    drawn: Option<Tensor<B, 1, Int>>,
    /// Sampled tokens that are being copied to the host, the oldest first.
    pending: VecDeque<PendingTokens>,
    /// Maximum number of steps in flight.
    ahead: usize,
}

impl<'a, B: Backend, M: CausalLm<B>> Batch<'a, B, M> {
    /// Processes the tokens of rows, and samples the next token of each.
    pub fn read(
        decoder: &'a dyn Decoder<B, M>,
        options: &'a GenerateOptions,
        rows: Vec<usize>,
        all: &mut Rows<'_>,
    ) -> Result<Self> {
        let texts: Vec<&[u32]> = rows.iter().map(|&i| all.rows[i].ids.as_slice()).collect();
        let longest = texts.iter().map(|text| text.len()).max().unwrap_or(0);
        let padding: Vec<usize> = texts.iter().map(|text| longest - text.len()).collect();
        let padded = |(text, &pad): (&&[u32], &usize)| [&vec![0; pad], *text].concat();
        let input: Vec<Vec<u32>> = texts.iter().zip(&padding).map(padded).collect();
        let steps = all.left(&rows);
        let cache = decoder.new_cache(longest, steps).with_dtype(options.cache_dtype);
        let (logits, cache) = decode_prompts(decoder, &input, &padding, cache, steps);
        Self::new((decoder, options), rows, padding, (cache, longest), all).sample(logits, all)
    }

    /// Continues the first row, whose tokens are in a cache and have these logits. The cache never has more tokens than the
    /// row.
    pub fn resume(
        decoder: &'a dyn Decoder<B, M>,
        options: &'a GenerateOptions,
        cache: M::Cache,
        logits: Tensor<B, 2>,
        all: &mut Rows<'_>,
    ) -> Result<Self> {
        let seen = all.rows[0].ids.len();
        let batch = Self::new((decoder, options), vec![0], vec![0], (cache, seen), all);
        Self { ahead: 1, ..batch }.sample(logits, all)
    }

    fn new(
        (decoder, options): (&'a dyn Decoder<B, M>, &'a GenerateOptions),
        rows: Vec<usize>,
        padding: Vec<usize>,
        (cache, seen): (M::Cache, usize),
        all: &Rows<'_>,
    ) -> Self {
        let model = decoder.model();
        let sampler = DeviceSampler::new(&rows, all, model.vocab_size(), options, &model.device());
        let ahead = if sampler.is_some() { IN_FLIGHT } else { 1 };
        let pending = VecDeque::with_capacity(ahead);
        Self { decoder, options, rows, padding, cache, seen, sampler, drawn: None, pending, ahead }
    }

    /// Joins batches, without the rows that have ended. `None` if all have.
    pub fn join(mut batches: Vec<Self>, all: &mut Rows<'_>) -> Result<Option<Self>> {
        let has_ended = |batch: &Self| batch.rows.len() > batch.open(all);
        if batches.len() == 1 && !has_ended(&batches[0]) {
            return Ok(batches.pop());
        }
        let (mut parts, mut rows, mut lengths) = (vec![], vec![], vec![]);
        let Some(&Self { decoder, options, .. }) = batches.first() else { return Ok(None) };
        for mut batch in batches {
            while !batch.pending.is_empty() {
                batch = batch.receive(all)?;
            }
            let open: Vec<usize> = (0..batch.rows.len()).filter(|&slot| !all.ended(batch.rows[slot])).collect();
            rows.extend(open.iter().map(|&slot| batch.rows[slot]));
            lengths.extend(open.iter().map(|&slot| batch.seen - batch.padding[slot]));
            if !open.is_empty() {
                parts.push(CacheRows { cache: batch.cache, len: batch.seen, rows: open });
            }
        }
        let Some(&seen) = lengths.iter().max() else { return Ok(None) };
        let cache = M::Cache::join(parts, seen, seen + all.left(&rows).min(ROOM_AFTER_JOIN));
        let cache = cache.unwrap_or_else(|| unreachable!("the caller joins only caches that support it"));
        let padding = lengths.into_iter().map(|length| seen - length).collect();
        Ok(Some(Self::new((decoder, options), rows, padding, (cache, seen), all)))
    }

    /// Returns the cache, and its number of positions.
    pub fn into_cache(self) -> (M::Cache, usize) {
        (self.cache, self.seen)
    }

    /// Returns the number of rows, including those that have ended.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns the number of rows that have not ended.
    pub fn open(&self, all: &Rows<'_>) -> usize {
        self.rows.iter().filter(|&&row| !all.ended(row)).count()
    }

    /// Continues each row by one token.
    pub fn step(mut self, all: &mut Rows<'_>) -> Result<Self> {
        for _ in self.pending.len()..self.ahead.min(all.left(&self.rows)) {
            self = self.decode(all)?;
        }
        self.receive(all)
    }

    /// Processes the last token of each row, and samples the next one. Rows that have ended repeat their last token; its
    /// results are ignored.
    fn decode(mut self, all: &mut Rows<'_>) -> Result<Self> {
        let Self { decoder, seen, .. } = self;
        if let Some(limit) = decoder.model().position_limit() {
            // Such a row has ended. It begins anew, so that no position is beyond the limit.
            self.padding.iter_mut().filter(|pad| seen - **pad >= limit).for_each(|pad| *pad = seen);
        }
        let ids = match self.drawn.take() {
            Some(tokens) => tokens.unsqueeze_dim(1),
            None => {
                let last = |&row: &usize| all.rows[row].ids.last().copied().into_iter().collect();
                int_tensor(&self.rows.iter().map(last).collect::<Vec<_>>(), &decoder.model().device())
            }
        };
        let (logits, cache) = decoder.decode(ids, &self.padding, self.cache, seen);
        Self { cache, seen: seen + 1, ..self }.sample(logits, all)
    }

    /// Samples a token of each row. Those that are sampled on the device are received later.
    fn sample(mut self, logits: Tensor<B, 2>, all: &mut Rows<'_>) -> Result<Self> {
        let Self { options, .. } = self;
        if let Some(sampler) = &mut self.sampler {
            let (tokens, pending) = sampler.draw(logits);
            self.drawn = Some(tokens);
            self.pending.push_back(pending);
            return Ok(self);
        }
        let (model, mut logits) = (self.decoder.model(), float_vec(logits));
        for (&i, logits) in self.rows.iter().zip(logits.chunks_exact_mut(model.vocab_size())) {
            if !all.ended(i) {
                let row = &all.rows[i];
                let key = options.key_of(row.step(), i);
                let token = draw(model, options, logits, (&row.ids, row.prompt), key)?;
                all.push(i, token);
            }
        }
        Ok(self)
    }

    /// Waits for the oldest tokens that were sampled on the device, if there are any.
    fn receive(mut self, all: &mut Rows<'_>) -> Result<Self> {
        let tokens = self.pending.pop_front().map_or_else(Vec::new, PendingTokens::wait);
        for (&i, token) in self.rows.iter().zip(tokens) {
            if !all.ended(i) {
                all.push(i, token.ok_or_else(|| not_finite(self.decoder.model()))?);
            }
        }
        Ok(self)
    }
}
