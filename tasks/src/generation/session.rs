use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_models::{CausalLm, DecodeCache, Result, not_finite};

use super::{
    Finish, GenerateOptions, Generated,
    decoder::{capacity, chunks, new_cache},
    device_sampler::{DeviceSampler, SampledRow},
    rows::{float_vec, int_tensor},
    run::{check_prompt, draw, ends_of, limit_of, steps_of},
};

/// Tokens that a model has processed, with its cache. To process further tokens, or another sequence with the same
/// prefix, costs only the new tokens.
pub struct DecodeSession<B: Backend, M: CausalLm<B>> {
    cache: M::Cache,
    ids: Vec<u32>,
}

impl<B: Backend, M: CausalLm<B>> DecodeSession<B, M> {
    /// Creates an empty session. Allocates memory for `room` positions in advance (0: unknown).
    pub fn new(model: &M, room: usize) -> Self {
        Self { cache: new_cache(model, room, room), ids: vec![] }
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
        let (cache, alike) = cache.map_or_else(|| (new_cache(model, ids.len(), ids.len()), 0), |cache| (cache, alike));
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
        (logits.reshape([n, model.vocab_size()]), Self { cache, ids: ids.to_vec() })
    }
}

/// Continues one prompt as [`generate`](super::generate) does. Tokens in the session are not processed again, so that
/// the next turn of a conversation costs only its new tokens.
///
/// # Errors
/// As [`generate`](super::generate).
pub fn generate_with_cache<B: Backend, M: CausalLm<B>>(
    model: &M,
    mut session: DecodeSession<B, M>,
    prompt: &[u32],
    options: &GenerateOptions,
    mut on_token: impl FnMut(u32) -> bool,
) -> Result<(Generated, DecodeSession<B, M>)> {
    options.sampling.validate()?;
    check_prompt(model, prompt)?;
    let ends = ends_of(model, options);
    let mut ids = prompt.to_vec();
    let steps = steps_of(model, prompt.len(), options);
    let mut finish = limit_of(steps, prompt.len(), options);
    let row = SampledRow { row: 0, step: 0, ids: prompt };
    let mut sampler = DeviceSampler::new(&[row], model.vocab_size(), options, &model.device());
    for step in 0..steps {
        if options.reads_again(model) {
            session = DecodeSession::new(model, 0);
        }
        let (logits, next) = session.advance(model, &ids, 1);
        session = next;
        let token = match &mut sampler {
            Some(sampler) => sampler.draw(logits).1.wait()[0].ok_or_else(|| not_finite(model))?,
            None => draw(model, options, &mut float_vec(logits), (&ids, prompt.len()), options.key_of(step, 0))?,
        };
        if ends.contains(&token) {
            finish = Finish::Stop;
            break;
        }
        ids.push(token);
        if !on_token(token) {
            finish = Finish::Callback;
            break;
        }
    }
    Ok((Generated { ids: ids.split_off(prompt.len()), finish }, session))
}
