//! Implementations of the `rand` crate's traits.

use std::convert::Infallible;

use grove_backend::threefry::{bits, counter, threefry2x32};
use rand::rand_core::{SeedableRng, TryRng};

use super::Key;

/// A random number generator for code that uses [`rand`]'s traits: a [`Key`] and a counter.
///
/// A key is immutable; a generator advances with every number. Create a generator for one call of such code and drop it
/// afterwards:
///
/// ```
/// use grove_tree::Key;
/// use rand::seq::SliceRandom;
///
/// let mut deck: Vec<u32> = (0..52).collect();
/// deck.shuffle(&mut Key::new(42).rng());
/// ```
///
/// Every number takes one block of the cipher. 32-bit words equal [`Key::bits`]; 64-bit words equal
/// `jax.random.bits(key, dtype="uint64")`. Not for cryptography.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRng {
    key: Key,
    index: u64,
}

impl Key {
    /// Returns a random number generator of this key that implements [`rand::Rng`].
    pub fn rng(self) -> KeyRng {
        KeyRng { key: Self::from_words(self.host_words()), index: 0 }
    }
}

impl KeyRng {
    fn next_counter(&mut self) -> [u32; 2] {
        let index = self.index;
        self.index = index.wrapping_add(1);
        counter(index)
    }
}

impl TryRng for KeyRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let counter = self.next_counter();
        Ok(bits(self.key.words, counter))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let counter = self.next_counter();
        let [high, low] = threefry2x32(self.key.words, counter);
        Ok((u64::from(high) << 32) | u64::from(low))
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        for chunk in bytes.chunks_mut(8) {
            let word = self.try_next_u64()?.to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
        Ok(())
    }
}

impl SeedableRng for KeyRng {
    /// The words of a key, the high word first, each in little-endian order.
    type Seed = [u8; 8];

    fn from_seed([a, b, c, d, e, f, g, h]: [u8; 8]) -> Self {
        let words = [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes);
        Key::from_words(words).rng()
    }

    /// Uses all 64 bits. Below 2^32 the generator equals `Key::new(seed).rng()`.
    fn seed_from_u64(seed: u64) -> Self {
        Key::from_words(counter(seed)).rng()
    }
}

#[cfg(test)]
mod tests {
    use rand::{Rng, RngExt};

    use super::*;

    #[test]
    fn words_match_the_key() {
        let key = Key::new(9);
        let mut rng = key.rng();
        let words: Vec<u32> = (0..5).map(|_| rng.next_u32()).collect();
        assert_eq!(words, key.bits(5));
    }

    #[test]
    fn bytes_match_words() {
        let mut bytes = [0; 11];
        Key::new(9).rng().fill_bytes(&mut bytes);
        let mut rng = Key::new(9).rng();
        let words = [rng.next_u64(), rng.next_u64()].map(u64::to_le_bytes);
        assert_eq!(bytes, words.concat()[..11]);
    }

    #[test]
    fn seeds() {
        assert_eq!(KeyRng::seed_from_u64(7), Key::new(7).rng());
        assert_eq!(KeyRng::seed_from_u64(3 << 32), Key::from_words([3, 0]).rng());
        assert_eq!(KeyRng::from_seed([1, 0, 0, 0, 2, 1, 0, 0]), Key::from_words([1, 258]).rng());
    }

    #[test]
    fn rand_distributions_work() {
        let mut rng = Key::new(0).rng();
        let mean = (0..1000).map(|_| rng.random::<f64>()).sum::<f64>() / 1000.0;
        assert!((mean - 0.5).abs() < 0.05);
        assert!((10..20).contains(&rng.random_range(10..20)));
    }
}
