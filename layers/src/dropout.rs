use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::{Key, Tree};

/// Dropout layer, like `equinox.nn.Dropout`: sets elements to 0 with probability `p` in training; see [`dropout`].
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::Dropout;
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// let (dropout, x) = (Dropout::new(0.5), Tensor::<B, 1>::ones([1000], &Default::default()));
/// assert_eq!(dropout.forward(x.clone(), None).to_data(), x.to_data()); // inference
/// assert_eq!(dropout.forward(x, Some(Key::new(0))).max().into_scalar(), 2.0); // training
/// ```
#[derive(Tree, Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability that an element is set to 0.
    pub p: f64,
}

impl Dropout {
    /// Creates a layer that drops elements with probability `p`.
    pub fn new(p: f64) -> Self {
        Self { p }
    }

    /// Applies dropout if a `key` is given. Any shape.
    #[track_caller]
    pub fn forward<B: Backend, const D: usize>(self, x: Tensor<B, D>, key: Option<Key>) -> Tensor<B, D> {
        dropout(x, self.p, key)
    }

    /// Returns the rate with a key, for [`attend`](crate::attend); `None` without a key.
    pub fn with_key(self, key: Option<Key>) -> Option<(f64, Key)> {
        key.map(|key| (self.p, key))
    }
}

/// Derives the key of part number `part` of a model, such as a layer; `None` (inference) stays `None`. Different parts
/// have independent keys.
pub fn part_key(key: Option<Key>, part: usize) -> Option<Key> {
    key.map(|key| key.fold_in(part as u32))
}

/// Derives the key of a named part of a model; `None` (inference) stays `None`. Different parts have independent keys.
///
/// ```
/// use grove_layers::named_key;
/// use grove_tree::Key;
/// assert_eq!(named_key(Some(Key::new(0)), "attention"), Some(Key::new(0).named("attention")));
/// assert_eq!(named_key(None, "attention"), None);
/// ```
pub fn named_key(key: Option<Key>, part: &str) -> Option<Key> {
    key.map(|key| key.named(part))
}

/// Sets elements to 0 with probability `rate` and divides the others by `1 - rate`, so that the expectation is unchanged
/// (Srivastava et al., 2014). Returns the input without a key, or with rate 0. Any shape.
///
/// The kept elements are those of `key.bernoulli(shape, 1 - rate)`. No mask is stored for the backward pass, which
/// generates it again.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_layers::dropout;
/// use grove_tree::Key;
/// # type B = burn_flex::Flex;
/// let x = Tensor::<B, 1>::ones([1000], &Default::default());
/// assert_eq!(dropout(x.clone(), 0.5, None).to_data(), x.to_data()); // inference
/// let dropped = dropout(x, 0.5, Some(Key::new(0))); // training
/// assert_eq!(dropped.max().into_scalar(), 2.0);
/// ```
#[track_caller]
pub fn dropout<B: Backend, const D: usize>(x: Tensor<B, D>, rate: f64, key: Option<Key>) -> Tensor<B, D> {
    match key.and_then(|key| grove_backend::Dropout::new(key.words(), rate)) {
        Some(dropout) => grove_backend::dropout(x, dropout),
        None => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    #[test]
    fn keeps_the_mean_and_follows_the_key() {
        let ones = || Tensor::<Flex, 2>::ones([200, 50], &Default::default());
        let dropped = dropout(ones(), 0.25, Some(Key::new(1)));
        let values: Vec<f32> = dropped.to_data().to_vec().unwrap();
        let zeros = values.iter().filter(|&&x| x == 0.0).count();
        assert!((2300..2700).contains(&zeros), "{zeros} of 10000 dropped");
        assert!(values.iter().all(|&x| x == 0.0 || x == 1.0 / 0.75));
        assert_eq!(dropped.to_data(), dropout(ones(), 0.25, Some(Key::new(1))).to_data());
        assert_ne!(dropped.to_data(), dropout(ones(), 0.25, Some(Key::new(2))).to_data());
        assert_eq!(dropout(ones(), 0.25, None).to_data(), ones().to_data());
    }

    #[test]
    fn mask_matches_the_samples_of_the_key() {
        let x = Tensor::<Flex, 2>::from_data([[1.0, -2.0, 3.0], [-4.0, 5.0, 6.0]], &Default::default());
        for (rate, seed) in [(0.5, 3), (0.1, 4), (0.9, 5), (1.0, 6)] {
            let key = Key::new(seed);
            let values: Vec<f32> = x.to_data().to_vec().unwrap();
            let tosses = key.bernoulli_vec(6, (1.0 - rate) as f32);
            let scale = (1.0 / (1.0 - rate)) as f32;
            let kept = |(x, kept): (&f32, bool)| if kept { x * scale } else { x * 0.0 };
            let expected: Vec<f32> = values.iter().zip(tosses).map(kept).collect();
            let found: Vec<f32> = dropout(x.clone(), rate, Some(key)).to_data().to_vec().unwrap();
            assert_eq!(found, expected, "rate {rate}");
        }
    }
}
