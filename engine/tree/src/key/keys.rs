//! Several keys in one array.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::{AnyTensor, Backend, ops};

use super::Key;
use crate::{Array, Tree};

/// Several random keys in one array: what `jax.random.split(key, n)` gives.
///
/// A `scan` over them, and a function that `vmap` maps, get one [`Key`] at a time. Results of each step that are keys come as
/// these.
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
    /// Splits a key into `n` new keys, those of [`Key::split_n`], in one operation: `jax.random.split(key, n)`.
    pub fn split(key: Key, n: usize, device: &B::Device) -> Self {
        if B::has_values(device) && !key.is_traced() {
            return Self::new(&key.split_n(n), device);
        }
        Self::from_data(ops::random_fold_in(key.data::<B>(device), Tensor::arange(0..n as i64, device)))
    }

    /// Puts keys into an array.
    pub fn new(keys: &[Key], device: &B::Device) -> Self {
        if keys.iter().any(|key| key.is_traced()) {
            let rows = keys.iter().map(|key| key.data::<B>(device)).collect::<Vec<_>>();
            return Self::from_data(Tensor::stack(rows, 0));
        }
        let words: Vec<u32> = keys.iter().flat_map(|key| key.words()).collect();
        let words = B::int_from_data(TensorData::new(words, [keys.len(), 2]), device);
        Self::from_data(Tensor::from_primitive(words))
    }

    /// The keys whose words are the rows of an array.
    ///
    /// # Shapes
    /// - data: `[n, 2]`, u32
    ///
    /// # Panics
    /// If a row has not two words.
    #[track_caller]
    pub fn from_data(data: Tensor<B, 2, Int>) -> Self {
        let [_, words] = data.dims();
        assert!(words == 2, "a random key has two words, and {words} are given");
        Self { data: Array::new(data) }
    }

    /// The words, `[n, 2]`, u32.
    pub fn data(&self) -> Tensor<B, 2, Int> {
        self.data.val()
    }

    /// The array of the words, as a leaf.
    pub fn into_array(self) -> Array<B, 2, Int> {
        self.data
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.data.shape()[0]
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key at a position.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn get(&self, index: usize) -> Key {
        let words: AnyTensor<B> = self.data().into();
        Key::from_data::<B>(match words.row(index) {
            AnyTensor::Int(words) => Tensor::from_primitive(words),
            _ => unreachable!("a row of integers has integers"),
        })
    }

    /// All keys. Without values, as in a skeleton, each is the [stand-in](Key::stand_in).
    pub fn to_vec(&self) -> Vec<Key> {
        let Some(data) = self.data.get() else { return vec![Key::stand_in(); self.len()] };
        if !B::has_values(&data.device()) {
            return (0..self.len()).map(|i| self.get(i)).collect();
        }
        let words: Vec<u32> = data.to_data().iter::<u32>().collect();
        words.chunks_exact(2).map(|words| Key::from_words([words[0], words[1]])).collect()
    }
}
