use burn::tensor::TensorData;

/// Returns the value of an array `[1]`.
pub(crate) fn scalar(data: TensorData) -> f64 {
    data.iter().next().unwrap_or(f64::NAN)
}
