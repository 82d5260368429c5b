//! Products with weights that stay quantised: the defaults of [`Backend`], which unpack a layer's weights each time.

use burn::tensor::{
    DType, Int, Tensor, TensorData, TensorMetadata,
    ops::{FloatTensor, IntTensor},
};
use burn_autodiff::{Autodiff, checkpoint::strategy::CheckpointStrategy};
use grove_kernels::{self as kernels, Quantisation};

use super::{Backend, custom::recorded, float, primitive};

/// `[rows, bytes]` to `[rows, columns]`, by way of the host.
pub(super) fn dequantise<B: Backend>(blocks: IntTensor<B>, kind: Quantisation) -> FloatTensor<B> {
    let blocks = Tensor::<B, 2, Int>::from_primitive(blocks);
    let ([rows, bytes], device) = (blocks.dims(), blocks.device());
    let columns = bytes / kind.block_bytes() * kind.block_len();
    let data = blocks.into_data().convert_dtype(DType::U8);
    let mut values = vec![0.0; rows * columns];
    kernels::dequantise(kind, data.as_bytes(), &mut values);
    B::float_from_data(TensorData::new(values, [rows, columns]), &device)
}

/// The matrix, `[out, in]`, in the type of another tensor.
fn matrix<B: Backend>(blocks: IntTensor<B>, kind: Quantisation, dtype: DType) -> Tensor<B, 2> {
    float::<B, 2>(B::dequantise(blocks, kind)).cast(dtype)
}

pub(super) fn affine<B: Backend>(x: FloatTensor<B>, blocks: IntTensor<B>, kind: Quantisation) -> FloatTensor<B> {
    let dtype = x.dtype();
    B::affine(x, primitive(matrix::<B>(blocks, kind, dtype).transpose()), None)
}

/// As [`affine`], where the device is the host: rows and blocks are copied out of their tensors, and nothing is unpacked.
#[cfg(feature = "candle")]
pub(super) fn affine_on_host<B: Backend>(
    x: FloatTensor<B>,
    blocks: IntTensor<B>,
    kind: Quantisation,
) -> FloatTensor<B> {
    if x.dtype() != DType::F32 {
        return affine::<B>(x, blocks, kind);
    }
    let (shape, blocks) = (x.shape(), Tensor::<B, 2, Int>::from_primitive(blocks));
    let ([outputs, _], device) = (blocks.dims(), blocks.device());
    let x = super::affine::rows::<B>(x);
    let [rows, columns] = x.dims();
    let (x, blocks) = (x.into_data(), blocks.into_data().convert_dtype(DType::U8));
    let matrix = kernels::QuantisedMatrix { data: blocks.as_bytes(), rows: outputs, columns, kind };
    let mut y = vec![0.0; rows * outputs];
    let x = x.as_slice().expect("numbers of the type that was asked for");
    kernels::matmul_quantised(kernels::Matrix::new(x, rows, columns), matrix, None, &mut y);
    super::affine::unflatten::<B>(float(B::float_from_data(TensorData::new(y, [rows, outputs]), &device)), shape)
}

pub(super) fn affine_backward<B: Backend>(
    blocks: IntTensor<B>,
    kind: Quantisation,
    grad: FloatTensor<B>,
) -> FloatTensor<B> {
    let dtype = grad.dtype();
    B::affine(grad, primitive(matrix::<B>(blocks, kind, dtype)), None)
}

pub(super) fn differentiable<B: Backend, C: CheckpointStrategy>(
    x: FloatTensor<Autodiff<B, C>>,
    blocks: IntTensor<B>,
    kind: Quantisation,
) -> FloatTensor<Autodiff<B, C>> {
    let backward = |(blocks, kind): (IntTensor<B>, Quantisation), grad, _| {
        [Some(B::affine_quantised_backward(blocks, kind, grad))]
    };
    recorded::<B, C, _, 1>([x], backward, |[x], _| (B::affine_quantised(x, blocks.clone(), kind), Some((blocks, kind))))
}
