//! Operations of large language models: 16-bit and quantized weights, rotary embeddings, gates, RMS norms, decoding with a
//! cache. Kernels and exact backward passes against the same mathematics composed of Burn's operations, which Burn
//! differentiates.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::{compare, flat, numbers};
use crate::common;
use burn::tensor::{Bool, DType, Int, Tensor, TensorData, activation};
use grove_backend::{
    AttentionOptions, Autodiff, Backend, InputPrecision, KeyRanges, Quantization,
    ops::{self, Attention, Values},
};

/// f32 kernels with 16-bit weights, in both layouts, against the product with the same weights widened.
fn narrow_weights<B: Backend>(device: B::Device) {
    for dtype in [DType::F16, DType::BF16].into_iter().filter(|dtype| B::supports_dtype(&device, *dtype)) {
        for (rows, i, o) in [(1, 1, 1), (1, 40, 33), (5, 7, 50), (37, 300, 20)] {
            for turned in [false, true] {
                let shape = if turned { [o, i] } else { [i, o] };
                let weight = numbers::<B, 2>(shape, 2, &device).cast(dtype);
                let weight = if turned { weight.swap_dims(0, 1) } else { weight };
                let wide = Tensor::<Autodiff<B>, 2>::from_inner(weight.clone().cast(DType::F32));
                let weight = Tensor::<Autodiff<B>, 2>::from_inner(weight);
                let inputs = [numbers::<B, 1>([rows * i], 1, &device), numbers::<B, 1>([o], 3, &device)];
                let ours = |x: &[Tensor<Autodiff<B>, 1>]| {
                    flat(ops::linear(x[0].clone().reshape([rows, i]), weight.clone(), Some(x[1].clone())))
                };
                let theirs = |x: &[Tensor<Autodiff<B>, 1>]| {
                    flat(x[0].clone().reshape([rows, i]).matmul(wide.clone()) + x[1].clone().reshape([1, o]))
                };
                compare(&format!("{dtype:?} {rows} {i} {o}, turned {turned}"), &inputs, &ours, &theirs);
            }
        }
    }
}

/// Returns blocks of arbitrary bytes with small scales.
fn blocks<B: Backend>(kind: Quantization, rows: usize, columns: usize, device: &B::Device) -> Tensor<B, 2, Int> {
    let bytes = columns / kind.block_len() * kind.block_bytes();
    let hash = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    let mut data: Vec<u8> = (0..(rows * bytes) as u64).map(hash).collect();
    // Scales are f16: at the start of a block (two of them in some formats), or at its end in Q6_K.
    let scales: &[usize] = match kind {
        Quantization::Q6K => &[208],
        Quantization::Q4_0 | Quantization::Q5_0 | Quantization::Q8_0 => &[0],
        _ => &[0, 2],
    };
    for block in data.chunks_exact_mut(kind.block_bytes()) {
        for &at in scales {
            block[at + 1] = 0x14 | block[at + 1] & 0x83; // about 1e-3, of either sign
        }
    }
    Tensor::from_primitive(B::int_from_data(TensorData::new(data, [rows, bytes]), device))
}

/// Rounds values to 8 bits in blocks of 32; the derivative is that of the identity.
fn rounded<B: Backend>(x: Tensor<Autodiff<B>, 1>) -> Tensor<Autodiff<B>, 1> {
    let mut values: Vec<f32> = x.clone().into_data().iter().collect();
    for block in values.chunks_mut(32) {
        let scale = block.iter().fold(0f32, |largest, x| largest.max(x.abs())) / 127.0;
        block.iter_mut().for_each(|x| *x = (*x * scale.recip()).round_ties_even() * scale);
    }
    let rounded = Tensor::<B, 1>::from_data(TensorData::from(&values[..]), &x.device());
    let error = rounded - x.clone().inner();
    x + Tensor::from_inner(error)
}

