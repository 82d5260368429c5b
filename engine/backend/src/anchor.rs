//! Instantiates the generic code of each backend once, so that programs need not.
//!
//! At the dev profile's `opt-level = 1` rustc shares generic instantiations between crates. [`exercise`] makes this crate
//! instantiate every operation in use, for every backend, with and without differentiation; programs link to these
//! instantiations. It is never called. At other levels nothing is shared, and `build.rs` omits this module.

use burn::tensor::{Bool, Int, Tensor, TensorData, activation, backend::AutodiffBackend};

use crate::{
    Autodiff, Backend, Conv2dOptions, Dropout, Epilogue, GeluApproximation, GruReset, InputPrecision, KeyRanges,
    Pool2dOptions, Quantization, RnnActivation, Steps,
    ops::{self, AttentionOptions, BatchNorm, RecurrentInputs, RowNorm},
};

/// Floating-point, integer and boolean operations that models use, with results folded into one tensor.
fn forward<B: Backend>(device: &B::Device) -> Tensor<B, 2> {
    let x = Tensor::<B, 2>::from_data(TensorData::from([[0.5f32, 0.25], [0.125, 1.0]]), device);
    let ids = Tensor::<B, 2, Int>::from_data(TensorData::from([[0i64, 1], [1, 0]]), device);
    let mask: Tensor<B, 2, Bool> = ids.clone().equal_elem(1).bool_or(ids.clone().lower(ids.clone().transpose()));
    let mut y = x.clone().matmul(x.clone().transpose()) + x.clone().mul_scalar(2.0).add_scalar(1.0);
    y = y.mask_fill(mask.clone(), -1.0).mask_where(mask, x.clone());
    y = activation::softmax(y.clone(), 1) * activation::log_softmax(y, 1);
    y = y.clone().mean_dim(1) + y.clone().sum_dim(0) - y.clone().max_dim(1) / y.powf_scalar(2.0).sqrt();
    y = Tensor::cat(vec![y.clone().slice([0..1, 0..2]), y.clone().narrow(0, 1, 1)], 0).exp().log().tanh().neg();
    y = y.clone().gather(1, ids.clone()).select(0, ids.clone().reshape([4]).narrow(0, 0, 2)) + y.swap_dims(0, 1);
    let wide = y.clone().reshape([1, 1, 2, 2]).permute([0, 2, 1, 3]).repeat_dim(1, 2).flatten::<2>(0, 2);
    y = wide.slice([0..2, 0..2]) + ids.clone().float() + Tensor::zeros([2, 2], device) + Tensor::ones([1, 2], device);
    let gelu = ops::gelu(ops::gelu(y, GeluApproximation::None), GeluApproximation::Tanh);
    let ones = || Tensor::<B, 1>::ones([2], device);
    let (y, _) = ops::row_norm(ops::selu(gelu), ones(), Some(ones()), RowNorm { centred: true, eps: 1e-5 });
    let weights = ops::masked_softmax(y.clone().reshape([1, 1, 2, 2]), 0.5, &KeyRanges::new(true));
    let y = y.clone() + recurrent(y);
    let y = y.clone() + layers(y);
    let y = y.clone() + large(y);
    let y = y.clone() + images(y);
    let y = match Dropout::new([1, 2], 0.5) {
        Some(dropout) => crate::dropout(y, dropout) + crate::random_bits::<B, 2>([1, 2], [2, 2], device).float(),
        None => y,
    };
    let (loss, _) = ops::nll(y, ids.reshape([4]).narrow(0, 0, 2));
    weights.reshape([2, 2]) + loss.unsqueeze()
}

/// Attention and a linear layer.
fn layers<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let bias = Tensor::<B, 1>::zeros([2], &x.device());
    let y = ops::linear(x.clone(), x, Some(bias)).reshape([1, 1, 2, 2]);
    ops::attention(y.clone(), y.clone(), y, AttentionOptions::new(1.0, KeyRanges::new(true))).reshape([2, 2])
}

