//! Arrays of keys.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{AnyTensor, Backend, ops};

use super::Key;
use crate::{Array, Tree};

/// An array of random keys, as returned by `jax.random.split(key, n)`.
///
/// A `scan` over the array and a function mapped by `vmap` receive one [`Key`] at a time. If each step of a `scan`
/// returns a key, the stacked result is a `Keys`.
///
/// ```
/// use grove_tree::{Key, Keys};
/// # type B = burn_flex::Flex;
/// let keys = Keys::<B>::split(Key::new(3), 4, &Default::default());
/// assert_eq!((keys.len(), keys.get(2)), (4, Key::new(3).split_n(4)[2]));
/// ```
#[derive(Tree, Clone, Debug)]
pub struct Keys<B: Backend> {
    data: Array<B, 2, Int>,
}

impl<B: Backend> Keys<B> {
    /// Splits a key into `n` new keys in one operation (`jax.random.split(key, n)`). The keys equal [`Key::split_n`].
    pub fn split(key: Key, n: usize, device: &B::Device) -> Self {
        if B::has_values(device) && !key.is_traced() {
            return Self::new(&key.split_n(n), device);
        }
        Self::from_data(ops::random_fold_in(key.data::<B>(device), Tensor::arange(0..n as i64, device)))
    }

    /// Creates an array from a slice of keys.
    pub fn new(keys: &[Key], device: &B::Device) -> Self {
        if keys.iter().any(|key| key.is_traced()) {
            let rows = keys.iter().map(|key| key.data::<B>(device)).collect::<Vec<_>>();
            return Self::from_data(Tensor::stack(rows, 0));
        }
        let words: Vec<u32> = keys.iter().flat_map(|key| key.words()).collect();
        let words = B::int_from_data(TensorData::new(words, [keys.len(), 2]), device);
        Self::from_data(Tensor::from_primitive(words))
    }

    /// Creates keys from an array with the two words of a key in each row.
    ///
    /// # Shapes
    /// - data: `[n, 2]`, u32
    ///
    /// # Panics
    /// If the rows do not have two elements.
    #[track_caller]
    pub fn from_data(data: Tensor<B, 2, Int>) -> Self {
        let [_, words] = data.dims();
        assert!(words == 2, "a random key has two words, not {words}");
        Self { data: Array::new(data) }
    }

    /// Returns the words, `[n, 2]`, u32.
    pub fn data(&self) -> Tensor<B, 2, Int> {
        self.data.val()
    }

    /// Returns the array of words as a leaf.
    pub fn into_array(self) -> Array<B, 2, Int> {
        self.data
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.data.shape()[0]
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the key at an index.
    ///
    /// # Panics
    /// If the index is out of range.
    #[track_caller]
    pub fn get(&self, index: usize) -> Key {
        let words: AnyTensor<B> = self.data().into();
        Key::from_data::<B>(match words.row(index) {
            AnyTensor::Int(words) => Tensor::from_primitive(words),
            _ => unreachable!("a row of integers has integers"),
        })
    }

    /// Returns all keys. In a skeleton, whose array has no values, each key is the [stand-in](Key::stand_in).
    pub fn to_vec(&self) -> Vec<Key> {
        let Some(data) = self.data.get() else { return vec![Key::stand_in(); self.len()] };
        if !B::has_values(&data.device()) {
            return (0..self.len()).map(|i| self.get(i)).collect();
        }
        let words: Vec<u32> = data.to_data().iter::<u32>().collect();
        words.chunks_exact(2).map(|words| Key::from_words([words[0], words[1]])).collect()
    }
}
