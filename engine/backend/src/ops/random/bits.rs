//! Random bits.

use burn::tensor::{Shape, TensorData};
use grove_kernels as kernels;

use super::{AnyTensor, Backend, Differentiation, Outcome, Rules, Shapes, Values};

/// 32 random bits per element, u32: those of `jax.random.bits(key)`, the same on every backend. The bits depend on the key
/// and on the element's row-major index.
///
/// # Shapes
/// - no inputs, only a [device](Values::on)
/// - output: `shape`
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RandomBits {
    /// Words of the random key, high word first.
    pub key: [u32; 2],
    /// Shape of the output.
    #[serde(with = "crate::ops::shapes::sizes")]
    pub shape: Shape,
}

impl Rules for RandomBits {
    const DIFFERENTIATION: Differentiation = Differentiation::None;

    fn shapes(&self, _inputs: &Shapes) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
        Some(&mut self.key)
    }

    /// Generates the bits on the host.
    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let bits = kernels::random_bits(self.key, self.shape.num_elements());
        let bits = B::int_from_data(TensorData::new(bits, self.shape.clone()), inputs.device());
        Values::default().with(AnyTensor::Int(bits)).into()
    }
}
