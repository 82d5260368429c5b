use super::*;
use crate::{HalfFormat, matmul::multiplies_tiles, narrowed, widened};

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1013) as f32 / 500.0 - 1.0).collect()
}

/// Returns true if a query attends to a key, by the definitions of the masks.
fn sees(sizes: &Attention<'_>, at: [usize; 4]) -> bool {
    let [i, head, query, key] = at;
    let own = sizes.s - sizes.t.min(sizes.s) + query;
    let padding = sizes.padding.map_or(0, |padding| padding[i]);
    let near = !sizes.causal || key <= own && sizes.window.is_none_or(|window| own < key.saturating_add(window));
    let in_sequence = key >= padding || sizes.causal && key == own;
    (near && in_sequence)
        && sizes.lengths.is_none_or(|lengths| key < lengths[i])
        && sizes.hidden.is_none_or(|Hidden { data, strides }| {
            data[i * strides[0] + head * strides[1] + query * strides[2] + key] == 0
        })
}

/// Returns the output and the gradients of queries, keys and values, computed directly in f64.
fn reference(sizes: &Attention<'_>, [q, k, v, g]: [Heads<'_>; 4]) -> [Vec<f64>; 4] {
    let Attention { b, n_head, n_kv_head, t, s, head_dim: d, .. } = *sizes;
    let group = n_head / n_kv_head;
    let at = |x: Heads<'_>, i, head, position, c| f64::from(x.head(i, head)[position * x.stride() + c]);
    let place =
        |i, head, position, c, [positions, heads]: [usize; 2]| ((i * positions + position) * heads + head) * d + c;
    let forms = [[t, n_head], [t, n_head], [s, n_kv_head], [s, n_kv_head]];
    let mut out = forms.map(|[positions, heads]| vec![0.0; b * positions * heads * d]);
    for (i, head, query) in (0..b * n_head * t).map(|x| (x / (n_head * t), x / t % n_head, x % t)) {
        let score = |key| (0..d).map(|c| at(q, i, head, query, c) * at(k, i, head / group, key, c)).sum::<f64>();
        let e: Vec<f64> = (0..s)
            .map(|key| match sees(sizes, [i, head, query, key]) {
                true => (f64::from(sizes.scale) * score(key)).exp(),
                false => 0.0,
            })
            .collect();
        let total = e.iter().sum::<f64>();
        let weight = |key: usize| if total > 0.0 { e[key] / total } else { 0.0 };
        let row = (i * n_head + head) * t + query;
        let factor =
            |key: usize| sizes.dropout.map_or(1.0, |dropout| f64::from(dropout.factor((row * s + key) as u64)));
        let grad = |key: usize| {
            factor(key) * (0..d).map(|c| at(g, i, head, query, c) * at(v, i, head / group, key, c)).sum::<f64>()
        };
        let mean: f64 = (0..s).map(|key| weight(key) * grad(key)).sum();
        for key in 0..s {
            let slope = f64::from(sizes.scale) * weight(key) * (grad(key) - mean);
            for c in 0..d {
                let used = weight(key) * factor(key);
                out[0][place(i, head, query, c, forms[0])] += used * at(v, i, head / group, key, c);
                out[1][place(i, head, query, c, forms[1])] += slope * at(k, i, head / group, key, c);
                out[2][place(i, head / group, key, c, forms[2])] += slope * at(q, i, head, query, c);
                out[3][place(i, head / group, key, c, forms[3])] += used * at(g, i, head, query, c);
            }
        }
    }
    out
}

fn close(what: &str, found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() < 2e-5, "{what}, {i}: {found} {expected}");
    }
}

fn check(sizes: &Attention<'_>) {
    let Attention { b, n_head, n_kv_head, t, s, head_dim: d, .. } = *sizes;
    // Queries in a projection's layout, keys in a cache's layout, values with gaps.
    let (wide, narrow, far) = (n_head * d, n_kv_head * d, n_kv_head * (d + 3));
    let data = [values(b * t * wide, 1), values(b * narrow * s, 2), values(b * s * far, 3), values(b * t * wide, 4)];
    let strides = [[t * wide, d, wide], [narrow * s, s * d, d], [s * far, d + 3, far], [t * wide, d, wide]];
    let parts: [Heads<'_>; 4] = std::array::from_fn(|i| Heads { data: &data[i], strides: strides[i] });
    let [q, k, v, g] = parts;
    let expected = reference(sizes, parts);
    let mut found = expected.each_ref().map(|x| vec![f32::NAN; x.len()]);
    let [output, dq, dk, dv] = &mut found;
    sizes.forward(q, k, v, output);
    sizes.backward(q, k, v, g, [Some(dq), Some(dk), Some(dv)]);
    for (what, (found, expected)) in ["output", "dq", "dk", "dv"].iter().zip(found.iter().zip(&expected)) {
        close(&format!("{what} of {:?}, causal {}", [b, n_head, n_kv_head, t, s, d], sizes.causal), found, expected);
    }
    // Each gradient is the same when computed alone.
    for i in 0..3 {
        let mut alone = vec![f32::NAN; found[i + 1].len()];
        let mut grads = [None, None, None];
        grads[i] = Some(&mut alone[..]);
        sizes.backward(q, k, v, g, grads);
        assert_eq!(alone, found[i + 1]);
    }
}

/// Returns attention without masks.
fn attention([b, n_head, n_kv_head, t, s, head_dim]: [usize; 6]) -> Attention<'static> {
    Attention {
        b,
        n_head,
        n_kv_head,
        t,
        s,
        head_dim,
        scale: 0.4,
        causal: false,
        window: None,
        padding: None,
        lengths: None,
        hidden: None,
        dropout: None,
    }
}

