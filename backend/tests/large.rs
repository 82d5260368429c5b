//! What large language models need: weights of 16 bits and quantised ones, rotations, gates, RMS norms. Kernels and exact
//! backward passes against the same mathematics written with Burn's operations, which Burn differentiates.
#![recursion_limit = "256"]
#![cfg(all(feature = "flex", feature = "candle"))]

use against::{compare, flat, float, numbers, primitive};
use burn::tensor::{DType, Int, Tensor, TensorData, activation};
use grove_backend::{Autodiff, Backend, Quantisation};

mod against;
#[macro_use]
mod common;

/// Kernels of f32 with weights of 16 bits, in both layouts, against the product with the same weights widened.
fn narrow_weights<B: Backend>(device: B::Device) {
    for dtype in [DType::F16, DType::BF16] {
        for (rows, i, o) in [(1, 1, 1), (1, 40, 33), (5, 7, 50), (37, 300, 20)] {
            for turned in [false, true] {
                let shape = if turned { [o, i] } else { [i, o] };
                let weight = numbers::<B, 2>(shape, 2, &device).cast(dtype);
                let weight = if turned { weight.swap_dims(0, 1) } else { weight };
                let wide = Tensor::<Autodiff<B>, 2>::from_inner(weight.clone().cast(DType::F32));
                let weight = Tensor::<Autodiff<B>, 2>::from_inner(weight);
                let inputs = [numbers::<B, 1>([rows * i], 1, &device), numbers::<B, 1>([o], 3, &device)];
                let ours = |x: &[Tensor<Autodiff<B>, 1>]| {
                    let bias = Some(primitive(x[1].clone()));
                    let input = primitive(x[0].clone().reshape([rows, i]));
                    flat(float::<Autodiff<B>, 2>(<Autodiff<B>>::affine(input, primitive(weight.clone()), bias)))
                };
                let theirs = |x: &[Tensor<Autodiff<B>, 1>]| {
                    flat(x[0].clone().reshape([rows, i]).matmul(wide.clone()) + x[1].clone().reshape([1, o]))
                };
                compare(&format!("{dtype:?} {rows} {i} {o}, turned {turned}"), &inputs, &ours, &theirs);
            }
        }
    }
}

/// Blocks of any bytes whose scales are small numbers.
fn blocks<B: Backend>(kind: Quantisation, rows: usize, columns: usize, device: &B::Device) -> Tensor<B, 2, Int> {
    let bytes = columns / kind.block_len() * kind.block_bytes();
    let hash = |i: u64| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    let mut data: Vec<u8> = (0..(rows * bytes) as u64).map(hash).collect();
    // Scales are f16: at the beginning of a block, in some formats two of them, in Q6_K at its end.
    let scales: &[usize] = match kind {
        Quantisation::Q6K => &[208],
        Quantisation::Q4_0 | Quantisation::Q5_0 | Quantisation::Q8_0 => &[0],
        _ => &[0, 2],
    };
    for block in data.chunks_exact_mut(kind.block_bytes()) {
        for &at in scales {
            block[at + 1] = 0x14 | block[at + 1] & 0x83; // about 1e-3, of either sign
        }
    }
    Tensor::from_primitive(B::int_from_data(TensorData::new(data, [rows, bytes]), device))
}

fn quantised_weights<B: Backend>(device: B::Device) {
    for kind in Quantisation::ALL {
        for (rows, outputs, times) in [(1, 1, 1), (1, 37, 3), (3, 20, 2), (40, 50, 2)] {
            let columns = times * kind.block_len();
            let weight = blocks::<B>(kind, outputs, columns, &device).into_primitive();
            let wide = float::<B, 2>(B::dequantise(weight.clone(), kind));
            assert_eq!(wide.dims(), [outputs, columns]);
            let wide = Tensor::<Autodiff<B>, 2>::from_inner(wide);
            let inputs = [numbers::<B, 1>([rows * columns], 1, &device)];
            let ours = |x: &[Tensor<Autodiff<B>, 1>]| {
                let input = primitive(x[0].clone().reshape([1, rows, columns]));
                flat(float::<Autodiff<B>, 3>(<Autodiff<B>>::affine_quantised(input, weight.clone(), kind)))
            };
            let theirs = |x: &[Tensor<Autodiff<B>, 1>]| {
                flat(x[0].clone().reshape([rows, columns]).matmul(wide.clone().transpose()))
            };
            compare(&format!("{kind} {rows} {columns} {outputs}"), &inputs, &ours, &theirs);
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
                let (cos, sin) = (primitive(cos.clone()), primitive(sin.clone()));
                let x = primitive(x[0].clone().reshape([b, t, n_head, d]));
                flat(float::<Autodiff<B>, 4>(<Autodiff<B>>::rotate(x, cos, sin, interleaved)))
            };
            // As complex numbers.
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
            let [gate, up] = [0, 1].map(|i| primitive(x[i].clone().reshape([b, t, size])));
            flat(float::<Autodiff<B>, 3>(<Autodiff<B>>::silu_mul(gate, up)))
        };
        let theirs = |x: &[Tensor<Autodiff<B>, 1>]| activation::sigmoid(x[0].clone()) * x[0].clone() * x[1].clone();
        compare(&format!("{:?}", [b, t, size]), &inputs, &ours, &theirs);
    }
}

on_each_backend!(narrow_weights, quantised_weights, rotations, gates);
