//! Linear layers on flex. The accumulators of the product start with the bias. Inputs of bf16 are multiplied in pairs where
//! the CPU does so, and other 16-bit inputs in f32. With f32 inputs, 16-bit and quantized weights are unpacked panel by panel.

use burn::tensor::{DType, Shape, TensorMetadata, ops::FloatTensorOps};
use burn_flex::{Flex, FlexTensor};
use grove_kernels::{self as kernels, HalfMatrix, Matrix, QuantizedMatrix};

use super::{contiguous, elements, half, is_f32, tensor};
use crate::ops::{AnyTensor, Dequantize, Outcome, QuantizedLinear, Values, Wanted, shapes::with_last};

/// Number of rows up to which a 16-bit weight is widened panel by panel. For more rows, the kernels of f32 are faster with a
/// copy of the weight in f32.
const FEW_ROWS: usize = 32;

/// Elements for which there are products: f32, and bf16 by its bits.
pub(super) trait Element: Copy {
    /// Returns the stored elements of a tensor.
    fn stored(x: &FlexTensor) -> &[Self];

    /// Computes `a b` in f32; `None` if there is no kernel for these sizes on this CPU.
    fn product(a: Matrix<'_, Self>, b: Matrix<'_, Self>) -> Option<Vec<f32>>;

    /// Like [`product`](Self::product), plus a bias, as a tensor of the elements' dtype.
    fn rounded_product(
        a: Matrix<'_, Self>,
        b: Matrix<'_, Self>,
        bias: Option<&[f32]>,
        shape: Shape,
    ) -> Option<FlexTensor>;

    /// Sums the rows of a contiguous tensor, of `columns` elements each.
    fn sum_rows(x: &FlexTensor, columns: usize) -> Vec<f32>;
}

impl Element for f32 {
    fn stored(x: &FlexTensor) -> &[f32] {
        x.storage::<f32>()
    }

    fn product(a: Matrix<'_>, b: Matrix<'_>) -> Option<Vec<f32>> {
        Some(kernels::product(a, b, None))
    }

    fn rounded_product(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>, shape: Shape) -> Option<FlexTensor> {
        Some(product(a, b, bias, shape))
    }

    fn sum_rows(x: &FlexTensor, columns: usize) -> Vec<f32> {
        let mut sums = vec![0.0; columns];
        kernels::sum_rows(rows(x), &mut sums);
        sums
    }
}

impl Element for u16 {
    fn stored(x: &FlexTensor) -> &[u16] {
        half::bits(x)
    }

    fn product(a: Matrix<'_, u16>, b: Matrix<'_, u16>) -> Option<Vec<f32>> {
        kernels::product_bf16(a, b, None)
    }

    fn rounded_product(
        a: Matrix<'_, u16>,
        b: Matrix<'_, u16>,
        bias: Option<&[f32]>,
        shape: Shape,
    ) -> Option<FlexTensor> {
        Some(half::tensor(kernels::rounded_product_bf16(a, b, bias)?, shape, DType::BF16))
    }

    fn sum_rows(x: &FlexTensor, columns: usize) -> Vec<f32> {
        f32::sum_rows(&half::cast(x.clone(), DType::F32), columns)
    }
}

/// Views a contiguous tensor `[.., n]` as a matrix of rows.
fn rows<T: Element>(x: &FlexTensor) -> Matrix<'_, T> {
    let shape = x.layout().shape();
    let n = shape[shape.num_dims() - 1];
    Matrix::new(T::stored(x), shape[..shape.num_dims() - 1].iter().product(), n)
}

/// Returns a tensor unchanged if the rows or columns of its matrices (the last two axes) are contiguous, otherwise a copy.
pub(super) fn plain(x: FlexTensor) -> FlexTensor {
    let (shape, strides) = (x.layout().shape(), x.layout().strides());
    let d = shape.num_dims();
    let ([rows, columns], [down, right]) = ([shape[d - 2], shape[d - 1]], [strides[d - 2], strides[d - 1]]);
    let matrices = right == 1 && down >= columns as isize || down == 1 && right >= rows as isize;
    if matrices && strides[..d - 2].iter().all(|stride| *stride >= 0) { x } else { contiguous(x) }
}