#[test]
fn values_and_gradients() {
    for [b, n_head, n_kv_head, t, s, head_dim] in [
        [0, 2, 2, 3, 3, 4],
        [1, 1, 1, 1, 1, 1],
        [2, 3, 3, 1, 7, 5],
        [2, 6, 2, 1, 7, 19],
        [1, 4, 1, 1, 131, 16],
        [2, 2, 2, 5, 5, 8],
        [3, 2, 2, 4, 9, 17],
        [2, 6, 2, 5, 9, 8],
        [1, 2, 2, 70, 70, 32],
        [2, 4, 2, 50, 70, 5],
        [1, 1, 1, 130, 400, 3],
        [1, 2, 1, 130, 500, 4],
    ] {
        let plain = attention([b, n_head, n_kv_head, t, s, head_dim]);
        // The first query of the last sequence is fully masked. A mask of keys only leaves at least one key.
        let mask: Vec<u8> = (0..b * t * s).map(|i| u8::from(i % 3 == 1 || i / s == t * b - t)).collect();
        let ends: Vec<u8> = (0..b * s).map(|i| u8::from(i % s > i / s)).collect();
        let of_queries = Some(Hidden { data: &mask, strides: [t * s, 0, s] });
        let of_keys = Some(Hidden { data: &ends, strides: [s, 0, 0] });
        for hidden in [None, of_queries, of_keys] {
            for dropout in [None, Dropout::new([3, 4], 0.25)] {
                check(&Attention { hidden, dropout, ..plain });
                check(&Attention { hidden, dropout, causal: true, scale: -0.3, ..plain });
            }
        }
    }
}

/// Returns the mask equivalent to [`sees`].
fn written_out(sizes: &Attention<'_>) -> Vec<u8> {
    let Attention { b, t, s, .. } = *sizes;
    (0..b * t * s).map(|n| u8::from(!sees(sizes, [n / (t * s), 0, n / s % t, n % s]))).collect()
}

#[test]
fn ranges_of_keys() {
    for [b, n_head, n_kv_head, t, s, head_dim] in [
        [3, 2, 2, 1, 1, 3],
        [3, 4, 2, 1, 70, 16],
        [3, 2, 1, 7, 7, 5],
        [3, 2, 2, 50, 70, 8],
        [3, 1, 1, 130, 400, 4],
        [1, 2, 1, 6, 900, 4],
    ] {
        let plain = attention([b, n_head, n_kv_head, t, s, head_dim]);
        let causal = Attention { causal: true, ..plain };
        // Sequences with only padding, none, and some; counts beyond the number of keys.
        let (padding, lengths) = ([s + 3, 0, s / 2], [s - s / 3, 0, s + 5]);
        let few = [2 * s / 3, s / 3, 1];
        let [padding, lengths, few] = [&padding, &lengths, &few].map(|x| Some(&x[3 - b..]));
        let dropout = Dropout::new([3, 4], 0.25);
        let mask: Vec<u8> = (0..b * t * s).map(|i| u8::from(i % 3 == 1)).collect();
        let hidden = Some(Hidden { data: &mask, strides: [t * s, 0, s] });
        for sizes in [
            Attention { padding, ..plain },
            Attention { lengths, ..plain },
            Attention { padding: few, lengths, ..plain },
            Attention { padding, ..causal },
            Attention { lengths, padding: few, ..causal },
            Attention { window: Some(1), ..causal },
            Attention { window: Some(5), padding, ..causal },
            Attention { window: Some(33), padding: few, lengths, scale: -0.3, ..causal },
            Attention { window: Some(300), dropout, ..causal },
            Attention { window: Some(usize::MAX), padding: few, dropout, ..causal },
            Attention { window: Some(20), padding: few, hidden, ..causal },
        ] {
            check(&sizes);
        }
    }
}

