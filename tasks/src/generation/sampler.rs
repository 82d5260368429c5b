use grove_backend::SampleOptions;
use grove_models::{ModelError, Result};
use grove_tree::Key;

/// Options for sampling the next token from its logits. The steps are applied in transformers' order: repetition
/// penalty, temperature, top-k, top-p, min-p.
///
/// CPU backends sample on the host, the others on the device. The same key gives the same token on both, with two
/// exceptions: two tokens that are nearly equally likely, and a token at the edge of top-p. The device sums
/// probabilities in f32 and may round a division, an exponential or a logarithm differently.
///
/// ```
/// use grove_tasks::generation::Sampling;
/// let sampling = Sampling { temperature: 0.8, top_p: Some(0.95), ..Default::default() };
/// assert!(sampling.validate().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 selects the most likely token.
    pub temperature: f32,
    /// Keeps the k most likely tokens, and those as likely as the last of them.
    pub top_k: Option<usize>,
    /// Keeps the smallest set of most likely tokens whose probabilities sum to at least this value (Holtzman et al.,
    /// 2019).
    pub top_p: Option<f32>,
    /// Keeps tokens whose probability is at least this fraction of the largest one (Nguyen et al., 2024).
    pub min_p: Option<f32>,
    /// Divides positive logits and multiplies negative logits of tokens that have occurred (Keskar et al., 2019). 1 has
    /// no effect.
    pub repetition_penalty: f32,
}

impl Default for Sampling {
    /// Plain sampling at temperature 1.
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: None, min_p: None, repetition_penalty: 1.0 }
    }
}

impl Sampling {
    /// Greedy decoding: always the most likely token.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::default() }
    }

    /// Checks that all options are in range.
    ///
    /// # Errors
    /// [`ModelError::Option`] naming the option.
    pub fn validate(&self) -> Result<()> {
        let check = |option, value: f32, fits: bool, range| match fits {
            true => Ok(()),
            false => Err(ModelError::Option { option, value: value.to_string(), range }),
        };
        let (t, penalty) = (self.temperature, self.repetition_penalty);
        check("temperature", t, t.is_finite() && t >= 0.0, "0 (greedy) or a positive number")?;
        check("repetition penalty", penalty, penalty.is_finite() && penalty > 0.0, "a positive number")?;
        if self.top_k == Some(0) {
            return Err(ModelError::Option { option: "top-k", value: "0".into(), range: "at least 1" });
        }
        if let Some(p) = self.top_p {
            check("top-p", p, p > 0.0 && p <= 1.0, "above 0 and at most 1")?;
        }
        if let Some(p) = self.min_p {
            check("min-p", p, (0.0..=1.0).contains(&p), "between 0 and 1")?;
        }
        Ok(())
    }

    /// Applies all steps to the logits. Tokens that cannot be sampled get minus infinity. `seen` are the tokens so far.
    pub fn process(&self, logits: &mut [f32], seen: &[u32]) {
        self.penalise(logits, seen);
        self.shape(logits);
    }

    /// Applies all steps except the repetition penalty.
    fn shape(&self, logits: &mut [f32]) {
        if self.temperature > 0.0 && self.temperature != 1.0 {
            logits.iter_mut().for_each(|x| *x /= self.temperature);
        }
        if let Some(k) = self.top_k.filter(|&k| k < logits.len()) {
            let mut sorted = logits.to_vec();
            let (_, kth, _) = sorted.select_nth_unstable_by(k - 1, |a, b| b.total_cmp(a));
            let kth = *kth;
            forbid(logits, |x| x < kth);
        }
        if let Some(p) = self.top_p.filter(|&p| p < 1.0) {
            keep_nucleus(logits, p);
        }
        if let Some(p) = self.min_p.filter(|&p| p > 0.0) {
            let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let least = best + p.ln();
            forbid(logits, |x| x < least);
        }
    }

    /// Samples the next token.
    pub fn draw(&self, logits: &mut [f32], seen: &[u32], key: Key) -> u32 {
        self.penalise(logits, seen);
        self.choose(logits, key)
    }

    /// Samples the next token from logits to which the repetition penalty has been applied.
    pub(super) fn choose(&self, logits: &mut [f32], key: Key) -> u32 {
        if self.temperature == 0.0 {
            return likeliest(logits) as u32;
        }
        self.shape(logits);
        key.categorical_row(logits) as u32
    }

    /// Returns the options in the format of backends that sample on the device.
    pub(super) fn on_device(&self, keys: Vec<Key>) -> SampleOptions {
        let &Self { temperature, top_k, top_p, min_p, repetition_penalty } = self;
        let keys = keys.into_iter().map(Key::words).collect();
        SampleOptions { repetition_penalty, temperature, top_k, top_p, min_p, keys }
    }

    /// Applies the repetition penalty, once per distinct token.
    pub(super) fn penalise(&self, logits: &mut [f32], seen: &[u32]) {
        if self.repetition_penalty == 1.0 {
            return;
        }
        let mut seen = seen.to_vec();
        seen.sort_unstable();
        seen.dedup();
        for token in seen {
            if let Some(x) = logits.get_mut(token as usize) {
                *x = if *x < 0.0 { *x * self.repetition_penalty } else { *x / self.repetition_penalty };
            }
        }
    }
}

/// Returns the index of the first largest logit.
fn likeliest(logits: &[f32]) -> usize {
    let best = |best: usize, i: usize| if logits[i] > logits[best] || logits[best].is_nan() { i } else { best };
    (1..logits.len()).fold(0, best)
}

fn forbid(logits: &mut [f32], condition: impl Fn(f32) -> bool) {
    logits.iter_mut().filter(|x| condition(**x)).for_each(|x| *x = f32::NEG_INFINITY);
}

/// Keeps the fewest most likely tokens whose probabilities sum to at least `p`.
fn keep_nucleus(logits: &mut [f32], p: f32) {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    // Ascending, as in transformers: of equally likely tokens, the first ones are removed first.
    order.sort_by(|&a, &b| logits[a].total_cmp(&logits[b]));
    let best = order.last().map_or(0.0, |&i| logits[i]);
    let total: f64 = logits.iter().map(|&x| f64::from(x - best).exp()).sum();
    let mut below = 0.0;
    let likeliest = order.len().saturating_sub(1);
    for &i in &order[..likeliest] {
        below += f64::from(logits[i] - best).exp() / total;
        if below > 1.0 - f64::from(p) {
            break;
        }
        logits[i] = f32::NEG_INFINITY;
    }
}
