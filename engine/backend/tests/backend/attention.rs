//! Attention and linear layers: kernels and exact backward passes against the same mathematics composed of Burn's operations,
//! which Burn differentiates. (Comparisons with torch are in the crates of the layers.)
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::{compare, flat, numbers};
use crate::common;
use burn::tensor::{Bool, Int, Tensor, TensorData, activation};
use grove_backend::{AttentionOptions, Autodiff, Backend, Dropout, KeyRanges, ops};

fn linear<B: Backend>(device: B::Device) {
    for ([a, b, i, o], turned) in [
        ([1, 1, 1, 1], false),
        ([2, 5, 3, 7], false),
        ([1, 1, 9, 1], true),
        ([3, 31, 40, 33], true),
        ([4, 1, 6, 5], true),
        // The bias gradient is summed in parts.
        ([2, 70, 4, 35], false),
    ] {
        let inputs = [
            numbers::<B, 1>([a * b * i], 1, &device),
            numbers::<B, 1>([i * o], 2, &device),
            numbers::<B, 1>([o], 3, &device),
        ];
        // Weights in PyTorch's layout, and non-contiguous inputs.
        let weight = |x: Tensor<Autodiff<B>, 1>| match turned {
            true => x.reshape([o, i]).swap_dims(0, 1),
            false => x.reshape([i, o]),
        };
        let rows = |x: Tensor<Autodiff<B>, 1>| match turned {
            true => x.reshape([b, a, i]).swap_dims(0, 1),
            false => x.reshape([a, b, i]),
        };
        let ours = |x: &[Tensor<Autodiff<B>, 1>]| {
            flat(ops::linear(rows(x[0].clone()), weight(x[1].clone()), x.get(2).cloned()))
        };
        let theirs = |x: &[Tensor<Autodiff<B>, 1>]| {
            let y = rows(x[0].clone()).reshape([a * b, i]).matmul(weight(x[1].clone()));
            flat(if x.len() > 2 { y + x[2].clone().reshape([1, o]) } else { y })
        };
        compare(&format!("linear {:?}", [a, b, i, o]), &inputs, &ours, &theirs);
        compare(&format!("linear {:?} without bias", [a, b, i, o]), &inputs[..2], &ours, &theirs);
    }
}

/// Returns a mask that is true if `f` of sequence, query and key is true.
fn mask<B: Backend>(
    [b, t, s]: [usize; 3],
    device: &B::Device,
    f: impl Fn(usize, usize, usize) -> bool,
) -> Tensor<B, 4, Bool> {
    let hidden: Vec<i64> = (0..b * t * s).map(|i| i64::from(f(i / (t * s), i / s % t, i % s))).collect();
    Tensor::<B, 4, Int>::from_data(TensorData::new(hidden, [b, 1, t, s]), device).equal_elem(1)
}