/// Ranges skip only keys that would add zeros.
#[test]
fn ranges_are_bit_equal_to_masks() {
    let (b, n_head, head_dim) = (3, 2, 8);
    for [t, s] in [[1, 90], [40, 90], [90, 90], [130, 900]] {
        let plain = attention([b, n_head, n_head, t, s, head_dim]);
        let (padding, lengths) = ([0, 37, s], [s, 1, s - s / 4]);
        let causal = Attention { causal: true, ..plain };
        let (window, padding, lengths) = (Some(21), Some(&padding[..]), Some(&lengths[..]));
        for (sizes, backward) in [
            (Attention { padding, ..causal }, true),
            (Attention { lengths, padding, ..causal }, true),
            // The blocks of queries, whose gradients are summed together, differ.
            (Attention { window, padding, ..causal }, false),
        ] {
            let mask = written_out(&sizes);
            let hidden = Some(Hidden { data: &mask, strides: [t * s, 0, s] });
            let masked = Attention { window: None, padding: None, lengths: None, hidden, ..sizes };
            let size = n_head * head_dim;
            let data = [t, s, s, t].map(|n| values(b * n * size, n));
            let run = |sizes: &Attention<'_>| {
                let heads = |i: usize, n: usize| Heads { data: &data[i], strides: [n * size, head_dim, size] };
                let [q, k, v, g] = [heads(0, t), heads(1, s), heads(2, s), heads(3, t)];
                let mut found = data.each_ref().map(|x| vec![f32::NAN; x.len()]);
                let [dq, dk, dv, output] = &mut found;
                sizes.forward(q, k, v, output);
                if backward {
                    sizes.backward(q, k, v, g, [Some(dq), Some(dk), Some(dv)]);
                }
                found.map(|x| x.into_iter().map(f32::to_bits).collect::<Vec<_>>())
            };
            assert!(run(&sizes) == run(&masked), "{t} of {s}");
        }
    }
}

/// Keys and values of 16 bits give the results of the same numbers as f32.
#[test]
fn keys_of_16_bits() {
    for (format, other) in [(HalfFormat::F16, HalfFormat::Bf16), (HalfFormat::Bf16, HalfFormat::F16)] {
        for ([b, n_head, n_kv_head, t, s, d], window) in [
            ([2, 6, 2, 1, 150, 19], None),
            ([1, 4, 4, 1, 131, 64], Some(70)),
            ([1, 6, 2, 40, 90, 16], Some(21)),
            ([2, 3, 3, 5, 7, 5], None),
        ] {
            let sizes = Attention { causal: true, window, ..attention([b, n_head, n_kv_head, t, s, d]) };
            // Keys in a cache's layout, values with gaps.
            let far = n_kv_head * (d + 3);
            let strides = [[n_kv_head * s * d, s * d, d], [s * far, d + 3, far]];
            let bits = [(format, n_kv_head * d, 2), (other, far, 3)]
                .map(|(format, size, seed)| (format, narrowed(format, &values(b * s * size, seed))));
            let q = values(b * n_head * t * d, 1);
            let q = Heads { data: &q, strides: [n_head * t * d, t * d, d] };
            let mut found = vec![f32::NAN; b * t * n_head * d];
            let mut expected = found.clone();
            let [k, v] = [0, 1].map(|i| KeyHeads::Half(bits[i].0, Heads { data: &bits[i].1, strides: strides[i] }));
            sizes.forward(q, k, v, &mut found);
            let wide = bits.each_ref().map(|(format, bits)| widened(*format, bits));
            let [k, v] = [0, 1].map(|i| Heads { data: &wide[i], strides: strides[i] });
            sizes.forward(q, k, v, &mut expected);
            assert_eq!(found, expected, "{format:?} {:?}", [b, n_head, n_kv_head, t, s, d]);
        }
    }
}

