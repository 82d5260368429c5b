//! Logits processors that a `generation_config.json` asks for.

use super::Sampling;
use grove_tree::Key;

/// Tokens that a model's authors exclude, or make more or less likely. The fields are those of transformers'
/// `GenerationConfig`, and are applied in its order: [`encoder_repetition_penalty`](Self::encoder_repetition_penalty),
/// the repetition penalty of the sampling options, the other rules, and then the other sampling steps.
///
/// With rules, tokens are sampled on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRules {
    /// Makes the prompt's tokens more likely: positive logits are multiplied by this value, negative ones divided. 1
    /// has no effect.
    pub encoder_repetition_penalty: f32,
    /// No sequence of this many tokens occurs twice, including the prompt; 0 for no limit.
    pub no_repeat_ngram_size: usize,
    /// Token sequences that must not occur. A sequence that consists of a single end token has no effect.
    pub bad_words_ids: Vec<Vec<u32>>,
    /// Minimum length of the sequence, including the prompt.
    pub min_length: usize,
    /// Minimum number of new tokens.
    pub min_new_tokens: usize,
    /// Tokens of which one is forced as the last token if
    /// [`GenerateOptions::max_new_tokens`](super::GenerateOptions::max_new_tokens) is reached; empty to force none.
    pub forced_eos_token_id: Vec<u32>,
    /// `(start, factor)`: `n` tokens after the first `start` new ones, the logits of end tokens are increased by
    /// `factor^n - 1` times their magnitude.
    pub exponential_decay_length_penalty: Option<(usize, f32)>,
    /// Tokens that must not occur.
    pub suppress_tokens: Vec<u32>,
    /// Tokens that must not be the first new token.
    pub begin_suppress_tokens: Vec<u32>,
}

impl Default for TokenRules {
    /// No rules.
    fn default() -> Self {
        Self {
            encoder_repetition_penalty: 1.0,
            no_repeat_ngram_size: 0,
            bad_words_ids: vec![],
            min_length: 0,
            min_new_tokens: 0,
            forced_eos_token_id: vec![],
            exponential_decay_length_penalty: None,
            suppress_tokens: vec![],
            begin_suppress_tokens: vec![],
        }
    }
}

/// State of a sequence when its next token is sampled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// Tokens so far, including the prompt.
    pub ids: &'a [u32],
    /// Number of the prompt's tokens.
    pub prompt: usize,
    /// Maximum number of new tokens.
    pub max_new_tokens: usize,
    /// Tokens that end the sequence.
    pub ends: &'a [u32],
}

impl TokenRules {
    /// Returns true if the rules have no effect.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Names of the rules that exclude tokens.
    pub(super) fn excluding(&self) -> Vec<&'static str> {
        let rules = [
            (self.no_repeat_ngram_size > 0, "no_repeat_ngram_size"),
            (!self.bad_words_ids.is_empty(), "bad_words_ids"),
            (self.min_length > 0, "min_length"),
            (self.min_new_tokens > 0, "min_new_tokens"),
            (!self.forced_eos_token_id.is_empty(), "forced_eos_token_id"),
            (!self.suppress_tokens.is_empty(), "suppress_tokens"),
            (!self.begin_suppress_tokens.is_empty(), "begin_suppress_tokens"),
        ];
        rules.into_iter().filter(|(is_set, _)| *is_set).map(|(_, name)| name).collect()
    }

    /// Samples the next token; returns `None` if the rules exclude all tokens.
    pub(super) fn draw(&self, sampling: &Sampling, logits: &mut [f32], place: Place<'_>, key: Key) -> Option<u32> {
        self.reward(logits, &place.ids[..place.prompt]);
        sampling.penalise(logits, place.ids);
        self.restrict(logits, place);
        let any = logits.iter().any(|&x| x > f32::NEG_INFINITY);
        any.then(|| sampling.choose(logits, key))
    }

    /// Makes the prompt's tokens more likely.
    fn reward(&self, logits: &mut [f32], prompt: &[u32]) {
        if self.encoder_repetition_penalty != 1.0 {
            let penalty = 1.0 / self.encoder_repetition_penalty;
            Sampling { repetition_penalty: penalty, ..Sampling::default() }.penalise(logits, prompt);
        }
    }

    /// Excludes tokens, and makes the end of a long sequence more likely.
    fn restrict(&self, logits: &mut [f32], place: Place<'_>) {
        let Place { ids, prompt, max_new_tokens, ends } = place;
        let new = ids.len() - prompt;
        if let Some(before) = self.no_repeat_ngram_size.checked_sub(1).filter(|&before| before <= ids.len()) {
            let last = &ids[ids.len() - before..];
            ids.windows(before + 1)
                .filter(|gram| &gram[..before] == last)
                .for_each(|gram| set(logits, gram[before], f32::NEG_INFINITY));
        }
        for word in self.bad_words_ids.iter().filter(|word| !ends.iter().any(|end| **word == [*end])) {
            if let Some((&token, before)) = word.split_last()
                && ids.ends_with(before)
                && word.len() <= ids.len()
            {
                set(logits, token, f32::NEG_INFINITY);
            }
        }
        if ids.len() < self.min_length || new < self.min_new_tokens {
            ends.iter().for_each(|&end| set(logits, end, f32::NEG_INFINITY));
        }
        if !self.forced_eos_token_id.is_empty() && new + 1 == max_new_tokens {
            logits.fill(f32::NEG_INFINITY);
            self.forced_eos_token_id.iter().for_each(|&token| set(logits, token, 0.0));
        }
        if let Some((start, factor)) = self.exponential_decay_length_penalty
            && new > start
        {
            for &end in ends {
                if let Some(x) = logits.get_mut(end as usize).filter(|x| x.is_finite()) {
                    *x += x.abs() * (factor.powi((new - start).min(i32::MAX as usize) as i32) - 1.0);
                }
            }
        }
        let first: &[u32] = if new == 0 { &self.begin_suppress_tokens } else { &[] };
        self.suppress_tokens.iter().chain(first).for_each(|&token| set(logits, token, f32::NEG_INFINITY));
    }
}

/// Sets the logit of a token, if it is in the vocabulary.
fn set(logits: &mut [f32], token: u32, logit: f32) {
    if let Some(x) = logits.get_mut(token as usize) {
        *x = logit;
    }
}