/// Operations of LLaMA: normalisation, rotary embedding, gating, and a product with quantized weights.
fn large<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let (x, angles) = (x.clone().reshape([1, 2, 1, 2]), x.narrow(1, 0, 1).reshape([1, 2, 1]));
    let y = ops::apply_rope(x, angles.clone(), angles, false).reshape([1, 2, 2]);
    let y = ops::swiglu(y.clone(), y).reshape([2, 2]);
    let weight = Tensor::<B, 1>::ones([2], &y.device());
    let (y, _) = ops::row_norm(y, weight, None, RowNorm { centred: false, eps: 1e-5 });
    let format = Quantization::Q8_0;
    let blocks = TensorData::new(vec![0u8; 2 * format.block_bytes()], [2, format.block_bytes()]);
    let blocks = Tensor::<B, 2, Int>::from_primitive(B::int_from_data(blocks, &y.device()));
    let rows = y.clone().repeat_dim(1, format.block_len() / 2);
    let product = ops::quantized_linear(rows, blocks.clone(), format, InputPrecision::Int8);
    y + product + ops::dequantize(blocks, format).narrow(1, 0, 2)
}

/// Convolution, batch normalisation and pooling of an image.
fn images<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let image = x.clone().reshape([1, 1, 2, 2]);
    let ones = || Tensor::<B, 1>::ones([1], &x.device());
    let weight = || image.clone().slice([0..1, 0..1, 0..1, 0..1]);
    let options = Conv2dOptions::default();
    let y = ops::conv2d(image.clone(), weight(), options);
    let y = ops::batch_norm(y, ones(), ones(), Some(image.clone()), BatchNorm { relu: true, eps: 1e-5 }).output;
    let epilogue = Epilogue { scale: ones(), shift: ones(), residual: Some(image.clone()), relu: true };
    let y = ops::conv2d_fused(y, weight(), epilogue, options);
    ops::max_pool2d(y, Pool2dOptions { kernel: [1, 1], stride: [1, 1], padding: [0, 0] }).reshape([2, 2])
}

/// One step of two sequences through each kind of recurrent layer.
fn recurrent<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let inputs = |gates: usize, bias: usize| RecurrentInputs {
        x: x.clone(),
        w_ih: x.clone().repeat_dim(0, gates),
        w_hh: x.clone().repeat_dim(0, gates),
        bias: Tensor::zeros([2 * bias], &x.device()),
    };
    let steps = Steps::new([2], false);
    let lstm = ops::lstm(inputs(4, 4), [x.clone(), x.clone()], &steps);
    let gru = ops::gru(inputs(3, 4), x.clone(), GruReset::After, &steps);
    let rnn = ops::rnn(inputs(1, 1), x.clone(), RnnActivation::Tanh, &steps);
    let [lstm, gru, rnn] = [lstm, gru, rnn].map(|y| y.narrow(0, 0, 2));
    lstm + gru + rnn
}

/// Forward pass, backward pass and readback on one device.
fn exercise<B: Backend>(device: &B::Device) -> Vec<TensorData> {
    let plain = forward::<B>(device).cast(burn::tensor::FloatDType::F32);
    let leaf = forward::<Autodiff<B>>(device).require_grad();
    let y = forward::<Autodiff<B>>(device).matmul(leaf.clone()).sum();
    let grads = <Autodiff<B> as AutodiffBackend>::backward(y.into_primitive().tensor());
    let grad = leaf.grad(&grads).unwrap_or_else(|| plain.clone());
    let leaf = || plain.clone().into();
    let step = ops::adam_step::<B>(vec![[leaf(), leaf(), leaf(), leaf()]], Tensor::ones([10], device));
    let squares = ops::sum_of_squares::<B>(step.into_iter().flatten().collect()).unwrap_or_else(|| plain.clone().sum());
    vec![plain.into_data(), grad.into_data(), squares.into_data()]
}

/// Keeps one instantiation of [`exercise`] for each backend in this crate's object code.
#[doc(hidden)]
pub fn anchors() -> Vec<Vec<TensorData>> {
    vec![
        #[cfg(feature = "flex")]
        exercise::<burn_flex::Flex>(&Default::default()),
        #[cfg(feature = "candle")]
        exercise::<crate::Candle>(&Default::default()),
        #[cfg(feature = "cuda")]
        exercise::<burn_cuda::Cuda>(&Default::default()),
        #[cfg(feature = "wgpu")]
        exercise::<burn_wgpu::Wgpu>(&Default::default()),
        #[cfg(feature = "rocm")]
        exercise::<burn_rocm::Rocm>(&Default::default()),
    ]
}
