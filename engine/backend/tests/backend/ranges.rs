//! Attention with a range of keys per query, against f64 arithmetic and against the equivalent mask: values and gradients on
//! every backend.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::{numbers, values};
use crate::common;
use burn::tensor::{Bool, DType, Int, Tensor, TensorData};
use grove_backend::{AttentionOptions, Autodiff, Backend, KeyRanges, ops};

fn counts<B: Backend>(numbers: &[i64], device: &B::Device) -> Tensor<B, 1, Int> {
    Tensor::<B, 1, Int>::from_data(TensorData::new(numbers.to_vec(), [numbers.len()]), device)
}

#[derive(Clone, Copy, Debug)]
struct Sizes {
    b: usize,
    heads: usize,
    kv: usize,
    t: usize,
    s: usize,
    d: usize,
}

/// Parameters of ranges, for at most three sequences.
#[derive(Clone, Copy, Debug)]
struct Ranges {
    causal: bool,
    window: Option<usize>,
    padding: Option<[i64; 3]>,
    lengths: Option<[i64; 3]>,
}

impl Ranges {
    fn on<B: Backend>(&self, b: usize, device: &B::Device) -> KeyRanges<B> {
        let counts = |x: Option<[i64; 3]>| x.map(|x| counts::<B>(&x[..b], device));
        let (padding, lengths) = (counts(self.padding), counts(self.lengths));
        KeyRanges { causal: self.causal, window: self.window, padding, lengths }
    }

    /// Definition of the ranges, key by key.
    fn sees(&self, size: &Sizes, [i, query, key]: [usize; 3]) -> bool {
        let [key, own] = [key as i64, size.s as i64 - size.t as i64 + query as i64];
        let near = !self.causal
            || key <= own && self.window.is_none_or(|window| key > own - i64::try_from(window).unwrap_or(i64::MAX));
        let padded = self.padding.is_some_and(|padding| key < padding[i]) && !(self.causal && key == own);
        near && !padded && self.lengths.is_none_or(|lengths| key < lengths[i])
    }
}

/// Returns the output and the gradients of queries, keys and values in f64, from the gradient of the output.
fn reference(size: &Sizes, [q, k, v, dy]: [&[f64]; 4], scale: f64, sees: impl Fn([usize; 4]) -> bool) -> [Vec<f64>; 4] {
    let &Sizes { b, heads, kv, t, s, d } = size;
    let mut found = [vec![0.0; q.len()], vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]];
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    for (i, head, query) in (0..b * heads * t).map(|n| (n / (heads * t), n / t % heads, n % t)) {
        let row = ((i * heads + head) * t + query) * d;
        let at = |key: usize| ((i * kv + head * kv / heads) * s + key) * d;
        let keys: Vec<usize> = (0..s).filter(|&key| sees([i, head, query, key])).collect();
        let scores: Vec<f64> = keys.iter().map(|&key| scale * dot(&q[row..row + d], &k[at(key)..][..d])).collect();
        let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
        let p: Vec<f64> = scores.iter().map(|score| (score - largest).exp() / sum).collect();
        let slopes: Vec<f64> = keys.iter().map(|&key| dot(&dy[row..row + d], &v[at(key)..][..d])).collect();
        let mean = dot(&p, &slopes);
        for ((&key, &p), &slope) in keys.iter().zip(&p).zip(&slopes) {
            let ds = scale * p * (slope - mean);
            for c in 0..d {
                found[0][row + c] += p * v[at(key) + c];
                found[1][row + c] += ds * k[at(key) + c];
                found[2][at(key) + c] += ds * q[row + c];
                found[3][at(key) + c] += p * dy[row + c];
            }
        }
    }
    found
}

