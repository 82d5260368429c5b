//! Neural-network operations: activations along an axis, and Burn's and grove's modules.

use burn::tensor::{
    Bool, Tensor, activation, grid, module,
    ops::{
        AttentionModuleOptions, ConvOptions, ConvTransposeOptions, DeformConvOptions, GridSampleOptions,
        InterpolateMode, InterpolateOptions, UnfoldOptions,
    },
};
use grove_backend::{
    Backend,
    ops::{
        self, AttentionOptions, BatchNorm, Conv2dOptions, Epilogue, GruReset, KeyRanges, Pool2dOptions,
        RecurrentInputs, RnnActivation, RowNorm, Steps,
    },
};

use super::arrays::{flat, ints};

/// Functions of rows `[2, 4]`.
pub fn rows<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let m = || x[0].clone().reshape([2, 4]);
    Some(match name {
        "softmax" => flat(activation::softmax(m(), 1)),
        "softmin" => flat(activation::softmin(m(), 1)),
        "log_softmax" => flat(activation::log_softmax(m(), 1)),
        "quiet_softmax" => flat(activation::quiet_softmax(m(), 1)),
        "glu" => flat(activation::glu(m(), 1)),
        "layers::softmax" => flat(grove_layers::activation::softmax(m())),
        "ops::masked_softmax" => flat(ops::masked_softmax(m().reshape([1, 1, 2, 4]), 0.7, &KeyRanges::new(true))),
        "ops::nll" => ops::nll(m(), ints([2, 0])).0,
        "prelu" => flat(activation::prelu(m(), x[1].clone())),
        "ops::row_norm layer" | "ops::row_norm rms" => {
            let centred = name == "ops::row_norm layer";
            let bias = centred.then(|| x[2].clone());
            flat(ops::row_norm(m(), x[1].clone(), bias, RowNorm { centred, eps: 1e-5 }).0)
        }
        _ => return None,
    })
}

/// Functions of images and their weights.
pub fn images<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let a = x[0].clone();
    let image = || a.clone().reshape([1, 2, 4, 3]);
    let line = || a.clone().reshape([1, 2, 12]);
    let volume = || a.clone().reshape([1, 2, 3, 2, 2]);
    let weight = |i: usize| x[i].clone();
    let pool = || Pool2dOptions { kernel: [2, 2], stride: [2, 1], padding: [1, 0] };
    let conv = || Conv2dOptions { stride: [2, 1], padding: [1, 1], dilation: [1, 1], groups: 1 };
    Some(match name {
        "conv1d" => {
            let options = ConvOptions::new([2], [1], [1], 1);
            flat(module::conv1d(line(), weight(1).reshape([2, 2, 3]), Some(weight(2)), options))
        }
        "conv2d" => {
            let options = ConvOptions::new([2, 1], [1, 1], [1, 1], 1);
            flat(module::conv2d(image(), weight(1).reshape([2, 2, 3, 2]), Some(weight(2)), options))
        }
        "conv3d" => {
            let options = ConvOptions::new([1, 1, 1], [1, 0, 0], [1, 1, 1], 1);
            flat(module::conv3d(volume(), weight(1).reshape([1, 2, 2, 2, 1]), Some(weight(2)), options))
        }
        "conv_transpose1d" => {
            let options = ConvTransposeOptions::new([2], [1], [0], [1], 1);
            flat(module::conv_transpose1d(line(), weight(1).reshape([2, 2, 3]), Some(weight(2)), options))
        }
        "conv_transpose2d" => {
            let options = ConvTransposeOptions::new([2, 1], [1, 0], [0, 0], [1, 1], 1);
            flat(module::conv_transpose2d(image(), weight(1).reshape([2, 2, 3, 2]), Some(weight(2)), options))
        }
        "conv_transpose3d" => {
            let options = ConvTransposeOptions::new([1, 1, 1], [0, 0, 0], [0, 0, 0], [1, 1, 1], 1);
            flat(module::conv_transpose3d(volume(), weight(1).reshape([2, 1, 2, 2, 1]), Some(weight(2)), options))
        }
        "deform_conv2d" => {
            let options = DeformConvOptions::new([1, 1], [0, 0], [1, 1], 1, 1);
            let (offset, weight) = (weight(1).reshape([1, 8, 3, 2]), weight(2).reshape([1, 2, 2, 2]));
            flat(module::deform_conv2d(image(), offset, weight, None, None, options))
        }
        "avg_pool1d" => flat(module::avg_pool1d(line(), 3, 2, 1, false, false)),
        "avg_pool2d" => flat(module::avg_pool2d(image(), [2, 2], [1, 1], [1, 0], true, false)),
        "max_pool1d" => flat(module::max_pool1d(line(), 3, 2, 1, 1, false)),
        "max_pool1d_with_indices" => flat(module::max_pool1d_with_indices(line(), 3, 2, 1, 1, false).0),
        "max_pool2d" => flat(module::max_pool2d(image(), [2, 2], [2, 1], [1, 0], [1, 1], false)),
        "max_pool2d_with_indices" => {
            flat(module::max_pool2d_with_indices(image(), [2, 2], [2, 1], [1, 0], [1, 1], false).0)
        }
        "adaptive_avg_pool1d" => flat(module::adaptive_avg_pool1d(line(), 4)),
        "adaptive_avg_pool2d" => flat(module::adaptive_avg_pool2d(image(), [2, 3])),
        "interpolate nearest" => {
            flat(module::interpolate(image(), [8, 6], InterpolateOptions::new(InterpolateMode::Nearest)))
        }
        "interpolate bilinear" => {
            let options = InterpolateOptions::new(InterpolateMode::Bilinear).with_align_corners(false);
            flat(module::interpolate(image(), [8, 6], options))
        }
        "interpolate bicubic" => {
            let options = InterpolateOptions::new(InterpolateMode::Bicubic).with_align_corners(false);
            flat(module::interpolate(image(), [8, 6], options))
        }
        "interpolate lanczos3" => {
            let options = InterpolateOptions::new(InterpolateMode::Lanczos3).with_align_corners(false);
            flat(module::interpolate(image(), [8, 6], options))
        }
        "unfold4d" => flat(module::unfold4d(image(), [2, 2], UnfoldOptions::new([1, 1], [0, 0], [1, 1]))),
        "grid_sample_2d" => {
            let grid = weight(1).reshape([1, 2, 2, 2]);
            flat(image().grid_sample_2d(grid, GridSampleOptions::new(InterpolateMode::Bilinear)))
        }
        "affine_grid_2d" => flat(grid::affine_grid_2d(a.clone().narrow(0, 0, 6).reshape([1, 2, 3]), [1, 1, 3, 2])),
        "ops::conv2d" => flat(ops::conv2d(image(), weight(1).reshape([2, 2, 3, 2]), conv())),
        "ops::conv2d_fused" => {
            let epilogue = Epilogue { scale: weight(2), shift: weight(3), residual: None, relu: true };
            flat(ops::conv2d_fused(image(), weight(1).reshape([2, 2, 3, 2]), epilogue, conv()))
        }
        "ops::batch_norm" => {
            let options = BatchNorm { relu: false, eps: 1e-5 };
            flat(ops::batch_norm(image(), weight(1), weight(2), None, options).output)
        }
        "ops::max_pool2d" => flat(ops::max_pool2d(image(), pool())),
        _ => return None,
    })
}

