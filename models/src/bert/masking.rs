use grove_tree::Key;

/// Corruption of sequences for masked language modelling (Devlin et al., 2019, section 3.1).
#[derive(Clone, Debug, PartialEq)]
pub struct Masking {
    /// Mask token.
    pub mask: u32,
    /// Tokens that are never selected, such as special tokens.
    pub special: Vec<u32>,
    /// Vocabulary size.
    pub vocab_size: usize,
    /// Fraction of the other tokens that are selected.
    pub rate: f32,
    /// Fraction of the selected tokens that are replaced by the mask token.
    pub masked: f32,
    /// Fraction of the selected tokens that are replaced by a random token. The remaining ones are unchanged.
    pub random: f32,
}

impl Masking {
    /// Creates a masking with the published rates: 15 % of the tokens are selected, of which 80 % are masked and 10 %
    /// become random.
    pub fn new(mask: u32, special: Vec<u32>, vocab_size: usize) -> Self {
        Self { mask, special, vocab_size, rate: 0.15, masked: 0.8, random: 0.1 }
    }

    /// Returns the corrupted tokens and the labels: the original token if it was selected, else -100. Selects at least
    /// one token if there is one that is not special.
    pub fn apply(&self, ids: &[u32], key: Key) -> (Vec<u32>, Vec<i64>) {
        let (mut corrupted, mut labels) = (ids.to_vec(), vec![-100; ids.len()]);
        let open: Vec<usize> = (0..ids.len()).filter(|&i| !self.special.contains(&ids[i])).collect();
        if open.is_empty() {
            return (corrupted, labels);
        }
        let [choice, fate, token, one] = [0, 1, 2, 3].map(|part| key.fold_in(part));
        let mut chosen = choice.bernoulli_vec(open.len(), self.rate);
        if !chosen.contains(&true) {
            chosen[one.permutation(open.len())[0]] = true;
        }
        let fates = fate.uniform_vec(open.len(), 0.0, 1.0);
        let tokens = token.randint_vec(open.len(), 0, self.vocab_size.try_into().unwrap_or(i32::MAX));
        for (n, &i) in open.iter().enumerate().filter(|&(n, _)| chosen[n]) {
            labels[i] = i64::from(ids[i]);
            if fates[n] < self.masked {
                corrupted[i] = self.mask;
            } else if fates[n] < self.masked + self.random {
                corrupted[i] = tokens[n] as u32;
            }
        }
        (corrupted, labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_are_chosen_as_published() {
        let masking = Masking::new(3, vec![0, 1, 2], 1000);
        let ids: Vec<u32> = (0..20_000).map(|i| if i % 20 == 0 { i % 3 } else { 4 + i % 996 }).collect();
        let (corrupted, labels) = masking.apply(&ids, Key::new(0));
        let chosen: Vec<usize> = (0..ids.len()).filter(|&i| labels[i] != -100).collect();
        let part =
            |test: &dyn Fn(usize) -> bool| chosen.iter().filter(|&&i| test(i)).count() as f64 / chosen.len() as f64;
        assert!((chosen.len() as f64 / 19_000.0 - 0.15).abs() < 0.01);
        assert!((part(&|i| corrupted[i] == 3) - 0.8).abs() < 0.02);
        assert!((part(&|i| corrupted[i] == ids[i]) - 0.1).abs() < 0.02);
        for i in 0..ids.len() {
            assert!(labels[i] == i64::from(ids[i]) || (labels[i] == -100 && corrupted[i] == ids[i]));
            assert!(labels[i] == -100 || ids[i] > 2);
        }
        assert_eq!(masking.apply(&ids, Key::new(0)), (corrupted, labels));
        assert_eq!(masking.apply(&[0, 9, 2], Key::new(5)).1, [-100, 9, -100]);
        assert_eq!(masking.apply(&[0, 2], Key::new(5)), (vec![0, 2], vec![-100, -100]));
    }
}
