//! Fully masked queries: their outputs and gradients are zeros on every path.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::{numbers, values};
use crate::common;
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use grove_backend::{AttentionOptions, Autodiff, Backend, Dropout, KeyRanges, ops};

/// Attention in f64, in which fully masked queries give zeros, and its gradients for a gradient of the output.
struct Reference {
    y: Vec<f64>,
    grads: [Vec<f64>; 3],
}

struct Sizes {
    b: usize,
    heads: usize,
    kv: usize,
    t: usize,
    s: usize,
    d: usize,
}

impl Reference {
    fn new(
        size: &Sizes,
        [q, k, v, dy]: [&[f64]; 4],
        factors: Option<&[f64]>,
        scale: f64,
        seen: impl Fn([usize; 4]) -> bool,
    ) -> Self {
        let &Sizes { b, heads, kv, t, s, d } = size;
        let mut y = vec![0.0; q.len()];
        let mut grads = [vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        for (i, head, query) in (0..b * heads * t).map(|n| (n / (heads * t), n / t % heads, n % t)) {
            let row = ((i * heads + head) * t + query) * d;
            let key_at = |key: usize| ((i * kv + head * kv / heads) * s + key) * d;
            let keys: Vec<usize> = (0..s).filter(|&key| seen([i, head, query, key])).collect();
            let e = |key: usize| (scale * dot(&q[row..row + d], &k[key_at(key)..][..d])).exp();
            let sum: f64 = keys.iter().map(|&key| e(key)).sum();
            let factor = |key: usize| factors.map_or(1.0, |f| f[((i * heads + head) * t + query) * s + key]);
            let slope = |key: usize| factor(key) * dot(&dy[row..row + d], &v[key_at(key)..][..d]);
            let mean: f64 = keys.iter().map(|&key| e(key) / sum * slope(key)).sum();
            for &key in &keys {
                let (p, at) = (e(key) / sum, key_at(key));
                let ds = scale * p * (slope(key) - mean);
                for c in 0..d {
                    y[row + c] += p * factor(key) * v[at + c];
                    grads[0][row + c] += ds * k[at + c];
                    grads[1][at + c] += ds * q[row + c];
                    grads[2][at + c] += p * factor(key) * dy[row + c];
                }
            }
        }
        Self { y, grads }
    }
}

fn attention<B: Backend>(device: B::Device) {
    let types = [(DType::F32, 1e-5), (DType::F16, 4e-3), (DType::BF16, 3e-2)];
    for (dtype, tolerance) in types.into_iter().filter(|(dtype, _)| B::computes_in(&device, *dtype)) {
        for [b, heads, kv, t, s, d] in
            [[2, 2, 2, 5, 5, 4], [2, 4, 2, 3, 7, 8], [2, 4, 1, 1, 6, 4], [1, 2, 2, 1, 1, 4], [2, 2, 2, 6, 2, 4]]
        {
            for case in 0..12 {
                let size = Sizes { b, heads, kv, t, s, d };
                // More queries than keys: with causal attention the first queries attend to nothing.
                let causal = case % 2 == 1;
                // Masked for all queries, for some queries of each sequence, or for all queries of one sequence, as if it
                // consisted of padding.
                let kind = case / 2 % 3;
                let hidden = |[i, head, query, key]: [usize; 4]| match kind {
                    0 => true,
                    1 => query % 2 == 0 || (i + head + key) % 3 == 0,
                    _ => i == 0 || key == s - 1,
                };
                let of_head = kind == 1;
                let masked = [b, if of_head { heads } else { 1 }, t, s];
                let mask: Vec<i64> = (0..masked.iter().product::<usize>())
                    .map(|n: usize| {
                        let at = [n / (masked[1] * t * s), n / (t * s) % masked[1], n / s % t, n % s];
                        i64::from(hidden(at))
                    })
                    .collect();
                let mask = Tensor::<B, 4, Int>::from_data(TensorData::new(mask, masked), &device).equal_elem(1);
                let drops = case >= 6;
                let dropout = Dropout::new([9, t as u32], 0.3).filter(|_| drops);
                let factors = dropout.map(|dropout| {
                    let factors = TensorData::new(dropout.factors(b * heads * t * s), [b * heads * t * s]);
                    values(Tensor::<B, 1>::from_data(factors, &device).cast(dtype))
                });
                let inputs = [[heads, t], [kv, s], [kv, s]]
                    .map(|[heads, n]| numbers::<B, 4>([b, heads, n, d], n as u64, &device).mul_scalar(2.0).cast(dtype));
                let dy = numbers::<B, 4>([b, heads, t, d], 5, &device).cast(dtype);
                let given = inputs.clone().map(values);
                let reference = Reference::new(
                    &size,
                    [&given[0], &given[1], &given[2], &values(dy.clone())],
                    factors.as_deref(),
                    0.4,
                    |at @ [.., query, key]| !hidden(at) && (!causal || key + t <= query + s),
                );
                let what = format!("{dtype:?} {:?}, case {case}", [b, heads, kv, t, s, d]);
                let close = |part: &str, found: Vec<f64>, expected: &[f64]| {
                    let (apart, largest) = common::distance(&found, expected);
                    assert!(apart <= tolerance * largest.max(1.0), "{what}, {part}: apart by {apart} of {largest}");
                };
                let visible = KeyRanges::new(causal);
                let options = AttentionOptions { scale: 0.4, visible, mask: Some(mask.clone()), bias: None, dropout };
                let [q, k, v] = inputs.clone();
                let y = values(ops::attention(q, k, v, options));
                // Exactly zero, not just small.
                assert!(kind != 0 || y.iter().all(|&y| y == 0.0), "{what}");
                close("alone", y, &reference.y);

                let leaves = inputs.map(|x| Tensor::<Autodiff<B>, 4>::from_inner(x).require_grad());
                let (visible, mask) = (KeyRanges::new(causal), Tensor::<Autodiff<B>, 4, Bool>::from_inner(mask));
                let options = AttentionOptions { scale: 0.4, visible, mask: Some(mask), bias: None, dropout };
                let [q, k, v] = leaves.clone();
                let y = ops::attention(q, k, v, options);
                close("under differentiation", values(y.clone().inner()), &reference.y);
                let grads = (y * Tensor::<Autodiff<B>, 4>::from_inner(dy)).cast(DType::F32).sum().backward();
                for ((part, leaf), expected) in ["dq", "dk", "dv"].into_iter().zip(&leaves).zip(&reference.grads) {
                    let grad = values(leaf.grad(&grads).expect("a gradient"));
                    assert!(kind != 0 || grad.iter().all(|&grad| grad == 0.0), "{what}, {part}");
                    close(part, grad, expected);
                }
            }
        }
    }
}

/// A row of scores that are all minus infinity, next to a row of others.
fn weights<B: Backend>(device: B::Device) {
    for dtype in [DType::F32, DType::F16, DType::BF16].into_iter().filter(|dtype| B::computes_in(&device, *dtype)) {
        let row = [0.5f32, f32::NEG_INFINITY, 0.5, f32::NEG_INFINITY];
        let scores = [[f32::NEG_INFINITY; 4], row].concat();
        let scores = Tensor::<B, 4>::from_data(TensorData::new(scores, [1, 1, 2, 4]), &device).cast(dtype);
        let leaf = Tensor::<Autodiff<B>, 4>::from_inner(scores).require_grad();
        let y = ops::masked_softmax(leaf.clone(), 0.5, &KeyRanges::default());
        let slopes = Tensor::<Autodiff<B>, 4>::from_data([[[[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 4.0]]]], &device);
        let grads = (y.clone().cast(DType::F32) * slopes).sum().backward();
        assert_eq!(values(y.inner()), [0.0, 0.0, 0.0, 0.0, 0.5, 0.0, 0.5, 0.0]);
        // The mean of the gradients is 2: 0.5 * 0.5 * (1 - 2), and so on.
        let grad = values(leaf.grad(&grads).expect("a gradient"));
        assert_eq!(grad, [0.0, 0.0, 0.0, 0.0, -0.25, 0.0, 0.25, 0.0]);
    }
}

on_each_backend!(attention, weights);
