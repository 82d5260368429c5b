//! Attention with padding, caches and dropout against plain attention.

use crate::common;
use burn::tensor::{Int, Tensor, TensorData};
use grove_backend::Backend;
use grove_layers::{AttentionMask, KvCache, attend};
use grove_tree::Key;

/// Head dimension of queries, keys and values.
const HEAD_DIM: usize = 5;

/// Random queries, keys and values, `[b, 3, t, HEAD_DIM]`.
fn heads<B: Backend>(seed: u64, b: usize, t: usize, device: &B::Device) -> [Tensor<B, 4>; 3] {
    [0, 1, 2].map(|i| Key::new(seed).fold_in(i).normal([b, 3, t, HEAD_DIM], device))
}

fn attend_to<B: Backend>([q, k, v]: [Tensor<B, 4>; 3], mask: &AttentionMask<B>) -> Tensor<B, 4> {
    attend(q, k, v, mask, (HEAD_DIM as f64).powf(-0.5), None)
}

fn values<B: Backend, const D: usize>(x: Tensor<B, D>) -> Vec<f64> {
    x.into_data().iter().collect()
}

/// Asserts that all values are within 1e-5: both sides are the same computation in different orders.
fn assert_same<B: Backend>(what: &str, a: Tensor<B, 4>, b: Tensor<B, 4>) {
    assert_eq!(a.dims(), b.dims(), "{what}");
    let (apart, _) = common::distance(&values(a), &values(b));
    println!("{what}: apart by {apart:.1e}");
    assert!(apart <= 1e-5, "{what}: apart by {apart}");
}

/// Left-padded rows give the same results as each row alone; so does the last position with a cache.
fn padding_is_not_seen<B: Backend>(device: B::Device) {
    let (t, padding) = (7, [0, 3, 6, 1]);
    let [q, k, v] = heads::<B>(1, padding.len(), t, &device);
    let row = |x: &Tensor<B, 4>, i: usize, from: usize| x.clone().slice([i..i + 1, 0..3, from..t, 0..HEAD_DIM]);
    // Values at padded positions must not matter, however large.
    let spoil = |x: &Tensor<B, 4>| {
        let rows = padding.iter().enumerate().map(|(i, &pad)| match pad {
            0 => row(x, i, 0),
            pad => Tensor::cat(vec![row(x, i, 0).slice([0..1, 0..3, 0..pad]).mul_scalar(1e3), row(x, i, pad)], 2),
        });
        Tensor::cat(rows.collect(), 0)
    };
    let (k, v) = (spoil(&k), spoil(&v));
    for last in [t, 2, 1] {
        let from = t - last;
        let queries = q.clone().narrow(2, from, last);
        let mask = AttentionMask::causal(last, from, &padding, &device);
        let batch = attend_to([queries, k.clone(), v.clone()], &mask);
        assert!(values(batch.clone()).iter().all(|x| x.is_finite()), "padding itself is finite");
        for (i, &pad) in padding.iter().enumerate() {
            let first = pad.max(from);
            let alone = [row(&q, i, first), row(&k, i, pad), row(&v, i, pad)];
            let expected = attend_to(alone, &AttentionMask::causal(t - first, first - pad, &[], &device));
            let found = batch.clone().slice([i..i + 1, 0..3, first - from..last]);
            assert_same(&format!("{} row {i}, the last {last}", B::name(&device)), found, expected);
        }
    }
}

/// Decoding in steps gives the same result as the whole sequence at once.
fn a_cache_changes_nothing<B: Backend>(device: B::Device) {
    for (steps, padding) in [([1, 1, 1, 1], &[][..]), ([2, 1, 3, 1], &[]), ([2, 1, 3, 1], &[0, 3])] {
        let t = steps.iter().sum();
        let all = heads::<B>(2, 2, t, &device);
        let expected = attend_to(all.clone(), &AttentionMask::causal(t, 0, padding, &device));
        let (mut cache, mut outputs) = (KvCache::new(), vec![]);
        for step in steps {
            let seen = cache.len();
            let [q, k, v] = all.clone().map(|x| x.narrow(2, seen, step));
            let (k, v, next) = cache.append(k, v);
            outputs.push(attend_to([q, k, v], &AttentionMask::causal(step, seen, padding, &device)));
            cache = next;
        }
        assert_eq!(cache.len(), t);
        assert_same(&format!("{} {steps:?} {padding:?}", B::name(&device)), Tensor::cat(outputs, 2), expected);
    }
}

/// A cache returns the appended values, also when it grows: beyond 64 positions, beyond 128, and from empty to more than 64
/// at once.
fn a_cache_grows<B: Backend>(device: B::Device) {
    for steps in [&[1, 62, 1, 1, 3, 70][..], &[100, 1], &[64, 1]] {
        let [keys, values, _] = heads::<B>(7, 2, steps.iter().sum(), &device);
        let mut cache = KvCache::new();
        for &step in steps {
            let (seen, len) = (cache.len(), cache.len() + step);
            let new = |x: &Tensor<B, 4>| x.clone().narrow(2, seen, step);
            let (k, v, next) = cache.append(new(&keys), new(&values));
            assert_same("keys", k, keys.clone().narrow(2, 0, len));
            assert_same("values", v, values.clone().narrow(2, 0, len));
            cache = next;
        }
    }
}