/// Functions of sequences: attention and recurrent layers.
pub fn sequences<B: Backend>(name: &str, x: &[Tensor<B, 1>]) -> Option<Tensor<B, 1>> {
    let a = || x[0].clone();
    let heads = |i: usize| x[i].clone().reshape([1, 2, 3, 2]);
    let recurrent = |gates: usize| RecurrentInputs {
        x: a().reshape([3, 2]),
        w_ih: x[1].clone().reshape([gates * 2, 2]),
        w_hh: x[2].clone().reshape([gates * 2, 2]),
        bias: x[3].clone(),
    };
    let state = |i: usize| x[i].clone().reshape([2, 2]);
    let steps = || Steps::new([2, 1], false);
    let options = |causal: bool| AttentionOptions {
        scale: 0.7,
        visible: KeyRanges::new(causal),
        mask: None,
        bias: None,
        dropout: None,
    };
    Some(match name {
        "attention" => {
            flat(module::attention(heads(0), heads(1), heads(2), None, None, AttentionModuleOptions::default()))
        }
        "attention_fallback" => {
            let options = AttentionModuleOptions::default();
            flat(module::attention_fallback(heads(0), heads(1), heads(2), None, None, options))
        }
        "attention causal" => {
            let options = AttentionModuleOptions { is_causal: true, ..Default::default() };
            flat(module::attention(heads(0), heads(1), heads(2), None, None, options))
        }
        "linear" => flat(module::linear(a().reshape([3, 4]), x[1].clone().reshape([4, 2]), Some(x[2].clone()))),
        "embedding" => flat(module::embedding(a().reshape([4, 3]), ints([[2, 0, 2]]))),
        "ctc_loss" => module::ctc_loss(
            activation::log_softmax(a().reshape([4, 1, 3]), 2),
            ints([[1, 2]]),
            ints([4]),
            ints([2]),
            0,
        ),
        "ops::attention" => flat(ops::attention(heads(0), heads(1), heads(2), options(false))),
        "ops::attention causal" => flat(ops::attention(heads(0), heads(1), heads(2), options(true))),
        "ops::attention mask" => {
            let hidden = [[[[false, true, false], [false, false, true], [true, true, true]]]];
            let mask = Tensor::<B, 4, Bool>::from_data(hidden, &a().device());
            flat(ops::attention(heads(0), heads(1), heads(2), AttentionOptions { mask: Some(mask), ..options(false) }))
        }
        "ops::attention bias" => {
            let bias = Some(x[3].clone().reshape([1, 1, 3, 3]));
            flat(ops::attention(heads(0), heads(1), heads(2), AttentionOptions { bias, ..options(false) }))
        }
        "ops::apply_rope" => {
            let angles = |i: usize| x[i].clone().reshape([1, 3, 1]);
            flat(ops::apply_rope(a().reshape([1, 3, 2, 2]), angles(1), angles(2), false))
        }
        "ops::embedding" => flat(ops::embedding(a().reshape([4, 3]), ints([[2, 0, 2]]))),
        "ops::lstm" => flat(ops::lstm(recurrent(4), [state(4), state(5)], &steps())),
        "ops::gru" => flat(ops::gru(recurrent(3), state(4), GruReset::After, &steps())),
        "ops::rnn" => flat(ops::rnn(recurrent(1), state(4), RnnActivation::Tanh, &steps())),
        "ops::rnn relu" => flat(ops::rnn(recurrent(1), state(4), RnnActivation::Relu, &steps())),
        _ => return None,
    })
}