/// Numbers of bf16, with scores of more than one block of queries; every kind of mask, and too few queries.
#[test]
fn products_of_tiles() {
    for [b, n_head, n_kv_head, t, s, d] in
        [[1, 2, 2, 31, 31, 8], [2, 6, 2, 40, 90, 19], [1, 2, 1, 300, 300, 64], [1, 1, 1, 70, 5000, 5]]
    {
        let plain = attention([b, n_head, n_kv_head, t, s, d]);
        let causal = Attention { causal: true, ..plain };
        let (padding, lengths) = ([s + 3, s / 2], [s - s / 3, s + 5]);
        let [padding, lengths] = [&padding, &lengths].map(|x| Some(&x[2 - b..]));
        let mask: Vec<u8> = (0..b * t * s).map(|i| u8::from(i % 3 == 1 || i / s == t * b - t)).collect();
        let hidden = Some(Hidden { data: &mask, strides: [t * s, 0, s] });
        let dropout = Dropout::new([3, 4], 0.25);
        let (wide, far) = (n_head * d, n_kv_head * (d + 3));
        let strides = [[t * wide, d, wide], [n_kv_head * s * d, s * d, d], [s * far, d + 3, far]];
        let bits = [(t * wide, 1), (n_kv_head * s * d, 2), (s * far, 3)]
            .map(|(size, seed)| narrowed(HalfFormat::Bf16, &values(b * size, seed)));
        let wide = bits.each_ref().map(|bits| widened(HalfFormat::Bf16, bits));
        for sizes in [
            plain,
            causal,
            Attention { lengths, padding, ..causal },
            Attention { window: Some(33), hidden, ..causal },
            Attention { hidden, dropout, scale: -0.3, ..plain },
        ] {
            let [q, k, v] = [0, 1, 2].map(|i| Heads { data: &bits[i][..], strides: strides[i] });
            let Some(found) = sizes.forward_bf16(q, k, v) else {
                assert!(!multiplies_tiles() || t < 32);
                continue;
            };
            let mut expected = vec![f32::NAN; found.len()];
            let [q, k, v] = [0, 1, 2].map(|i| Heads { data: &wide[i][..], strides: strides[i] });
            sizes.forward(q, k, v, &mut expected);
            for (found, expected) in widened(HalfFormat::Bf16, &found).iter().zip(&expected) {
                // The weights, whose sum is at most 1 but for dropout, and the output are rounded to 8 bits.
                assert!((found - expected).abs() <= 2.0 / 256.0, "{:?}: {found} {expected}", [b, n_head, t, s, d]);
            }
        }
    }
}

#[test]
fn fully_masked_rows_read_nothing() {
    // Whole panels of keys outside the window and beyond the lengths hold NaN.
    let (t, s, d) = (3, 200, 4);
    let sizes = Attention { causal: true, window: Some(40), lengths: Some(&[190]), ..attention([1, 1, 1, t, s, d]) };
    let mut data = values(s * d, 1);
    data[..157 / NR * NR * d].fill(f32::NAN);
    data[192 * d..].fill(f32::NAN);
    let q = values(t * d, 2);
    let heads = |data| Heads { data, strides: [0, 0, d] };
    let mut output = vec![f32::NAN; t * d];
    sizes.forward(heads(&q), heads(&data), heads(&data), &mut output);
    assert!(output.iter().all(|x| x.is_finite()), "{output:?}");
}

#[test]
#[should_panic(expected = "a window of Some(0) keys")]
fn refuses_a_window_of_nothing() {
    let sizes = Attention { causal: true, window: Some(0), ..attention([1, 1, 1, 1, 1, 1]) };
    let one = Heads { data: &[1.0], strides: [1; 3] };
    sizes.forward(one, one, one, &mut [0.0]);
}

#[test]
#[should_panic(expected = "2 numbers for 1 sequences")]
fn refuses_lengths_of_other_sequences() {
    let sizes = Attention { lengths: Some(&[1, 1]), ..attention([1, 1, 1, 1, 1, 1]) };
    let one = Heads { data: &[1.0], strides: [1; 3] };
    sizes.forward(one, one, one, &mut [0.0]);
}

#[test]
fn threads_do_not_matter() {
    for t in [1, 40] {
        let sizes = Attention { causal: true, window: Some(70), ..attention([1, 6, 2, t, 90, 16]) };
        let (wide, narrow) = (6 * 16, 2 * 16);
        let data = [values(t * wide, 1), values(90 * narrow, 2), values(90 * narrow, 3), values(t * wide, 4)];
        let run = |threads: usize| {
            let heads = |i: usize, size: usize| Heads { data: &data[i], strides: [0, 16, size] };
            let [q, k, v, g] = [heads(0, wide), heads(1, narrow), heads(2, narrow), heads(3, wide)];
            let mut found = data.each_ref().map(|x| vec![f32::NAN; x.len()]);
            let [dq, dk, dv, output] = &mut found;
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| sizes.forward(q, k, v, output));
            pool.install(|| sizes.backward(q, k, v, g, [Some(dq), Some(dk), Some(dv)]));
            found
        };
        assert_eq!(run(1), run(5));
    }
    let sizes = Attention { causal: true, ..attention([2, 3, 1, 300, 300, 16]) };
    let data = [(3, 1), (1, 2), (1, 3)].map(|(n, seed)| narrowed(HalfFormat::Bf16, &values(2 * n * 300 * 16, seed)));
    let run = |threads: usize| {
        let heads = |i: usize, n: usize| Heads { data: &data[i][..], strides: [n * 300 * 16, 16, n * 16] };
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| sizes.forward_bf16(heads(0, 3), heads(1, 1), heads(2, 1)))
    };
    assert_eq!(run(1), run(5));
}