/// Views a result of [`plain`] as a matrix; the first one if it has several.
fn matrix<T: Element>(x: &FlexTensor) -> Matrix<'_, T> {
    matrix_at(x, 0)
}

/// Views the matrix of a result of [`plain`] that starts `offset` elements after the first one.
pub(super) fn matrix_at<T: Element>(x: &FlexTensor, offset: usize) -> Matrix<'_, T> {
    let stored = T::stored(x);
    strided(x, &stored[(x.layout().start_offset() + offset).min(stored.len())..])
}

/// Views elements as a matrix with the sizes and strides of a result of [`plain`].
fn strided<'a, T>(x: &FlexTensor, data: &'a [T]) -> Matrix<'a, T> {
    let (shape, strides) = (x.layout().shape(), x.layout().strides());
    let d = shape.num_dims();
    let ([rows, columns], [down, right]) = ([shape[d - 2], shape[d - 1]], [strides[d - 2], strides[d - 1]]);
    // The stride of a single row or a single column is arbitrary.
    if right == 1 && down >= columns as isize {
        return Matrix { stride: down as usize, ..Matrix::new(data, rows, columns) };
    }
    Matrix { stride: right as usize, ..Matrix::new(data, columns, rows).transpose() }
}

/// Like [`matrix`], for 16-bit floats.
fn half_matrix(x: &FlexTensor) -> Option<HalfMatrix<'_>> {
    let format = half::format(x.dtype())?;
    Some(HalfMatrix { bits: matrix(x), format })
}

fn product(a: Matrix<'_>, b: Matrix<'_>, bias: Option<&[f32]>, shape: Shape) -> FlexTensor {
    tensor(kernels::product(a, b, bias), shape)
}

/// Returns true for a 16-bit weight with f32 inputs.
pub(super) fn has_half_weight(inputs: &Values<Flex>) -> bool {
    let bias = || matches!(inputs.get(2), Some(AnyTensor::Float(bias)) if !is_f32(bias));
    half::format(inputs.dtype(1)).is_some() && is_f32(inputs.float(0)) && !bias()
}

/// Multiplies in bf16, or in f32, and rounds the result to the 16-bit dtype of the input.
pub(super) fn forward_in_16_bits(mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (dtype, x, weight) = (inputs.dtype(0), contiguous(inputs.take_float(0)), plain(inputs.take_float(1)));
    let bias = inputs.take_optional_float(2).map(|bias| contiguous(half::cast(bias, DType::F32)));
    let shape = with_last(&x.layout().shape()[..], weight.shape()[1]);
    let by_pairs = [&x, &weight].iter().all(|x| x.dtype() == DType::BF16);
    let product = || u16::rounded_product(rows(&x), matrix(&weight), bias.as_ref().map(elements), shape);
    if let Some(y) = by_pairs.then(product).flatten() {
        return Outcome::new([y]);
    }
    let count = x.shape().num_elements() / weight.shape()[0].max(1);
    let x = half::cast(x, DType::F32);
    let inputs = |weight| Values::floats([x, weight]).with_optional(bias.map(AnyTensor::Float));
    let mut y = match count <= FEW_ROWS && half::format(weight.dtype()).is_some() {
        true => forward_half(inputs(weight)),
        false => forward(inputs(half::cast(weight, DType::F32))),
    };
    Outcome::new([half::cast(y.outputs.take_float(0), dtype)])
}

pub(super) fn forward_half(mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (x, weight) = (contiguous(inputs.take_float(0)), plain(inputs.take_float(1)));
    let bias = inputs.take_optional_float(2).map(contiguous);
    let weight = half_matrix(&weight).expect("numbers of 16 bits");
    let shape = with_last(&x.layout().shape()[..], weight.bits.columns);
    let mut out = vec![0.0; shape.num_elements()];
    kernels::matmul_half(rows(&x), weight, bias.as_ref().map(elements), &mut out);
    Outcome::new([tensor(out, shape)])
}