fn attention<B: Backend>(device: B::Device) {
    for [b, n_head, n_kv_head, t, s, d] in [
        [1, 1, 1, 1, 1, 1],
        [2, 3, 3, 1, 6, 4],
        [2, 2, 2, 7, 7, 5],
        [1, 3, 3, 19, 35, 8],
        // Key and value heads shared by several query heads.
        [2, 4, 2, 1, 6, 4],
        [2, 6, 2, 9, 9, 5],
        [1, 3, 1, 19, 35, 8],
    ] {
        let inputs = [(n_head, t), (n_kv_head, s), (n_kv_head, s)]
            .map(|(heads, positions)| numbers::<B, 1>([b * heads * positions * d], positions as u64, &device));
        let of_queries = mask::<Autodiff<B>>([b, t, s], &device, |i, query, key| (i + query + key) % 3 == 1 && key > 0);
        let of_keys = mask::<Autodiff<B>>([b, 1, s], &device, |i, _, key| key > i + s / 2);
        let dropout = Dropout::new([9, 2], 0.4).expect("a rate above 0");
        let factors = TensorData::new(dropout.factors(b * n_head * t * s), [b, n_head, t, s]);
        let factors = Tensor::<Autodiff<B>, 4>::from_data(factors, &device);
        // Heads in the layout of a projection, or of a cache.
        let view = |x: &Tensor<Autodiff<B>, 1>, [heads, positions]: [usize; 2], projected: bool| match projected {
            true => x.clone().reshape([b, positions, heads, d]).swap_dims(1, 2),
            false => x.clone().reshape([b, heads, positions, d]),
        };
        let repeated = |x: Tensor<Autodiff<B>, 4>| {
            let each = x.unsqueeze_dim::<5>(2).repeat_dim(2, n_head / n_kv_head);
            each.reshape([b, n_head, s, d])
        };
        for case in 0..24 {
            let (causal, projected) = (case % 2 == 1, case / 2 % 2 == 1);
            let hidden = [None, Some(&of_queries), Some(&of_keys)][case / 4 % 3].cloned();
            let dropout = (case >= 12).then_some(dropout);
            let factors = dropout.map(|_| factors.clone());
            let views = |x: &[Tensor<Autodiff<B>, 1>]| {
                let sizes = [[n_head, t], [n_kv_head, s], [n_kv_head, s]];
                [0, 1, 2].map(|i| view(&x[i], sizes[i], projected))
            };
            let ours = |x: &[Tensor<Autodiff<B>, 1>]| {
                let visible = KeyRanges::new(causal);
                let options = AttentionOptions { scale: 0.3, visible, mask: hidden.clone(), bias: None, dropout };
                let [q, k, v] = views(x);
                flat(ops::attention(q, k, v, options).swap_dims(1, 2))
            };
            let theirs = |x: &[Tensor<Autodiff<B>, 1>]| {
                let [q, k, v] = views(x);
                let (k, v) = (repeated(k), repeated(v));
                let scores = q.matmul(k.swap_dims(2, 3)).mul_scalar(0.3);
                let size = scores.dims();
                let scores = match &hidden {
                    Some(hidden) => scores.mask_fill(hidden.clone().expand(size), -1e9),
                    None => scores,
                };
                let ahead = mask::<Autodiff<B>>([1, t, s], &device, |_, query, key| causal && key > query + s - t);
                let weights = activation::softmax(scores.mask_fill(ahead.expand(size), -1e9), 3);
                let weights = if let Some(factors) = &factors { weights * factors.clone() } else { weights };
                flat(weights.matmul(v).swap_dims(1, 2))
            };
            compare(&format!("{:?}, case {case}", [b, n_head, n_kv_head, t, s, d]), &inputs, &ours, &theirs);
            // Without a backward pass another algorithm may be used.
            let lifted = inputs.clone().map(Tensor::<Autodiff<B>, 1>::from_inner);
            let expected = theirs(&lifted).into_data().iter::<f64>().collect::<Vec<_>>();
            let (visible, mask) = (KeyRanges::new(causal), hidden.clone().map(Tensor::inner));
            let options = AttentionOptions { scale: 0.3, visible, mask, bias: None, dropout };
            let [q, k, v] = views(&lifted).map(Tensor::inner);
            let found = ops::attention(q, k, v, options).swap_dims(1, 2).into_data().iter::<f64>().collect::<Vec<_>>();
            let (apart, largest) = common::distance(&found, &expected);
            assert!(apart <= 1e-5 * largest.max(1.0), "case {case}: apart by {apart} of {largest}");
        }
    }
}

fn attend_without_scale<B: Backend>([q, k, v]: [Tensor<B, 4>; 3], hidden: Tensor<B, 4, Bool>) -> Tensor<B, 4> {
    let (visible, mask) = (KeyRanges::default(), Some(hidden));
    ops::attention(q, k, v, AttentionOptions { scale: 0.0, visible, mask, bias: None, dropout: None })
}

/// With a scale of 0 each query returns the mean of its visible values.
fn a_scale_of_zero<B: Backend>(device: B::Device) {
    let [q, k, v] = [1, 2, 3].map(|seed| numbers::<B, 1>([12], seed, &device).reshape([1, 1, 3, 4]));
    let hidden = mask::<B>([1, 3, 3], &device, |_, _, key| key == 1);
    let mean = (v.clone().narrow(2, 0, 1) + v.clone().narrow(2, 2, 1)).mul_scalar(0.5);
    let expected: Vec<f64> = mean.repeat_dim(2, 3).into_data().iter::<f64>().collect();
    let found = attend_without_scale([q.clone(), k.clone(), v.clone()], hidden.clone())
        .into_data()
        .iter::<f64>()
        .collect::<Vec<_>>();
    let (apart, _) = common::distance(&found, &expected);
    assert!(apart < 1e-6, "{found:?} {expected:?}");

    let inputs = [q, k, v].map(|x| Tensor::<Autodiff<B>, 4>::from_inner(x).require_grad());
    let mut grads = attend_without_scale(inputs.clone(), Tensor::from_inner(hidden)).sum().backward();
    let of =
        inputs.map(|x| x.grad_remove(&mut grads).expect("a gradient").into_data().iter::<f64>().collect::<Vec<_>>());
    assert!(of[0].iter().chain(&of[1]).all(|x| *x == 0.0), "{of:?}");
    assert!(of[2].chunks(4).zip([1.5, 0.0, 1.5]).all(|(row, x)| row.iter().all(|y| (x - y).abs() < 1e-6)), "{of:?}");
}

on_each_backend!(linear, attention, a_scale_of_zero);
