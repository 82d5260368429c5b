//! Samples of random distributions.

use burn::tensor::{DType, Int, Shape, Tensor, TensorData};
use burn_backend::get_device_settings;
use grove_kernels::random::{Distribution, Samples};

use super::{AnyTensor, Backend, Differentiation, Outcome, Rules, Shapes, Spec, Values, primitive};

/// Samples of a distribution: those of `jax.random` for the key, the same on every backend. A sample depends on the key and
/// on its row-major index. Samples are drawn on the host.
///
/// # Shapes
/// - no inputs, only a [device](Values::on)
/// - output: `shape`, in the backend's default dtype: floating-point, integer for integers, boolean for Bernoulli samples
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct RandomSamples {
    /// Words of the random key, high word first.
    pub key: [u32; 2],
    /// The distribution.
    pub distribution: Distribution,
    /// Shape of the output.
    #[serde(with = "crate::ops::shapes::sizes")]
    pub shape: Shape,
}

impl RandomSamples {
    /// Returns shape and dtype of the output on a device.
    pub(in super::super) fn spec<B: Backend>(&self, device: &B::Device) -> Spec {
        let settings = get_device_settings::<B>(device);
        let dtype = match self.distribution {
            Distribution::Bernoulli { .. } => DType::Bool(settings.bool_dtype),
            Distribution::Integers { .. } => settings.int_dtype.into(),
            _ => settings.float_dtype.into(),
        };
        Spec { shape: self.shape.clone(), dtype }
    }
}

impl Rules for RandomSamples {
    const DIFFERENTIATION: Differentiation = Differentiation::None;

    fn shapes(&self, _inputs: &Shapes) -> Vec<Shape> {
        vec![self.shape.clone()]
    }

    fn key_mut(&mut self) -> Option<&mut [u32; 2]> {
        Some(&mut self.key)
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let (count, device) = (self.shape.num_elements(), inputs.device());
        let flat: AnyTensor<B> = match self.distribution.samples(self.key, count) {
            Samples::Floats(x) => {
                AnyTensor::Float(primitive(Tensor::<B, 1>::from_data(TensorData::new(x, [count]), device)))
            }
            Samples::Integers(x) => {
                AnyTensor::Int(Tensor::<B, 1, Int>::from_data(TensorData::new(x, [count]), device).into_primitive())
            }
            // Converted through integers, because some backends do not accept host booleans.
            Samples::Booleans(x) => AnyTensor::from_data(TensorData::new(x, [count]), device),
        };
        Values::default().with(flat.reshape(self.shape.clone())).into()
    }
}