/// Dropout of the attention weights preserves their mean and the causal mask, and depends on its key.
fn dropout_keeps_the_mean<B: Backend>(device: B::Device) {
    let (rows, t, rate) = (800, 6, 0.25);
    let one = heads::<B>(3, 1, t, &device);
    let many = one.clone().map(|x| x.repeat_dim(0, rows));
    // The mask for all rows, and for the single row that they repeat.
    let padded = |rows: usize| AttentionMask::causal(t, 0, &vec![2; rows], &device);
    let masks = [
        (AttentionMask::Causal, AttentionMask::Causal),
        (AttentionMask::Full, AttentionMask::Full),
        (padded(rows), padded(1)),
    ];
    for (mask, single) in masks {
        let drop = |seed: u64| {
            let [q, k, v] = many.clone();
            attend(q, k, v, &mask, (HEAD_DIM as f64).powf(-0.5), Some((rate, Key::new(seed))))
        };
        let plain = attend_to(one.clone(), &single);
        let dropped = drop(4);
        // An element's variance is at most rate / (1 - rate) * max |v|^2; with max |v| about 1.5, the standard error is
        // 0.03.
        let (apart, _) = common::distance(&values(dropped.clone().mean_dim(0)), &values(plain.clone()));
        println!("{} mean of {rows}: apart by {apart:.1e}", B::name(&device));
        assert!(apart < 0.15, "the mean is {apart} off");
        let differing = dropped.clone().sub(plain.repeat_dim(0, rows)).abs().greater_elem(1e-3).float().mean();
        assert!(values(differing)[0] > 0.5, "weights are dropped");
        assert_eq!(values(dropped.clone()), values(drop(4)), "the same key, the same numbers");
        assert_ne!(values(dropped), values(drop(5)));
    }

    // The first position attends only to itself: its weight is 0 or 1 / (1 - rate).
    let [q, k, v] = many;
    let y = attend(q, k, v.clone(), &AttentionMask::Causal, 1.0, Some((rate, Key::new(4))));
    let first = |x: Tensor<B, 4>| values(x.narrow(2, 0, 1));
    for (y, v) in first(y).into_iter().zip(first(v)) {
        assert!(y == 0.0 || (y - v / (1.0 - rate)).abs() < 1e-4, "{y} from {v}");
    }
}

/// Masked positions have exactly zero weight: a causal mask and the equivalent boolean mask agree.
fn masks_agree<B: Backend>(device: B::Device) {
    let t = 6;
    let all = heads::<B>(6, 2, t, &device);
    let hidden: Vec<i64> = (0..t * t).map(|i| i64::from(i % t > i / t)).collect();
    let written = Tensor::<B, 4, Int>::from_data(TensorData::new(hidden, [1, 1, t, t]), &device).equal_elem(1);
    let expected = attend_to(all.clone(), &AttentionMask::Causal);
    assert_same("written out", attend_to(all.clone(), &AttentionMask::Masked(written)), expected.clone());
    // The last position attends to all.
    let last = |y: Tensor<B, 4>| y.narrow(2, t - 1, 1);
    assert_same("the last position", last(attend_to(all, &AttentionMask::Full)), last(expected));
}

/// Key ranges agree with the equivalent masks, including padding positions, which attend only to themselves.
fn ranges_agree_with_masks<B: Backend>(device: B::Device) {
    let padding = [0, 3, 11, 1];
    let explicit = |t: usize, s: usize, hides: &dyn Fn(usize, usize, usize) -> bool| {
        let hidden = (0..4 * t * s).map(|n| i64::from(hides(n / (t * s), n / s % t, n % s))).collect();
        let data = TensorData::new(hidden, [4, 1, t, s]);
        AttentionMask::<B>::Masked(Tensor::<B, 4, Int>::from_data(data, &device).equal_elem(1))
    };
    // Queries at all positions, at the last ones, and with a cache that has dropped its first positions.
    for (t, keys) in [(12, 0..12), (5, 0..12), (1, 0..12), (5, 4..12), (1, 4..12)] {
        for window in [None, Some(1), Some(2), Some(5), Some(100)] {
            let (s, seen) = (keys.len(), keys.end - t);
            let [q, k, v] = heads::<B>(8, 4, 12, &device);
            let inputs = [q.narrow(2, seen, t), k.narrow(2, keys.start, s), v.narrow(2, keys.start, s)];
            let hides = |row: usize, query: usize, key: usize| {
                let (query, key) = (seen + query, keys.start + key);
                let far = window.is_some_and(|window| query.saturating_sub(key) >= window);
                key != query && (key > query || key < padding[row] || far)
            };
            let expected = attend_to(inputs.clone(), &explicit(t, s, &hides));
            let mask = AttentionMask::within(window, t, keys.clone(), &padding, &device);
            assert!(!matches!(mask, AttentionMask::Masked(_)));
            assert_same(&format!("{t} of {keys:?}, {window:?}"), attend_to(inputs, &mask), expected);
        }
    }
    let lengths = [12, 3, 0, 20];
    let mask = AttentionMask::to_lengths(&lengths, 12, &device);
    let all = heads::<B>(9, 4, 12, &device);
    let y = attend_to(all.clone(), &mask);
    assert!(values(y.clone().narrow(0, 2, 1)).iter().all(|&y| y == 0.0), "a row without a position gathers zeros");
    assert_same("lengths", y, attend_to(all, &explicit(12, 12, &|row, _, key| key >= lengths[row])));
    assert!(matches!(AttentionMask::<B>::to_lengths(&[12, 12], 12, &device), AttentionMask::Full));
}

#[test]
#[should_panic(expected = "the attention window is 0")]
fn refuses_an_empty_window() {
    AttentionMask::<grove_backend::Flex>::within(Some(0), 1, 0..3, &[], &Default::default());
}

on_each_backend!(
    padding_is_not_seen,
    a_cache_changes_nothing,
    a_cache_grows,
    dropout_keeps_the_mean,
    masks_agree,
    ranges_agree_with_masks,
);
