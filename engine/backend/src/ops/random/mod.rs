//! Random bits, keys and samples: those of `jax.random` for the key, the same on every backend.

mod bits;
mod keys;
mod samples;

pub use bits::RandomBits;
pub use keys::{RandomFoldIn, RandomKeyData};
pub use samples::RandomSamples;

use burn::tensor::{Bool, Int, Tensor};
use grove_kernels::random::Distribution;

use super::{AnyTensor, Backend, Differentiation, Outcome, Rules, Shapes, Spec, Values, apply, primitive};

/// Generates 32 random bits per element, u32; see [`RandomBits`].
#[track_caller]
pub fn random_bits<B: Backend, const D: usize>(
    key: [u32; 2],
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D, Int> {
    Tensor::from_primitive(apply::<B>(RandomBits { key, shape: shape.into() }, Values::on(device)).take_int(0))
}

/// Returns the two words of a random key; see [`RandomKeyData`].
#[track_caller]
pub fn random_key_data<B: Backend>(key: [u32; 2], device: &B::Device) -> Tensor<B, 1, Int> {
    Tensor::from_primitive(apply::<B>(RandomKeyData { key }, Values::on(device)).take_int(0))
}

/// Derives a key from each of several integers, and from one key `[2]` or one key per integer `[n, 2]`; see
/// [`RandomFoldIn`].
///
/// # Panics
/// If the shapes do not match.
#[track_caller]
pub fn random_fold_in<B: Backend, const D: usize>(
    key: Tensor<B, D, Int>,
    data: Tensor<B, 1, Int>,
) -> Tensor<B, 2, Int> {
    Tensor::from_primitive(apply::<B>(RandomFoldIn, Values::default().with(key).with(data)).take_int(0))
}

/// Draws floating-point samples of a distribution; see [`RandomSamples`].
///
/// # Panics
/// If the distribution has integer or boolean samples.
#[track_caller]
pub fn random_floats<B: Backend, const D: usize>(
    key: [u32; 2],
    distribution: Distribution,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D> {
    random_samples(key, distribution, shape, device).take_tensor(0)
}

/// Draws integer samples of a distribution; see [`RandomSamples`].
///
/// # Panics
/// If the distribution does not have integer samples.
#[track_caller]
pub fn random_integers<B: Backend, const D: usize>(
    key: [u32; 2],
    distribution: Distribution,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D, Int> {
    Tensor::from_primitive(random_samples::<B, D>(key, distribution, shape, device).take_int(0))
}

/// Draws boolean samples of a distribution; see [`RandomSamples`].
///
/// # Panics
/// If the distribution does not have boolean samples.
#[track_caller]
pub fn random_booleans<B: Backend, const D: usize>(
    key: [u32; 2],
    distribution: Distribution,
    shape: [usize; D],
    device: &B::Device,
) -> Tensor<B, D, Bool> {
    Tensor::from_primitive(random_samples::<B, D>(key, distribution, shape, device).take_bool(0))
}

fn random_samples<B: Backend, const D: usize>(
    key: [u32; 2],
    distribution: Distribution,
    shape: [usize; D],
    device: &B::Device,
) -> Values<B> {
    apply::<B>(RandomSamples { key, distribution, shape: shape.into() }, Values::on(device))
}
