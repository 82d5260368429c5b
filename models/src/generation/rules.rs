//! Which tokens may come next: the processors of logits that a `generation_config.json` asks for.

use super::Sampling;
use grove_tree::Key;

/// What a model's authors exclude from its text, or make more or less likely. The fields are those of transformers'
/// `GenerationConfig`, and act in its order: before the sampling, but for the repetition penalty, which comes behind
/// [`encoder_repetition_penalty`](Self::encoder_repetition_penalty).
///
/// With rules the host draws each token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRules {
    /// Makes the prompt's tokens more likely: each positive logit is multiplied by this, and each negative one divided. 1
    /// changes nothing.
    pub encoder_repetition_penalty: f32,
    /// No sequence of this many tokens occurs twice, the prompt included; 0 for no limit.
    pub no_repeat_ngram_size: usize,
    /// Sequences of tokens that do not occur. One that is a token that ends the text has no effect.
    pub bad_words_ids: Vec<Vec<u32>>,
    /// The text does not end before it has this many tokens, the prompt included.
    pub min_length: usize,
    /// The text does not end before this many new tokens.
    pub min_new_tokens: usize,
    /// Tokens of which one is the last where [`GenerateOptions::max_new_tokens`](super::GenerateOptions::max_new_tokens) is
    /// reached; empty for any.
    pub forced_eos_token_id: Vec<u32>,
    /// `(start, factor)`: `n` tokens after `start` new ones, the logits of tokens that end the text grow by `factor^n - 1` times
    /// their size.
    pub exponential_decay_length_penalty: Option<(usize, f32)>,
    /// Tokens that do not occur.
    pub suppress_tokens: Vec<u32>,
    /// Tokens that are not the first new one.
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

/// Where a text is when its next token is drawn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    /// The tokens so far, those of the prompt first.
    pub ids: &'a [u32],
    /// Number of the prompt's tokens.
    pub prompt: usize,
    /// Most new tokens.
    pub max_new_tokens: usize,
    /// Tokens that end the text.
    pub ends: &'a [u32],
}

impl TokenRules {
    /// True if the rules change nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The next token, or `None` if the rules leave none.
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

    /// Forbids tokens, and makes the end more likely in a long text.
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

/// Sets the logit of a token, if the model has it.
fn set(logits: &mut [f32], token: u32, logit: f32) {
    if let Some(x) = logits.get_mut(token as usize) {
        *x = logit;
    }
}