fn quantized_weights<B: Backend>(device: B::Device) {
    for (kind, precision) in Quantization::ALL
        .into_iter()
        .flat_map(|kind| [InputPrecision::F32, InputPrecision::Int8].map(|precision| (kind, precision)))
    {
        for (rows, outputs, times) in [(1, 1, 1), (1, 37, 3), (3, 20, 2), (40, 50, 2)] {
            let columns = times * kind.block_len();
            let weight = blocks::<B>(kind, outputs, columns, &device);
            let wide = ops::dequantize(weight.clone(), kind);
            assert_eq!(wide.dims(), [outputs, columns]);
            let wide = Tensor::<Autodiff<B>, 2>::from_inner(wide);
            let inputs = [numbers::<B, 1>([rows * columns], 1, &device)];
            let ours = |x: &[Tensor<Autodiff<B>, 1>]| {
                let blocks = Tensor::<Autodiff<B>, 2, Int>::from_inner(weight.clone());
                flat(ops::quantized_linear(x[0].clone().reshape([1, rows, columns]), blocks, kind, precision))
            };
            let theirs = |x: &[Tensor<Autodiff<B>, 1>]| {
                let x = match precision {
                    InputPrecision::F32 => x[0].clone(),
                    InputPrecision::Int8 => rounded(x[0].clone()),
                };
                flat(x.reshape([rows, columns]).matmul(wide.clone().transpose()))
            };
            compare(&format!("{kind} {precision:?} {rows} {columns} {outputs}"), &inputs, &ours, &theirs);
        }
    }
}

fn rotations<B: Backend>(device: B::Device) {
    for ([b, t, n_head, d], rows) in [([1, 1, 1, 2], 1), ([2, 5, 3, 6], 1), ([2, 5, 3, 6], 2), ([3, 70, 4, 16], 1)] {
        let angles = numbers::<Autodiff<B>, 3>([rows, t, d / 2], 5, &device).mul_scalar(3.0);
        let (cos, sin) = (angles.clone().cos(), angles.sin());
        for interleaved in [false, true] {
            let inputs = [numbers::<B, 1>([b * t * n_head * d], 1, &device)];
            let ours = |x: &[Tensor<Autodiff<B>, 1>]| {
                let x = x[0].clone().reshape([b, t, n_head, d]);
                flat(ops::apply_rope(x, cos.clone(), sin.clone(), interleaved))
            };
            // With complex arithmetic.
            let theirs = |x: &[Tensor<Autodiff<B>, 1>]| {
                let x = x[0].clone();
                let pairs = match interleaved {
                    true => x.reshape([b * t * n_head, d / 2, 2]),
                    false => x.reshape([b * t * n_head, 2, d / 2]).swap_dims(1, 2),
                };
                let part = |i: usize| pairs.clone().narrow(2, i, 1).reshape([b, t, n_head, d / 2]);
                let of = |x: &Tensor<Autodiff<B>, 3>| x.clone().unsqueeze_dim::<4>(2);
                let (real, imaginary) =
                    (part(0) * of(&cos) - part(1) * of(&sin), part(0) * of(&sin) + part(1) * of(&cos));
                let turned = Tensor::cat(vec![real.unsqueeze_dim::<5>(4), imaginary.unsqueeze_dim(4)], 4);
                let turned = turned.reshape([b * t * n_head, d / 2, 2]);
                flat(if interleaved { turned } else { turned.swap_dims(1, 2) })
            };
            compare(&format!("{:?} {rows}, {interleaved}", [b, t, n_head, d]), &inputs, &ours, &theirs);
        }
    }
}

fn gates<B: Backend>(device: B::Device) {
    for [b, t, size] in [[1, 1, 1], [2, 3, 7], [2, 50, 300]] {
        let inputs = [1, 2].map(|seed| numbers::<B, 1>([b * t * size], seed, &device).mul_scalar(6.0));
        let ours = |x: &[Tensor<Autodiff<B>, 1>]| {
            let [gate, up] = [0, 1].map(|i| x[i].clone().reshape([b, t, size]));
            flat(ops::swiglu(gate, up))
        };
        let theirs = |x: &[Tensor<Autodiff<B>, 1>]| activation::sigmoid(x[0].clone()) * x[0].clone() * x[1].clone();
        compare(&format!("{:?}", [b, t, size]), &inputs, &ours, &theirs);
    }
}

