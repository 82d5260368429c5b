//! Reference results, stored as `{case}.{part}` in a safetensors file.

use burn::tensor::{DType, Tensor, TensorData};
use grove_backend::Backend;
use grove_tree::Array;
use safetensors::SafeTensors;

/// One case of a fixture.
pub struct Case {
    pub name: &'static str,
    file: Vec<u8>,
}

impl Case {
    /// Opens a case of `tests/fixtures/{file}.safetensors`.
    pub fn of(file: &str, name: &'static str) -> Self {
        Self { name, file: std::fs::read(format!("tests/fixtures/{file}.safetensors")).unwrap() }
    }

    pub fn find(&self, part: &str) -> Option<TensorData> {
        let file = SafeTensors::deserialize(&self.file).unwrap();
        let view = file.tensor(&format!("{}.{part}", self.name)).ok()?;
        let dtype = match view.dtype() {
            safetensors::Dtype::F32 => DType::F32,
            safetensors::Dtype::I64 => DType::I64,
            other => panic!("{}.{part}: {other:?}", self.name),
        };
        Some(TensorData::from_bytes_vec(view.data().to_vec(), view.shape().to_vec(), dtype))
    }

    pub fn data(&self, part: &str) -> TensorData {
        self.find(part).unwrap_or_else(|| panic!("no {part} in {}", self.name))
    }

    pub fn floats<B: Backend, const D: usize>(&self, part: &str, device: &B::Device) -> Array<B, D> {
        Array::new(Tensor::from_data(self.data(part), device))
    }
}
