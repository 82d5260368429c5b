//! Random keys: every random number comes from an explicit [`Key`].
//!
//! A key is an immutable value: using it twice gives the same numbers twice. A function that needs randomness therefore
//! takes a key, and its caller [splits](Key::split) its own key:
//!
//! ```
//! use grove_tree::Key;
//!
//! let (init, data) = Key::new(42).split();
//! let weights = init.normal_vec(6);
//! assert_eq!(weights, init.normal_vec(6));
//! assert_ne!(weights, data.normal_vec(6));
//! ```
//!
//! The numbers equal those of `jax.random` bit for bit (jax 0.10 on a CPU, with the default, partitionable threefry
//! implementation). Samples are computed on the host, in f32 or i32, and then converted to the dtype of a backend, so a
//! key gives the same numbers on every backend. Only random bits ([`Key::random_bits`] and dropout masks) are drawn on
//! the device, with the same result. Each sample depends on the key and on its row-major index, not on the shape: the
//! first six of thirty samples equal a sample of six.
//!
//! Each distribution has two functions: `*_vec` returns samples on the host, and the function without the suffix
//! returns a tensor.
//!
//! In a [traced] function, a key that is an argument has no values. Only the functions without the suffix can sample
//! from it; the compiled program samples from the key that it is called with.
//!
//! A captured key is a constant, as in JAX: in the body of a traced loop it gives the same numbers in every step. For
//! different numbers in every step, make the key an input of the loop: put it into the carry, scan over [`Keys`], or
//! [fold in](Key::fold_in_tensor) the step counter.

mod data;
mod gumbel;
mod integers;
mod keys;
mod normal;
mod rand_impl;
pub mod traced;
mod uniform;

pub use keys::Keys;
pub use rand_impl::KeyRng;

use grove_backend::threefry::{self, threefry2x32};

/// A random key: two 32-bit words that determine a stream of random numbers.
///
/// Keys are `Copy` and immutable; see the [module](self) for their use. Reference: Salmon et al., "Parallel random
/// numbers: as easy as 1, 2, 3" (2011), for Threefry-2x32-20, and `jax.random` for everything built on it.
///
/// ```
/// use grove_tree::Key;
/// let key = Key::new(0);
/// assert_eq!(key.normal_vec(2), key.normal_vec(2));
/// let (first, second) = key.split();
/// assert_ne!(first.normal_vec(2), second.normal_vec(2));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Key {
    words: [u32; 2],
}

impl Key {
    /// Creates the key of `jax.random.key(seed)`.
    ///
    /// As in JAX with 64-bit types disabled (the default), only the low 32 bits of the seed are used: seeds that are
    /// equal modulo 2^32 give the same key. A negative seed in JAX is `seed as u64` here. [`Key::from_words`] creates a
    /// key from all 64 bits.
    pub const fn new(seed: u64) -> Self {
        Self::from_words([0, seed as u32])
    }

    /// Creates a key from its two words (`jax.random.wrap_key_data`), the high word first.
    pub const fn from_words(words: [u32; 2]) -> Self {
        Self { words }
    }

    /// Returns the two words of this key (`jax.random.key_data`), the high word first. In a trace, the words of an
    /// argument are a placeholder's: do not compute with them.
    pub const fn words(self) -> [u32; 2] {
        self.words
    }

    /// Splits the key into two new keys (`jax.random.split(key)`), independent of each other and of this one.
    ///
    /// After splitting a key, use only the new keys: samples of the old key come from the same cipher blocks as the new
    /// keys.
    pub fn split(self) -> (Self, Self) {
        (self.child(0), self.child(1))
    }

    /// Splits the key into `n` new keys (`jax.random.split(key, n)`), independent of each other and of this one.
    ///
    /// Key `i` does not depend on `n`.
    pub fn split_n(self, n: usize) -> Vec<Self> {
        (0..n as u64).map(|i| self.child(i)).collect()
    }

    /// Derives a new key from this one and an integer (`jax.random.fold_in`), such as the index of a step, an epoch
    /// or a worker.
    ///
    /// `fold_in(i)` equals key `i` of [`Key::split_n`], as in JAX, so use only one of the two on a key.
    pub fn fold_in(self, data: u32) -> Self {
        self.child(u64::from(data))
    }

    /// Derives a new key from this one and a name: `fold_in` with the 32-bit FNV-1a hash of the name. Keys of different
    /// names are independent.
    ///
    /// ```
    /// # use grove_tree::Key;
    /// let key = Key::new(0);
    /// assert_eq!(key.named("attn"), key.named("attn"));
    /// assert_ne!(key.named("attn"), key.named("mlp"));
    /// ```
    pub fn named(self, name: &str) -> Self {
        let hash = name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        self.fold_in(hash)
    }

    // In JAX's partitionable mode `split` and `fold_in` are the same function of a 64-bit counter.
    fn child(self, index: u64) -> Self {
        let key = Self::from_words(threefry2x32(self.words, threefry::counter(index)));
        traced::note(key, self, index);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_keeps_its_low_32_bits() {
        assert_eq!(Key::new(1 << 32), Key::new(0));
        assert_eq!(Key::new(-1_i64 as u64).words(), [0, u32::MAX]);
    }

    #[test]
    fn split_agrees_with_split_n_and_fold_in() {
        let key = Key::new(7);
        let keys = key.split_n(3);
        assert_eq!(key.split(), (keys[0], keys[1]));
        assert_eq!(key.fold_in(2), keys[2]);
        assert!(key.split_n(0).is_empty());
    }
}
