//! Where each backend is instantiated once, so that programs need not do it again.
//!
//! At the dev profile's `opt-level = 1` rustc shares generic instantiations between crates. [`exercise`] makes this
//! crate hold one of every operation in use, for every backend, with and without differentiation; a program that
//! uses them links to these. It is never called.

use burn::tensor::{Bool, Int, Tensor, TensorData, TensorPrimitive, activation, backend::AutodiffBackend};
use burn_autodiff::Autodiff;

use crate::{
    AttendOptions, Backend, ConvolveOptions, ConvolveThen, Dropout, GruReset, KeyRanges, PoolOptions, Quantisation,
    RnnActivation, RowNormOptions, Steps,
};

/// Something to run on a backend that is chosen at run time; see [`DeviceSpec::run`](crate::DeviceSpec::run).
pub trait Program: Send {
    /// What it results in.
    type Output: Send;

    /// Runs on a device of the backend `B`.
    fn run<B: Backend>(self, device: B::Device) -> Self::Output;
}

/// Floating-point, integer and boolean operations that models use, results folded into one tensor.
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
    let gelu = B::gelu_tanh(B::gelu_erf(y.into_primitive().tensor()));
    let ones = || Tensor::<B, 1>::ones([2], device).into_primitive().tensor();
    let (normal, _) = B::row_norm(B::selu(gelu), ones(), Some(ones()), RowNormOptions { centred: true, eps: 1e-5 });
    let y = Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(normal));
    let scores = y.clone().reshape([1, 1, 2, 2]).into_primitive().tensor();
    let weights =
        Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(B::attention_weights(scores, 0.5, KeyRanges::new(true))));
    let y = y.clone() + recurrent(y);
    let y = y.clone() + layers(y);
    let y = y.clone() + large(y);
    let y = y.clone() + pictures(y);
    let y = match Dropout::new([1, 2], 0.5) {
        Some(dropout) => crate::dropout(y, dropout) + crate::random_bits::<B, 2>([1, 2], [2, 2], device).float(),
        None => y,
    };
    let (loss, _) = B::nll(y.into_primitive().tensor(), ids.reshape([4]).narrow(0, 0, 2).into_primitive());
    weights.reshape([2, 2]) + Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(loss)).unsqueeze()
}

/// Attention of an affine map.
fn layers<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let bias = Tensor::<B, 1>::zeros([2], &x.device()).into_primitive().tensor();
    let y = B::affine(x.clone().into_primitive().tensor(), x.into_primitive().tensor(), Some(bias));
    let y = Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(y)).reshape([1, 1, 2, 2]).into_primitive().tensor();
    let options = AttendOptions::new(1.0, KeyRanges::new(true));
    let (y, _) = B::attend([y.clone(), y.clone(), y], options, false);
    Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(y)).reshape([2, 2])
}

/// What LLaMA needs besides: a norm, a rotation, a gate, and a product with quantised weights.
fn large<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let float = |x: Tensor<B, 4>| x.into_primitive().tensor();
    let (x, angles) = (x.clone().reshape([1, 2, 1, 2]), x.narrow(1, 0, 1).reshape([1, 2, 1]));
    let angles = || angles.clone().into_primitive().tensor();
    let y = B::rotate(float(x), angles(), angles(), false);
    let y = Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(y)).reshape([1, 2, 2]).into_primitive().tensor();
    let y = Tensor::<B, 3>::from_primitive(TensorPrimitive::Float(B::silu_mul(y.clone(), y))).reshape([2, 2]);
    let weight = Tensor::<B, 1>::ones([2], &y.device()).into_primitive().tensor();
    let options = RowNormOptions { centred: false, eps: 1e-5 };
    let (y, _) = B::row_norm(y.into_primitive().tensor(), weight, None, options);
    let y = Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(y));
    let kind = Quantisation::Q8_0;
    let blocks = TensorData::new(vec![0u8; 2 * kind.block_bytes()], [2, kind.block_bytes()]);
    let blocks = || B::int_from_data(blocks.clone(), &y.device());
    let wide = y.clone().repeat_dim(1, kind.block_len() / 2).into_primitive().tensor();
    let product = Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(B::affine_quantised(wide, blocks(), kind)));
    let row = Tensor::<B, 2>::from_primitive(TensorPrimitive::Float(B::dequantise(blocks(), kind)));
    y + product + row.narrow(1, 0, 2)
}

/// A convolution, a batch norm and a pooling of a picture.
fn pictures<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let float = |x: Tensor<B, 4>| x.into_primitive().tensor();
    let picture = x.clone().reshape([1, 1, 2, 2]);
    let ones = || Tensor::<B, 1>::ones([1], &x.device()).into_primitive().tensor();
    let weight = || float(picture.clone().slice([0..1, 0..1, 0..1, 0..1]));
    let options = ConvolveOptions::default();
    let y = B::convolve(float(picture.clone()), weight(), options);
    let y = B::batch_norm([y, ones(), ones()], Some(float(picture.clone())), true, 1e-5).output;
    let then = ConvolveThen { scale: ones(), shift: ones(), residual: Some(float(picture.clone())), relu: true };
    let y = B::convolve_then(y, weight(), then, options);
    let y = B::max_pool(y, PoolOptions { kernel: [1, 1], stride: [1, 1], padding: [0, 0] });
    Tensor::<B, 4>::from_primitive(TensorPrimitive::Float(y)).reshape([2, 2])
}

/// Each kind of recurrent layer, one step of two sequences.
fn recurrent<B: Backend>(x: Tensor<B, 2>) -> Tensor<B, 2> {
    let float = |x: Tensor<B, 2>| x.into_primitive().tensor();
    let bias = |gates: usize| Tensor::<B, 1>::zeros([2 * gates], &x.device()).into_primitive().tensor();
    let weight = |gates: usize| float(x.clone().repeat_dim(0, gates));
    let (steps, state) = (Steps::new([2], false), || float(x.clone()));
    let (lstm, _) = B::lstm([state(), weight(4), weight(4), bias(4), state(), state()], &steps, false);
    let (gru, _) = B::gru([state(), weight(3), weight(3), bias(4), state()], GruReset::After, &steps, false);
    let rnn = B::rnn([state(), weight(1), weight(1), bias(1), state()], RnnActivation::Tanh, &steps);
    let [lstm, gru, rnn] = [lstm, gru, rnn].map(|y| Tensor::from_primitive(TensorPrimitive::Float(y)).narrow(0, 0, 2));
    lstm + gru + rnn
}

/// Forward, backward and reading back, on one device.
fn exercise<B: Backend>(device: &B::Device) -> Vec<TensorData> {
    let plain = forward::<B>(device).cast(burn::tensor::FloatDType::F32);
    let leaf = forward::<Autodiff<B>>(device).require_grad();
    let y = forward::<Autodiff<B>>(device).matmul(leaf.clone()).sum();
    let grads = <Autodiff<B> as AutodiffBackend>::backward(y.into_primitive().tensor());
    let grad = leaf.grad(&grads).unwrap_or_else(|| plain.clone());
    let leaf = || plain.clone().into_primitive().tensor();
    let numbers = Tensor::<B, 1>::ones([10], device).into_primitive().tensor();
    let [params, ..] = B::adam_step([leaf(), leaf(), leaf(), leaf()], numbers);
    let squares = Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(B::sum_of_squares(params)));
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
