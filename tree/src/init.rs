use burn::tensor::Tensor;
use grove_backend::Backend;

use crate::{Array, Key};

/// What a layer is initialised with: a key and a device, or neither, for a skeleton.
///
/// A constructor takes an `Init` and makes its leaves with it. Each part of a model gets its own numbers from its
/// name, so that adding a layer does not change the others.
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

impl<B: Backend> Init<B> {
    /// Initialises with random numbers of a key, on a device.
    pub fn new(key: Key, device: &B::Device) -> Self {
        Self { source: Some((key, device.clone())) }
    }

    /// Makes absent leaves: nothing is allocated.
    pub fn skeleton() -> Self {
        Self { source: None }
    }

    /// For the part of the model with this name: a key of its own.
    pub fn named(&self, name: &str) -> Self {
        self.fold_in(fnv1a(name))
    }

    /// For the part of the model with this number: a key of its own.
    pub fn fold_in(&self, number: u32) -> Self {
        Self { source: self.source.as_ref().map(|(key, device)| (key.fold_in(number), device.clone())) }
    }

    /// Normally distributed around 0 with a standard deviation.
    pub fn normal<const D: usize>(&self, shape: [usize; D], std: f64) -> Array<B, D> {
        self.leaf(shape, |key, device| key.normal::<B, D>(shape, device).mul_scalar(std))
    }

    /// Uniformly distributed in `[low, high)`.
    pub fn uniform<const D: usize>(&self, shape: [usize; D], low: f32, high: f32) -> Array<B, D> {
        self.leaf(shape, |key, device| key.uniform::<B, D>(shape, low, high, device))
    }

    /// All zeros.
    pub fn zeros<const D: usize>(&self, shape: [usize; D]) -> Array<B, D> {
        self.leaf(shape, |_, device| Tensor::zeros(shape, device))
    }

    /// All ones.
    pub fn ones<const D: usize>(&self, shape: [usize; D]) -> Array<B, D> {
        self.leaf(shape, |_, device| Tensor::ones(shape, device))
    }

    /// The same number everywhere.
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

/// The 32-bit FNV-1a hash of a name (Fowler, Noll, Vo).
fn fnv1a(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
