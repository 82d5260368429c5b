//! Arrays with one axis, from and to the host.

use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_tree::Array;

/// Returns the value of an array `[1]`.
pub(crate) fn scalar(data: TensorData) -> f64 {
    data.iter().next().unwrap_or(f64::NAN)
}

/// Returns integers on a device, `[n]`.
pub(crate) fn integers<B: Backend>(values: Vec<i64>, device: &B::Device) -> Array<B, 1, Int> {
    let n = values.len();
    Array::new(Tensor::from_data(TensorData::new(values, [n]), device))
}
