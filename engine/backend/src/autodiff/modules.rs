//! Methods of modules, quantized tensors and transactions. Burn's methods where grove has no rule.

use ::burn::tensor::{
    Device, FloatDType, IntDType, Shape, Slice, TensorData,
    backend::{AutodiffBackend, ExecutionError},
    ops::{
        ActivationOps, AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConv2dBackward,
        DeformConvOptions, InterpolateOptions, MaxPool1dWithIndices, MaxPool2dBackward, MaxPool2dWithIndices,
        ModuleOps, QTensorOps, TransactionOps, TransactionPrimitive, TransactionPrimitiveData,
    },
    quantization::{QuantScheme, QuantizationParametersPrimitive},
};
use burn_autodiff::checkpoint::strategy::CheckpointStrategy;
use std::future::Future;

use super::{
    Autodiff, Bool, Burn, Float, Int, Quantized, captured, compositions,
    pooling::{AvgPool, MaxPool},
};
use crate::Backend;

impl<B: Backend, C: CheckpointStrategy> ModuleOps<Self> for Autodiff<B, C> {
    differentiated! {
        embedding(weights: Float<B>, indices: Int<B>) -> Float<B>;
        embedding_backward(weights: Float<B>, output: Float<B>, indices: Int<B>) -> Float<B>;
        linear(x: Float<B>, weight: Float<B>, bias: Option<Float<B>>) -> Float<B>;
        linear_x_backward(weight: Float<B>, output_grad: Float<B>) -> Float<B>;
        linear_weight_backward(x: Float<B>, output_grad: Float<B>) -> Float<B>;
        linear_bias_backward(output_grad: Float<B>) -> Float<B>;
        conv_transpose1d(x: Float<B>, weight: Float<B>, bias: Option<Float<B>>, options: ConvTransposeOptions<1>) -> Float<B>;
        conv2d(x: Float<B>, weight: Float<B>, bias: Option<Float<B>>, options: ConvOptions<2>) -> Float<B>;
        deform_conv2d(x: Float<B>, offset: Float<B>, weight: Float<B>, mask: Option<Float<B>>, bias: Option<Float<B>>, options: DeformConvOptions<2>) -> Float<B>;
        conv_transpose2d(x: Float<B>, weight: Float<B>, bias: Option<Float<B>>, options: ConvTransposeOptions<2>) -> Float<B>;
        conv3d(x: Float<B>, weight: Float<B>, bias: Option<Float<B>>, options: ConvOptions<3>) -> Float<B>;
        conv_transpose3d(x: Float<B>, weight: Float<B>, bias: Option<Float<B>>, options: ConvTransposeOptions<3>) -> Float<B>;
        avg_pool1d(x: Float<B>, kernel_size: usize, stride: usize, padding: usize, count_include_pad: bool, ceil_mode: bool) -> Float<B>;
        avg_pool2d_backward(x: Float<B>, grad: Float<B>, kernel_size: [usize; 2], stride: [usize; 2], padding: [usize; 2], count_include_pad: bool, ceil_mode: bool) -> Float<B>;
        adaptive_avg_pool1d(x: Float<B>, output_size: usize) -> Float<B>;
        adaptive_avg_pool2d(x: Float<B>, output_size: [usize; 2]) -> Float<B>;
        adaptive_avg_pool2d_backward(x: Float<B>, grad: Float<B>) -> Float<B>;
        interpolate(x: Float<B>, output_size: [usize; 2], options: InterpolateOptions) -> Float<B>;
        interpolate_backward(x: Float<B>, grad: Float<B>, output_size: [usize; 2], options: InterpolateOptions) -> Float<B>;
        attention(query: Float<B>, key: Float<B>, value: Float<B>, mask: Option<Bool<B>>, attn_bias: Option<Float<B>>, options: AttentionModuleOptions) -> Float<B>;
        ctc_loss(log_probs: Float<B>, targets: Int<B>, input_lengths: Int<B>, target_lengths: Int<B>, blank: usize) -> Float<B>;
        rfft(signal: Float<B>, dim: usize, n: Option<usize>) -> (Float<B>, Float<B>);
        irfft(spectrum_re: Float<B>, spectrum_im: Float<B>, dim: usize, n: Option<usize>) -> Float<B>;
    }

    fn conv1d(x: Float<B>, weight: Float<B>, bias: Option<Float<B>>, options: ConvOptions<1>) -> Float<B> {
        match options.groups {
            1 => {
                let [x, weight] = [x, weight].map(captured::tensor);
                Burn::<B, C>::conv1d(x, weight, bias.map(captured::tensor), options)
            }
            _ => compositions::conv1d::<Self>(x, weight, bias, &options),
        }
    }

    fn avg_pool2d(
        x: Float<B>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        count_include_pad: bool,
        ceil_mode: bool,
    ) -> Float<B> {
        AvgPool { kernel_size, stride, padding, count_include_pad }.pool::<B, C>(captured::tensor(x), ceil_mode)
    }

