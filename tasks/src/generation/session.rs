use burn::tensor::{FloatDType, Tensor};
use grove_backend::Backend;
use grove_models::{CausalLm, DecodeCache, Result};

use super::{
    GenerateOptions, Generated,
    batch::Batch,
    decoder::{Again, Eager, capacity, chunks, new_cache},
    rows::{float_vec, int_tensor},
    run::rows_of,
};

/// Tokens that a model has processed, with its cache. To process further tokens, or another sequence with the same
/// prefix, costs only the new tokens.
pub struct DecodeSession<B: Backend, M: CausalLm<B>> {
    cache: M::Cache,
    cache_dtype: Option<FloatDType>,
    ids: Vec<u32>,
}

impl<B: Backend, M: CausalLm<B>> DecodeSession<B, M> {
    /// Creates an empty session. Allocates memory for `room` positions in advance (0: unknown).
    pub fn new(model: &M, room: usize) -> Self {
        Self { cache: new_cache(model, room, room), cache_dtype: None, ids: vec![] }
    }

    /// Sets the dtype of the cache of an empty session; see [`GenerateOptions::cache_dtype`].
    pub(super) fn with_cache_dtype(self, dtype: Option<FloatDType>) -> Self {
        match self.ids.is_empty() {
            true => Self { cache: self.cache.with_dtype(dtype), cache_dtype: dtype, ..self },
            false => self,
        }
    }

    /// Returns the tokens that have been processed.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Processes `ids` in place of the previous tokens. Returns the logits after each of the last `n` tokens,
    /// `[n * vocab_size]`. The common prefix is not processed again.
    ///
    /// # Panics
    /// If there are fewer than `n` tokens, or `n` is 0.
    pub(super) fn read(self, model: &M, ids: &[u32], n: usize) -> (Vec<f32>, Self) {
        let (logits, session) = self.advance(model, ids, n);
        (float_vec(logits), session)
    }

    /// Implements [`read`](Self::read), with the logits on the device, `[n, vocab_size]`.
    fn advance(self, model: &M, ids: &[u32], n: usize) -> (Tensor<B, 2>, Self) {
        assert!(n > 0 && n <= ids.len(), "logits after {n} of {} tokens", ids.len());
        let alike = self.ids.iter().zip(ids).take_while(|(a, b)| a == b).count().min(ids.len() - n);
        let cache = if alike < self.ids.len() { self.cache.truncate(alike) } else { Some(self.cache) };
        let dtype = self.cache_dtype;
        let empty = || new_cache(model, ids.len(), ids.len()).with_dtype(dtype);
        let (cache, alike) = cache.map_or_else(|| (empty(), 0), |cache| (cache, alike));
        let device = model.device();
        let mut new = &ids[alike..];
        let mut cache = cache;
        if B::LAZY {
            cache = cache.with_capacity(capacity(ids.len()));
            // The tokens before the last `n` only fill the cache, in chunks.
            let (before, last) = new.split_at(new.len() - n);
            if !before.is_empty() {
                let (with_room, parts) = chunks(model, int_tensor(&[before.to_vec()], &device), &[], cache, alike);
                cache = parts.into_iter().fold(with_room, |cache, part| model.decode_last(part, 1, cache).1);
            }
            new = last;
        }
        let (logits, cache) = model.decode_last(int_tensor(&[new.to_vec()], &device), n, cache);
        (logits.reshape([n, model.vocab_size()]), Self { cache, cache_dtype: dtype, ids: ids.to_vec() })
    }
}

/// Continues one prompt as [`generate`](super::generate) does. Tokens in the session are not processed again, so that
/// the next turn of a conversation costs only its new tokens. A session with tokens keeps the dtype of its cache.
///
/// # Errors
/// As [`generate`](super::generate).
pub fn generate_with_cache<B: Backend, M: CausalLm<B>>(
    model: &M,
    session: DecodeSession<B, M>,
    prompt: &[u32],
    options: &GenerateOptions,
    mut on_token: impl FnMut(u32) -> bool,
) -> Result<(Generated, DecodeSession<B, M>)> {
    let mut on_token = |_row, token| on_token(token);
    let mut on_end = |_row: usize, _: &Generated| ();
    let mut rows = rows_of(model, &[prompt.to_vec()], options, &mut on_token, &mut on_end)?;
    if rows.ended(0) {
        return Ok((rows.rows[0].generated(), session));
    }
    let eager = Eager(model);
    let again = Again::new(&eager);
    let session = session.with_cache_dtype(options.cache_dtype);
    let cache_dtype = session.cache_dtype;
    let mut batch = match options.reads_again(model) {
        true => Batch::read(&again, options, vec![0], &mut rows)?,
        false => {
            let (logits, session) = session.advance(model, prompt, 1);
            Batch::resume(&eager, options, session.cache, logits, &mut rows)?
        }
    };
    while !rows.ended(0) {
        batch = batch.step(&mut rows)?;
    }
    let (cache, seen) = batch.into_cache();
    let row = &rows.rows[0];
    Ok((row.generated(), DecodeSession { cache, cache_dtype, ids: row.ids[..seen].to_vec() }))
}
