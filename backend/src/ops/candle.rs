//! The candle backend: what it does not have itself, by other operations.

use burn::tensor::{
    DType, TensorMetadata,
    ops::{FloatTensor, IntTensor},
};

use super::{
    AttendOptions, Backend, ConvolveOptions, Quantisation, affine, attend, convolve, convolve_by_pixels, precision,
    quantised,
};

impl Backend for crate::Candle {
    const WIDENS_WEIGHTS: bool = true;

    /// candle copies a matrix for each of a batch with which it is multiplied.
    fn affine(x: FloatTensor<Self>, weight: FloatTensor<Self>, bias: Option<FloatTensor<Self>>) -> FloatTensor<Self> {
        affine::by_rows::<Self>(x, weight, bias)
    }

    /// On a CPU, where grove has it, candle multiplies no matrices of bf16.
    fn computes_in(device: &Self::Device, dtype: DType) -> bool {
        dtype.is_float()
            && dtype != DType::BF16
            && <Self as burn::tensor::backend::Backend>::supports_dtype(device, dtype)
    }

    fn affine_quantised(x: FloatTensor<Self>, blocks: IntTensor<Self>, kind: Quantisation) -> FloatTensor<Self> {
        quantised::affine_on_host::<Self>(x, blocks, kind)
    }

    /// candle adds numbers of 16 bits up in 16 bits.
    fn attend(
        inputs: [FloatTensor<Self>; 3],
        options: AttendOptions<Self>,
        keep: bool,
    ) -> (FloatTensor<Self>, Option<FloatTensor<Self>>) {
        match precision::is_half(inputs[0].dtype()) {
            true => attend::forward_in_f32::<Self>(inputs, options, keep),
            false => attend::forward::<Self>(inputs, options, keep),
        }
    }

    fn attend_backward(
        inputs: [FloatTensor<Self>; 3],
        options: AttendOptions<Self>,
        kept: Option<FloatTensor<Self>>,
        grad: FloatTensor<Self>,
        needs: [bool; 3],
    ) -> [Option<FloatTensor<Self>>; 3] {
        match precision::is_half(grad.dtype()) {
            true => attend::backward_in_f32::<Self>(inputs, options, kept, grad, needs),
            false => attend::backward::<Self>(inputs, options, kept, grad, needs),
        }
    }

    /// candle has one stride, padding and dilation for both axes.
    fn convolve(x: FloatTensor<Self>, weight: FloatTensor<Self>, options: ConvolveOptions) -> FloatTensor<Self> {
        match options.is_same_both_ways() {
            true => convolve::forward::<Self>(x, weight, options),
            false => convolve_by_pixels::forward::<Self>(x, weight, options),
        }
    }

    /// Nor has it a transposed convolution of groups.
    fn convolve_backward(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        grad: FloatTensor<Self>,
        options: ConvolveOptions,
        needs: [bool; 2],
    ) -> [Option<FloatTensor<Self>>; 2] {
        match options.is_same_both_ways() {
            true => convolve::backward_by_groups::<Self>(x, weight, grad, options, needs),
            false => convolve_by_pixels::backward::<Self>(x, weight, grad, options, needs),
        }
    }
}