pub(super) fn forward(mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (x, weight) = (contiguous(inputs.take_float(0)), plain(inputs.take_float(1)));
    let bias = inputs.take_optional_float(2).map(contiguous);
    let weight = matrix(&weight);
    let shape = with_last(&x.layout().shape()[..], weight.columns);
    Outcome::new([product(rows(&x), weight, bias.as_ref().map(elements), shape)])
}

pub(super) fn vjp(residuals: Values<Flex>, grads: Values<Flex>, wanted: &Wanted) -> Values<Flex> {
    gradients::<f32>(residuals, grads, wanted).expect("a product of f32 for all sizes")
}

/// Computes the gradients from values of bf16, those of parameters in f32; `None` if there is no kernel for them on this CPU.
pub(super) fn vjp_bf16(residuals: &Values<Flex>, grads: &Values<Flex>, wanted: &Wanted) -> Option<Values<Flex>> {
    let is_bf16 = |x: Option<&AnyTensor<Flex>>| x.is_none_or(|x| x.dtype() == DType::BF16);
    let all = is_bf16(residuals.get(0)) && is_bf16(residuals.get(1)) && is_bf16(grads.get(0));
    all.then(|| gradients::<u16>(residuals.clone(), grads.clone(), wanted)).flatten()
}

fn gradients<T: Element>(
    mut residuals: Values<Flex>,
    mut grads: Values<Flex>,
    wanted: &Wanted,
) -> Option<Values<Flex>> {
    let x = residuals.take_optional_float(0).map(contiguous);
    let weight = residuals.take_optional_float(1).map(plain);
    let grad = contiguous(grads.take_float(0));
    let grads = rows::<T>(&grad);
    let dx = match weight.as_ref().map(matrix::<T>) {
        Some(weight) => {
            let shape = with_last(&grad.layout().shape()[..], weight.rows);
            Some(T::rounded_product(grads, weight.transpose(), None, shape)?)
        }
        None => None,
    };
    let transposed = weight.as_ref().is_some_and(|weight| matrix::<T>(weight).transposed);
    let dw = match x.as_ref().map(rows::<T>) {
        // In the weight's layout, so that gradients of other uses are added in one pass, and an optimizer can iterate over
        // both in order.
        Some(x) if transposed => {
            let shape = Shape::from([grads.columns, x.columns]);
            Some(Flex::float_swap_dims(tensor(T::product(grads.transpose(), x)?, shape), 0, 1))
        }
        Some(x) => {
            let shape = Shape::from([x.columns, grads.columns]);
            Some(tensor(T::product(x.transpose(), grads)?, shape))
        }
        None => None,
    };
    let db = wanted.get(2).map(|_| tensor(T::sum_rows(&grad, grads.columns), Shape::from([grads.columns])));
    Some(Values::optional_floats([dx, dw, db]))
}

pub(super) fn quantized(linear: QuantizedLinear, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (x, blocks) = (contiguous(inputs.take_float(0)), contiguous(inputs.take_int(1)));
    let (outputs, a) = (blocks.layout().shape()[0], rows(&x));
    let data = blocks.as_slice::<u8>().expect("a contiguous tensor of u8");
    let shape = with_last(&x.layout().shape()[..], outputs);
    let mut out = vec![0.0; shape.num_elements()];
    let matrix = QuantizedMatrix { data, rows: outputs, columns: a.columns, kind: linear.format };
    kernels::matmul_quantized(a, linear.precision, matrix, None, &mut out);
    Outcome::new([tensor(out, shape)])
}

pub(super) fn dequantize(op: Dequantize, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (blocks, format) = (contiguous(inputs.take_int(0)), op.format);
    let [rows, bytes] = blocks.layout().shape()[..] else { panic!("a quantized matrix has rows of bytes") };
    let shape = Shape::from([rows, format.weights(bytes)]);
    let mut out = vec![0.0; shape.num_elements()];
    kernels::dequantize(format, blocks.as_slice::<u8>().expect("a contiguous tensor of u8"), &mut out);
    Outcome::new([tensor(out, shape)])
}