/// Returns queries, keys, values and the output's gradient. The head axis follows the positions in memory, as in layers.
fn inputs<B: Backend>(size: &Sizes, magnitude: f64, dtype: DType, device: &B::Device) -> [Tensor<B, 4>; 4] {
    let &Sizes { b, heads, kv, t, s, d } = size;
    [[heads, t], [kv, s], [kv, s], [heads, t]].map(|[heads, n]| {
        let x = numbers::<B, 4>([b, n, heads, d], (n + heads) as u64, device);
        x.mul_scalar(magnitude).cast(dtype).swap_dims(1, 2)
    })
}

/// Returns the output and the gradients of the differentiating backend.
fn gradients<B: Backend>([q, k, v, dy]: [Tensor<B, 4>; 4], options: AttentionOptions<Autodiff<B>>) -> [Vec<f64>; 4] {
    let leaves = [q, k, v].map(|x| Tensor::<Autodiff<B>, 4>::from_inner(x).require_grad());
    let [q, k, v] = leaves.clone();
    let y = ops::attention(q, k, v, options);
    let grads = (y.clone() * Tensor::<Autodiff<B>, 4>::from_inner(dy)).cast(DType::F32).sum().backward();
    let [dq, dk, dv] = leaves.map(|leaf| values(leaf.grad(&grads).expect("a gradient")));
    [values(y.inner()), dq, dk, dv]
}

const SCALE: f64 = 0.35;

fn cases() -> Vec<(Sizes, Ranges)> {
    let mut cases = vec![];
    for [b, heads, kv, t, s, d] in [
        [3, 2, 2, 5, 5, 4],
        [3, 4, 2, 1, 7, 8],
        [2, 4, 2, 3, 9, 4],
        [1, 2, 1, 8, 40, 6],
        // More queries than the kernel for few queries supports, and more than a tile holds.
        [3, 2, 1, 37, 70, 5],
        [1, 2, 2, 30, 30, 4],
        // More queries than keys: the first queries attend to nothing.
        [2, 2, 2, 6, 2, 4],
        // Keys in more than one chunk of the kernel for few queries.
        [2, 2, 1, 2, 600, 4],
    ] {
        let size = Sizes { b, heads, kv, t, s, d };
        let all = s as i64;
        // None, some, and all keys; and counts out of range.
        let some = Some([all / 2, 0, all]);
        let (beyond, lengths) = (Some([1, all + 9, -4]), Some([all - all / 3, 0, all + 5]));
        let few = Some([all / 2, 1, -1]);
        let full = Ranges { causal: false, window: None, padding: None, lengths: None };
        let causal = Ranges { causal: true, ..full };
        for ranges in [
            full,
            causal,
            Ranges { lengths, ..full },
            Ranges { padding: some, ..full },
            Ranges { padding: few, lengths, ..full },
            Ranges { padding: some, ..causal },
            Ranges { padding: beyond, ..causal },
            Ranges { lengths, ..causal },
            Ranges { window: Some(1), ..causal },
            Ranges { window: Some(3), padding: some, ..causal },
            Ranges { window: Some(20), padding: few, lengths, ..causal },
            Ranges { window: Some(usize::MAX), padding: few, ..causal },
        ] {
            cases.push((size, ranges));
        }
    }
    cases
}