    fn max_pool1d(
        x: Float<B>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> Float<B> {
        MaxPool::of_sequences(kernel_size, stride, padding, dilation, ceil_mode).maxima::<Self>(x)
    }

    fn max_pool1d_with_indices(
        x: Float<B>,
        kernel_size: usize,
        stride: usize,
        padding: usize,
        dilation: usize,
        ceil_mode: bool,
    ) -> MaxPool1dWithIndices<Self> {
        let pool = MaxPool::of_sequences(kernel_size, stride, padding, dilation, ceil_mode);
        let (output, indices) = pool.maxima_with_indices::<Self>(x);
        MaxPool1dWithIndices { output, indices }
    }

    fn max_pool2d(
        x: Float<B>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> Float<B> {
        MaxPool { sequences: false, kernel_size, stride, padding, dilation, ceil_mode }.maxima::<Self>(x)
    }

    fn max_pool2d_with_indices(
        x: Float<B>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
    ) -> MaxPool2dWithIndices<Self> {
        let pool = MaxPool { sequences: false, kernel_size, stride, padding, dilation, ceil_mode };
        let (output, indices) = pool.maxima_with_indices::<Self>(x);
        MaxPool2dWithIndices { output, indices }
    }

    fn max_pool2d_with_indices_backward(
        x: Float<B>,
        kernel_size: [usize; 2],
        stride: [usize; 2],
        padding: [usize; 2],
        dilation: [usize; 2],
        ceil_mode: bool,
        grad: Float<B>,
        indices: Int<B>,
    ) -> MaxPool2dBackward<Self> {
        let MaxPool2dBackward { x_grad } = Burn::<B, C>::max_pool2d_with_indices_backward(
            x,
            kernel_size,
            stride,
            padding,
            dilation,
            ceil_mode,
            grad,
            indices,
        );
        MaxPool2dBackward { x_grad }
    }

    fn deform_conv2d_backward(
        x: Float<B>,
        offset: Float<B>,
        weight: Float<B>,
        mask: Option<Float<B>>,
        bias: Option<Float<B>>,
        grad: Float<B>,
        options: DeformConvOptions<2>,
    ) -> DeformConv2dBackward<Self> {
        let DeformConv2dBackward { x_grad, offset_grad, weight_grad, mask_grad, bias_grad } =
            Burn::<B, C>::deform_conv2d_backward(x, offset, weight, mask, bias, grad, options);
        DeformConv2dBackward { x_grad, offset_grad, weight_grad, mask_grad, bias_grad }
    }
}

impl<B: Backend, C: CheckpointStrategy> ActivationOps<Self> for Autodiff<B, C> {
    differentiated! {
        relu(tensor: Float<B>) -> Float<B>;
        sigmoid(tensor: Float<B>) -> Float<B>;
        log_sigmoid(tensor: Float<B>) -> Float<B>;
    }

    fn gelu(tensor: Float<B>) -> Float<B> {
        compositions::gelu::<Self>(tensor)
    }
}

impl<B: Backend, C: CheckpointStrategy> QTensorOps<Self> for Autodiff<B, C> {
    inner! {
        q_device(tensor: &Quantized<B>) -> Device<B>;
        q_to_device(tensor: Quantized<B>, device: &Device<B>) -> Quantized<B>;
        q_reshape(tensor: Quantized<B>, shape: Shape) -> Quantized<B>;
        q_swap_dims(tensor: Quantized<B>, dim1: usize, dim2: usize) -> Quantized<B>;
        q_permute(tensor: Quantized<B>, axes: &[usize]) -> Quantized<B>;
        q_flip(tensor: Quantized<B>, axes: &[usize]) -> Quantized<B>;
        q_gather(dim: usize, tensor: Quantized<B>, indices: Int<B>) -> Quantized<B>;
        q_select(tensor: Quantized<B>, dim: usize, indices: Int<B>) -> Quantized<B>;
        q_slice(tensor: Quantized<B>, slices: &[Slice]) -> Quantized<B>;
        q_argmax(tensor: Quantized<B>, dim: usize, out_dtype: IntDType) -> Int<B>;
        q_argmin(tensor: Quantized<B>, dim: usize, out_dtype: IntDType) -> Int<B>;
        q_expand(tensor: Quantized<B>, shape: Shape) -> Quantized<B>;
    }

    fn q_into_data(tensor: Quantized<B>) -> impl Future<Output = Result<TensorData, ExecutionError>> + Send {
        B::q_into_data(tensor)
    }

    fn q_from_data(data: TensorData, device: &Device<B>) -> Quantized<B> {
        B::q_from_data(data, device)
    }

    fn quantize(
        tensor: Float<B>,
        scheme: &QuantScheme,
        QuantizationParametersPrimitive { scales }: QuantizationParametersPrimitive<Self>,
    ) -> Quantized<B> {
        B::quantize(tensor.primitive, scheme, QuantizationParametersPrimitive { scales: scales.primitive })
    }

    fn dequantize(tensor: Quantized<B>, dtype: FloatDType) -> Float<B> {
        <Self as AutodiffBackend>::from_inner(B::dequantize(tensor, dtype))
    }
}

impl<B: Backend, C: CheckpointStrategy> TransactionOps<Self> for Autodiff<B, C> {
    async fn tr_execute(transaction: TransactionPrimitive<Self>) -> Result<TransactionPrimitiveData, ExecutionError> {
        let floats = transaction.read_floats.into_iter().map(|x| x.primitive).collect();
        let (quantized, integers, booleans) = (transaction.read_qfloats, transaction.read_ints, transaction.read_bools);
        B::tr_execute(TransactionPrimitive::new(floats, quantized, integers, booleans)).await
    }
}