/// Attention of few queries without a backward pass, against attention that retains its weights.
fn decoding<B: Backend>(device: B::Device) {
    for ([b, n_head, n_kv_head, t, s, d], causal, masked) in [
        ([1, 1, 1, 1, 1, 1], true, None),
        ([2, 3, 3, 1, 70, 16], true, None),
        ([1, 4, 2, 1, 600, 20], false, Some([1, 1, 1])),
        ([2, 4, 2, 5, 300, 64], true, None),
        ([2, 6, 2, 3, 40, 80], false, Some([2, 1, 3])),
        ([2, 2, 1, 8, 9, 256], true, Some([2, 2, 1])),
    ] {
        // The head axis follows the positions in memory, as in layers.
        let heads = |n: usize, len: usize, seed: u64| numbers::<B, 4>([b, len, n, d], seed, &device).swap_dims(1, 2);
        let [q, k, v] = [heads(n_head, t, 1), heads(n_kv_head, s, 2), heads(n_kv_head, s, 3)];
        let hidden = masked.map(|[b, n_head, t]| {
            let hidden = numbers::<B, 4>([b, n_head, t, s], 4, &device).greater_elem(0.0);
            // One query of the last sequence is fully masked.
            let all = Tensor::<B, 4, Bool>::full([1, 1, 1, s], true, &device);
            hidden.slice_assign([b - 1..b, 0..1, t - 1..t, 0..s], all)
        });
        let run = |keep: bool| {
            let y = if keep {
                let attention = Attention { scale: 0.3, causal, window: None, dropout: None };
                let inputs = Values::default().with(q.clone()).with(k.clone()).with(v.clone());
                let none = None::<Tensor<B, 1, Int>>;
                let inputs = inputs.with_optional(none.clone()).with_optional(none).with_optional(hidden.clone());
                B::run(&attention.into(), inputs, &[true; 3]).outputs.take_tensor::<4>(0)
            } else {
                let options =
                    AttentionOptions { mask: hidden.clone(), ..AttentionOptions::new(0.3, KeyRanges::new(causal)) };
                ops::attention(q.clone(), k.clone(), v.clone(), options)
            };
            y.into_data().iter::<f64>().collect::<Vec<_>>()
        };
        let (apart, largest) = common::distance(&run(false), &run(true));
        assert!(
            apart <= 1e-5 * largest.max(1.0),
            "{:?}: apart by {apart} of {largest}",
            [b, n_head, n_kv_head, t, s, d]
        );
    }
}

/// Positions are written at the right index, the rest of the buffer is unchanged, and a shared buffer is not modified.
fn caches<B: Backend>(device: B::Device) {
    let (shape, seen) = ([2, 3, 40, 5], 2..21);
    for (t, at) in [(1, 20), (4, 17), (7, 33)] {
        let buffers = [1, 2].map(|seed| numbers::<B, 4>(shape, seed, &device));
        let new = [3, 4].map(|seed| numbers::<B, 4>([2, t, 3, 5], seed, &device).swap_dims(1, 2));
        let data = |x: Tensor<B, 4>| x.into_data().iter::<f32>().collect::<Vec<_>>();
        let before = buffers.clone().map(data);
        let expected: Vec<_> = buffers
            .clone()
            .into_iter()
            .zip(new.clone())
            .map(|(buffer, new)| buffer.slice_assign([0..2, 0..3, at..at + t, 0..5], new))
            .collect();
        let [written, visible] = ops::update_cache(buffers.clone(), new, at, seen.clone());
        for (i, (written, visible)) in written.into_iter().zip(visible).enumerate() {
            assert_eq!(data(written), data(expected[i].clone()), "{t} at {at}");
            let part = expected[i].clone().slice([0..2, 0..3, seen.clone(), 0..5]);
            assert_eq!(data(visible), data(part), "{t} at {at}");
        }
        assert_eq!(buffers.map(data), before, "{t} at {at}");
    }
}

/// Parts of an axis, at offsets for which a device supports views, and at others.
fn parts<B: Backend>(device: B::Device) {
    for (shape, count, axis) in
        [([2, 3, 6, 4], 3, 2), ([1, 2, 3, 256], 2, 3), ([1, 1, 6, 128], 3, 2), ([4, 1, 2, 7], 4, 0)]
    {
        let x = numbers::<B, 4>(shape, 1, &device);
        let size = shape[axis] / count;
        for (i, part) in ops::chunk(x.clone(), count, axis).into_iter().enumerate() {
            let expected = x.clone().narrow(axis, i * size, size).mul_scalar(2.0);
            let part = part.mul_scalar(2.0);
            assert_eq!(
                part.into_data().iter::<f32>().collect::<Vec<_>>(),
                expected.into_data().iter::<f32>().collect::<Vec<_>>()
            );
        }
    }
}

on_each_backend!(narrow_weights, quantized_weights, rotations, gates, decoding, caches, parts);
