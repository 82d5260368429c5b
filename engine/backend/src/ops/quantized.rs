//! Products with quantized weights. The compositions dequantize a layer's weights at each call.

use burn::tensor::{
    DType, Int, Shape, Tensor, TensorData, TensorMetadata,
    ops::{FloatTensor, IntTensor},
};
use grove_kernels::{self as kernels, InputPrecision, Quantization};

use super::{
    AnyTensor, Backend, Differentiation, Outcome, Residuals, Rules, Shapes, Values, Wanted, apply, at_least_f32, float,
    primitive, shapes::with_last, to_dtype,
};

/// Product with the transpose of a quantized matrix, `x W^T`. Backends with a kernel do not dequantize the whole matrix.
///
/// `x` may be rounded to 8 bits. The derivatives are those of the product without rounding.
///
/// # Shapes
/// - inputs: `x` `[.., in]`; u8 blocks `[out, bytes per row]`, see [`Quantization`]
/// - output `[.., out]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct QuantizedLinear {
    /// Format of the blocks.
    pub format: Quantization,
    /// Precision in which `x` is read.
    #[serde(default)]
    pub precision: InputPrecision,
}

impl Rules for QuantizedLinear {
    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let ([outputs, bytes], x) = (inputs.dims("quantized_linear", 1), inputs.get(0).unwrap_or_default());
        let columns = self.format.weights(bytes);
        inputs.require(
            x.last() == Some(&columns) && bytes.is_multiple_of(self.format.block_bytes()),
            "quantized_linear",
            "x [.., in] by rows of as many values, in whole blocks",
        );
        vec![with_last(x, outputs)]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([1])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let (mut x, blocks) = (inputs.take_float(0), inputs.take_int(1));
        if self.precision == InputPrecision::Int8 {
            x = rounded_to_int8::<B>(x);
        }
        let weight = dequantized::<B>(blocks, self.format, x.dtype()).transpose();
        let y = apply(super::Linear, Values::default().with(AnyTensor::Float(x)).with(weight));
        y.into()
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let grad = grads.take_float(0);
        let weight = dequantized::<B>(residuals.take_int(0), self.format, grad.dtype());
        apply(super::Linear, Values::default().with(AnyTensor::Float(grad)).with(weight))
    }
}

/// Rounds the rows of `x` `[.., n]`, where n is a multiple of 32, to 8 bits; see [`InputPrecision::Int8`].
pub fn rounded_to_int8<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    const LARGEST: f32 = 127.0;
    // A smaller magnitude would have an infinite inverse.
    const LEAST: f32 = 1e-30;
    let (shape, dtype) = (x.shape(), x.dtype());
    let blocks = Shape::from([shape.num_elements() / 32, 32]);
    let blocks = at_least_f32(float::<B, 2>(B::float_reshape(x, blocks)));
    let largest = blocks.clone().abs().max_dim(1).clamp_min(LEAST);
    let scale = largest / LARGEST;
    let codes = (blocks * scale.clone().recip()).round();
    let rounded = to_dtype(codes * scale, dtype);
    B::float_reshape(primitive(rounded), shape)
}

/// Dequantizes a matrix to f32.
///
/// # Shapes
/// - input: u8 blocks `[rows, bytes per row]`
/// - output `[rows, columns]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Dequantize {
    /// Format of the blocks.
    pub format: Quantization,
}

impl Rules for Dequantize {
    const DIFFERENTIATION: Differentiation = Differentiation::None;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let [rows, bytes] = inputs.dims("dequantize", 0);
        let whole = bytes.is_multiple_of(self.format.block_bytes());
        inputs.require(whole, "dequantize", "rows of whole blocks");
        vec![Shape::from([rows, self.format.weights(bytes)])]
    }

    /// Dequantizes on the host.
    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let blocks = Tensor::<B, 2, Int>::from_primitive(inputs.take_int(0));
        let ([rows, bytes], device) = (blocks.dims(), blocks.device());
        let columns = self.format.weights(bytes);
        let data = blocks.into_data().convert_dtype(DType::U8);
        let mut values = vec![0.0; rows * columns];
        kernels::dequantize(self.format, data.as_bytes(), &mut values);
        Outcome::new([B::float_from_data(TensorData::new(values, [rows, columns]), &device)])
    }
}

/// Dequantizes the matrix, `[out, in]`, to a floating-point dtype.
fn dequantized<B: Backend>(blocks: IntTensor<B>, format: Quantization, dtype: DType) -> Tensor<B, 2> {
    let blocks = Values::default().with(AnyTensor::Int(blocks));
    to_dtype(apply(Dequantize { format }, blocks).take_tensor::<2>(0), dtype)
}

/// [`QuantizedLinear`] for tensors in host memory: rows and blocks are copied out of their tensors, and the matrix is not
/// dequantized.
#[cfg(feature = "candle")]
pub(super) fn linear_on_host<B: Backend>(linear: QuantizedLinear, mut inputs: Values<B>) -> Outcome<B> {
    if inputs.dtype(0) != DType::F32 {
        return linear.compose(inputs, &[]);
    }
    let (shape, blocks) = (inputs.shape(0), Tensor::<B, 2, Int>::from_primitive(inputs.take_int(1)));
    let ([outputs, _], device) = (blocks.dims(), blocks.device());
    let x = super::linear::rows::<B>(inputs.take_float(0));
    let [rows, columns] = x.dims();
    let (x, blocks) = (x.into_data(), blocks.into_data().convert_dtype(DType::U8));
    let matrix = kernels::QuantizedMatrix { data: blocks.as_bytes(), rows: outputs, columns, kind: linear.format };
    let mut y = vec![0.0; rows * outputs];
    let x = x.as_slice().expect("numbers of the type that was asked for");
    let x = kernels::Matrix::new(x, rows, columns);
    kernels::matmul_quantized(x, linear.precision, matrix, None, &mut y);
    let y = super::float(B::float_from_data(TensorData::new(y, [rows, outputs]), &device));
    Outcome::new([super::linear::unflatten::<B>(y, shape)])
}