fn attention<B: Backend>(device: B::Device) {
    for (size, ranges) in cases() {
        let Sizes { b, t, s, .. } = size;
        let data = inputs::<B>(&size, 2.0, DType::F32, &device);
        let given = data.clone().map(values);
        // Also with a mask, which fully masks some queries.
        for masked in [false, true] {
            let hides = |i: usize, query: usize, key: usize| masked && (i + query + key) % 3 == 1;
            let sees = |[i, _, query, key]: [usize; 4]| ranges.sees(&size, [i, query, key]) && !hides(i, query, key);
            let expected = reference(&size, given.each_ref().map(|x| &x[..]), SCALE, sees);
            let mask = |hides: &dyn Fn(usize, usize, usize) -> bool| {
                let hidden = (0..b * t * s).map(|n| i64::from(hides(n / (t * s), n / s % t, n % s))).collect();
                let hidden: Tensor<B, 4, Bool> =
                    Tensor::<B, 4, Int>::from_data(TensorData::new(hidden, [b, 1, t, s]), &device).equal_elem(1);
                hidden
            };
            let hidden = masked.then(|| mask(&hides));
            let close = |what: &str, found: &[f64], expected: &[f64]| {
                let (apart, largest) = common::distance(found, expected);
                assert!(
                    apart <= 1e-5 * largest.max(1.0),
                    "{size:?}, {ranges:?}, masked {masked}, {what}: apart by {apart} of {largest}"
                );
            };
            let options =
                AttentionOptions { mask: hidden.clone(), ..AttentionOptions::new(SCALE, ranges.on::<B>(b, &device)) };
            let [q, k, v, _] = data.clone();
            let y = values(ops::attention(q, k, v, options));
            close("alone", &y, &expected[0]);
            let lifted = |mask: Tensor<B, 4, Bool>| Tensor::<Autodiff<B>, 4, Bool>::from_inner(mask);
            let options = AttentionOptions {
                mask: hidden.map(lifted),
                ..AttentionOptions::new(SCALE, ranges.on::<Autodiff<B>>(b, &device))
            };
            let found = gradients(data.clone(), options);
            // The explicit mask is equivalent.
            let all = mask(&|i, query, key| !sees([i, 0, query, key]));
            let options = AttentionOptions {
                mask: Some(lifted(all)),
                ..AttentionOptions::new(SCALE, KeyRanges::<Autodiff<B>>::default())
            };
            let written_out = gradients(data.clone(), options);
            for (i, what) in ["output", "dq", "dk", "dv"].into_iter().enumerate() {
                close(what, &found[i], &expected[i]);
                close(what, &found[i], &written_out[i]);
            }
            for ((y, found), expected) in y.iter().zip(&found[0]).zip(&expected[0]) {
                // A fully masked query gives exact zeros.
                assert!(*expected != 0.0 || (*y, *found) == (0.0, 0.0), "{size:?}, {ranges:?}: {y} {found}");
            }
        }
    }
}

/// 16-bit floats as large as in models: scores up to several hundred, except on GPUs.
fn half_precision<B: Backend>(device: B::Device) {
    let types = [(DType::F16, 1e-3), (DType::BF16, 8e-3)];
    for (dtype, ulp) in types.into_iter().filter(|(dtype, _)| B::computes_in(&device, *dtype)) {
        for ([heads, kv, t, s], window) in
            [([4, 2, 40, 40], Some(9)), ([4, 2, 3, 40], None), ([2, 2, 1, 300], Some(100))]
        {
            let size = Sizes { b: 2, heads, kv, t, s, d: 32 };
            let ranges = Ranges { causal: true, window, padding: Some([7, 0, 0]), lengths: None };
            // GPUs round scores to 16 bits: a score of 100 has an error of about 0.05 in f16 and of 0.3 in bf16, too much for the
            // weights.
            let magnitude = if B::FUSES { 2.0 } else { 8.0 };
            let data = inputs::<B>(&size, magnitude, dtype, &device);
            let given = data.clone().map(values);
            let sees = |[i, _, query, key]: [usize; 4]| ranges.sees(&size, [i, query, key]);
            let expected = reference(&size, given.each_ref().map(|x| &x[..]), 0.05, sees);
            let options = AttentionOptions::new(0.05, ranges.on::<Autodiff<B>>(2, &device));
            let found = gradients(data.clone(), options);
            let options = AttentionOptions::new(0.05, ranges.on::<B>(2, &device));
            let [q, k, v, _] = data;
            let alone = values(ops::attention(q, k, v, options));
            // GPUs round scores and weights to 16 bits.
            let tolerance = if B::FUSES { 64.0 * ulp } else { 4.0 * ulp };
            for (what, found, expected) in [
                ("alone", &alone, &expected[0]),
                ("output", &found[0], &expected[0]),
                ("dq", &found[1], &expected[1]),
                ("dk", &found[2], &expected[2]),
                ("dv", &found[3], &expected[3]),
            ] {
                let (apart, largest) = common::distance(found, expected);
                println!("{dtype:?} {size:?} {what}: {:.1} ulp", apart / largest / ulp);
                assert!(apart <= tolerance * largest, "{dtype:?} {size:?}, {what}: apart by {apart} of {largest}");
            }
        }
    }
}

