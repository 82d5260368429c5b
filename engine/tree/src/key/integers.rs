//! Random integers and permutations.

use burn::tensor::{Int, Tensor};
use grove_backend::{
    Backend, ops,
    random::{self, Distribution},
};

use super::Key;

impl Key {
    /// Returns `n` uniform integers in `low..high`; see [`Key::randint`].
    pub fn randint_vec(self, n: usize, low: i32, high: i32) -> Vec<i32> {
        random::integers(self.host_words(), n, low, high)
    }

    /// Samples uniform integers in `low..high` (`jax.random.randint`).
    ///
    /// As in JAX, the bounds are not checked: every sample is `low` if `high <= low`.
    ///
    /// # Shapes
    /// - output: `shape`
    pub fn randint<B: Backend, const D: usize>(
        self,
        shape: [usize; D],
        low: i32,
        high: i32,
        device: &B::Device,
    ) -> Tensor<B, D, Int> {
        ops::random_integers(self.words, Distribution::Integers { low, high }, shape, device)
    }

    /// Returns the integers below `n` in random order (`jax.random.permutation`).
    ///
    /// Sorts by random bits, in enough rounds to make the effect of equal bits negligible: one round up to 1625
    /// elements, two rounds up to 2.6 million.
    ///
    /// # Panics
    /// If `n` exceeds 2^32.
    pub fn permutation(self, n: usize) -> Vec<usize> {
        assert!(n as u64 <= 1 << 32, "permutation of {n} numbers: at most 2^32 can be permuted");
        let mut key = self;
        let mut order: Vec<usize> = (0..n).collect();
        for _ in 0..sorting_rounds(n) {
            let (next, sorting) = key.split();
            key = next;
            // Random bits in the upper half, position in the lower half: sorting compares bits first, and positions if
            // the bits are equal.
            let mut keyed: Vec<u64> =
                (0_u64..).zip(sorting.bits(n)).map(|(position, bits)| (u64::from(bits) << 32) | position).collect();
            keyed.sort_unstable();
            order = keyed.into_iter().map(|keyed| order[keyed as u32 as usize]).collect();
        }
        order
    }
}

/// Returns JAX's number of sorting rounds, after which all elements probably have distinct sequences of bits.
fn sorting_rounds(n: usize) -> usize {
    (3.0 * (n.max(1) as f64).ln() / f64::from(u32::MAX).ln()).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds() {
        let key = Key::new(5);
        assert_eq!(key.randint_vec(3, 4, 4), [4; 3]);
        assert_eq!(key.randint_vec(3, 4, -4), [4; 3]);
        assert!(key.randint_vec(0, 0, 9).is_empty());
        let dice = key.randint_vec(600, 1, 7);
        assert_eq!((dice.iter().min(), dice.iter().max()), (Some(&1), Some(&6)));
        let all = key.randint_vec(100, i32::MIN, i32::MAX);
        assert!(all.iter().any(|&x| x < 0) && all.iter().any(|&x| x > 0));
    }

    #[test]
    fn permutations_hold_every_number_once() {
        for n in [0, 1, 2, 1625, 1626, 5000] {
            let mut order = Key::new(1).permutation(n);
            order.sort_unstable();
            assert!(order.into_iter().eq(0..n));
        }
    }

    #[test]
    fn rounds() {
        assert_eq!([0, 1, 2, 1625, 1626].map(sorting_rounds), [0, 0, 1, 1, 2]);
    }
}
