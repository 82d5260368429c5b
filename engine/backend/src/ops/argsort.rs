//! Sorting indices along an axis.

use burn::tensor::{Shape, TensorData};
use burn_backend::get_device_settings;
use std::cmp::Ordering;

use super::{AnyTensor, Backend, Differentiation, Outcome, Rules, Shapes, Spec, Values};

/// Indices that sort the elements along an axis: `jax.numpy.argsort`. The sort is stable, 0 and -0 are equal, and NaN is
/// larger than all other values. Elements are sorted on the host.
///
/// # Shapes
/// - input: any shape, floating-point or integer
/// - output: the shape of the input, in the backend's default integer dtype
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Argsort {
    /// The axis.
    pub axis: usize,
    /// True if the largest element comes first.
    pub descending: bool,
}

impl Argsort {
    /// Returns shape and dtype of the output.
    pub(super) fn spec<B: Backend>(&self, x: &AnyTensor<B>) -> Spec {
        Spec { shape: x.shape(), dtype: get_device_settings::<B>(&x.device()).int_dtype.into() }
    }

    /// Returns the sorting indices of each row.
    fn positions<T: Copy>(&self, x: &[T], shape: &[usize], compare: impl Fn(&T, &T) -> Ordering) -> Vec<i64> {
        let (size, stride) = (shape[self.axis], shape[self.axis + 1..].iter().product::<usize>());
        let mut positions = vec![0; x.len()];
        let mut order: Vec<usize> = Vec::with_capacity(size);
        for first in (0..x.len()).filter(|i| i / stride % size == 0) {
            order.clear();
            order.extend(0..size);
            order.sort_by(|a, b| {
                let by_value = compare(&x[first + a * stride], &x[first + b * stride]);
                if self.descending { by_value.reverse() } else { by_value }
            });
            order.iter().enumerate().for_each(|(i, from)| positions[first + i * stride] = *from as i64);
        }
        positions
    }
}

impl Rules for Argsort {
    const DIFFERENTIATION: Differentiation = Differentiation::None;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape = inputs.get(0).unwrap_or_default();
        inputs.require(self.axis < shape.len(), "argsort", &format!("an array with axis {}", self.axis));
        vec![shape.to_vec().into()]
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let Some(x) = inputs.take(0) else { unreachable!("the shapes of the inputs were checked") };
        let (Spec { shape, dtype }, device) = (self.spec(&x), x.device());
        let positions = match x {
            AnyTensor::Float(_) => {
                let x: Vec<f64> = x.into_data().iter::<f64>().collect();
                let compare = |a: &f64, b: &f64| a.partial_cmp(b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()));
                self.positions(&x, &shape, compare)
            }
            x => self.positions(&x.into_data().iter::<i64>().collect::<Vec<_>>(), &shape, i64::cmp),
        };
        let positions = TensorData::new(positions, shape).convert_dtype(dtype);
        Values::default().with(AnyTensor::Int(B::int_from_data(positions, &device))).into()
    }
}