/// The softmax by itself: weights outside of the range are 0 whatever the scores are.
fn weights<B: Backend>(device: B::Device) {
    for (size, ranges) in cases() {
        let Sizes { b, heads, t, s, .. } = size;
        let scores = numbers::<B, 4>([b, heads, t, s], 3, &device).mul_scalar(5.0);
        let given = values(scores.clone());
        let leaf = Tensor::<Autodiff<B>, 4>::from_inner(scores).require_grad();
        let y = ops::masked_softmax(leaf.clone(), 0.7, &ranges.on::<Autodiff<B>>(b, &device));
        let dy = numbers::<Autodiff<B>, 4>([b, heads, t, s], 4, &device);
        let slopes = values(dy.clone().inner());
        let grads = (y.clone() * dy).sum().backward();
        let [mut weights, mut slope] = [vec![0.0; given.len()], vec![0.0; given.len()]];
        for row in 0..b * heads * t {
            let keys: Vec<usize> = (0..s)
                .filter(|&key| ranges.sees(&size, [row / (heads * t), row % t, key]))
                .map(|key| row * s + key)
                .collect();
            let sum: f64 = keys.iter().map(|&at| (0.7 * given[at]).exp()).sum();
            keys.iter().for_each(|&at| weights[at] = (0.7 * given[at]).exp() / sum);
            let mean: f64 = keys.iter().map(|&at| weights[at] * slopes[at]).sum();
            keys.iter().for_each(|&at| slope[at] = 0.7 * weights[at] * (slopes[at] - mean));
        }
        for (found, expected) in [(y.inner(), weights), (leaf.grad(&grads).expect("a gradient"), slope)] {
            let found = values(found);
            let (apart, _) = common::distance(&found, &expected);
            assert!(apart <= 1e-5, "{size:?}, {ranges:?}: apart by {apart}");
            assert!(found.iter().zip(&expected).all(|(found, expected)| *expected != 0.0 || *found == 0.0));
        }
    }
}

fn attend_to<B: Backend>(visible: KeyRanges<B>, device: &B::Device) {
    let x = Tensor::<B, 4>::ones([2, 1, 3, 4], device);
    ops::attention(x.clone(), x.clone(), x, AttentionOptions::new(1.0, visible)).into_data();
}

/// Invalid ranges are rejected with an explanation.
fn refuses<B: Backend>(device: B::Device) {
    let causal = || KeyRanges::<B>::new(true);
    let of_three = || Some(counts::<B>(&[1, 1, 1], &device));
    for (visible, reason) in [
        (KeyRanges { window: Some(0), ..causal() }, "a window of 0 keys"),
        (KeyRanges { window: Some(2), ..KeyRanges::default() }, "without `causal`"),
        (KeyRanges { padding: of_three(), ..causal() }, "padding of shape [3] for 2 sequences"),
        (KeyRanges { lengths: of_three(), ..causal() }, "lengths of shape [3] for 2 sequences"),
    ] {
        let run = std::panic::AssertUnwindSafe(|| attend_to::<B>(visible.clone(), &device));
        let panic = std::panic::catch_unwind(run).expect_err(reason);
        let message = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        assert!(message.is_some_and(|message| message.contains(reason)), "{message:?}, not {reason}");
    }
}

on_each_backend!(attention, half_precision, weights, refuses);
