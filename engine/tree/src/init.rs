use burn::tensor::Tensor;
use grove_backend::Backend;

use crate::{Array, Key};

/// Initializer of a layer: a random key and a device, or neither for a skeleton of absent leaves.
///
/// Constructors take an `Init` and create their leaves with it. Each part of a model derives its own key from its name,
/// so adding a layer does not change the initial values of other layers.
///
/// ```
/// use grove_tree::{Init, Key};
/// # type B = burn_flex::Flex;
/// let init = Init::<B>::new(Key::new(0), &Default::default());
/// let weight = init.named("weight").normal([3, 4], 0.02);
/// let skeleton = Init::<B>::skeleton().named("weight").normal([3, 4], 0.02);
/// assert!(weight.is_present() && !skeleton.is_present());
/// ```
#[derive(Clone, Debug)]
pub struct Init<B: Backend> {
    source: Option<(Key, B::Device)>,
}

/// The initializer of a part of a model.
impl<B: Backend> From<&Self> for Init<B> {
    fn from(init: &Self) -> Self {
        init.clone()
    }
}

/// An initializer that samples from a key, on the default device.
impl<B: Backend> From<Key> for Init<B> {
    fn from(key: Key) -> Self {
        Self::new(key, &B::Device::default())
    }
}

impl<B: Backend> Init<B> {
    /// Creates an initializer that samples from a key, on a device.
    pub fn new(key: Key, device: &B::Device) -> Self {
        Self { source: Some((key, device.clone())) }
    }

    /// Creates an initializer of absent leaves, which allocates no memory.
    pub fn skeleton() -> Self {
        Self { source: None }
    }

    /// Derives the initializer of a named part of the model. The part has its own key.
    pub fn named(&self, name: &str) -> Self {
        self.derived(|key| key.named(name))
    }

    /// Derives the initializer of a part of the model with this index. The part has its own key.
    pub fn fold_in(&self, number: u32) -> Self {
        self.derived(|key| key.fold_in(number))
    }

    fn derived(&self, key_of: impl Fn(Key) -> Key) -> Self {
        Self { source: self.source.as_ref().map(|(key, device)| (key_of(*key), device.clone())) }
    }

    /// Samples a normal distribution with mean 0 and standard deviation `std`.
    pub fn normal<const D: usize>(&self, shape: [usize; D], std: f64) -> Array<B, D> {
        self.leaf(shape, |key, device| key.normal::<B, D>(shape, device).mul_scalar(std))
    }

    /// Samples a uniform distribution on `[low, high)`.
    pub fn uniform<const D: usize>(&self, shape: [usize; D], low: f32, high: f32) -> Array<B, D> {
        self.leaf(shape, |key, device| key.uniform::<B, D>(shape, low, high, device))
    }

    /// Creates an array of zeros.
    pub fn zeros<const D: usize>(&self, shape: [usize; D]) -> Array<B, D> {
        self.leaf(shape, |_, device| Tensor::zeros(shape, device))
    }

    /// Creates an array of ones.
    pub fn ones<const D: usize>(&self, shape: [usize; D]) -> Array<B, D> {
        self.leaf(shape, |_, device| Tensor::ones(shape, device))
    }

    /// Creates an array filled with `value`.
    pub fn full<const D: usize>(&self, shape: [usize; D], value: f64) -> Array<B, D> {
        self.leaf(shape, |_, device| Tensor::full(shape, value, device))
    }

    fn leaf<const D: usize>(
        &self,
        shape: [usize; D],
        make: impl FnOnce(&Key, &B::Device) -> Tensor<B, D>,
    ) -> Array<B, D> {
        match &self.source {
            Some((key, device)) => Array::new(make(key, device)),
            None => Array::absent(shape),
        }
    }
}
