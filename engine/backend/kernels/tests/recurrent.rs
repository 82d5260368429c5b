//! Tests of the recurrent kernels against the reference in f64, over sizes, lengths, directions and threads.

mod common;

use common::{Case, Inputs, Kind, narrow, values};
use grove_kernels::{GruReset, RnnActivation, Steps, gru, gru_backward, lstm, lstm_backward, rnn, rnn_backward};

/// Returns the output and final states, then the gradients of the inputs, from the gradients of output and final states.
fn kernels(case: &Case, inputs: &Inputs, grads: &[Vec<f64>; 3]) -> ([Vec<f32>; 3], [Vec<f32>; 5]) {
    let steps = Steps::new(&case.sizes(), case.reverse);
    let [mut x, h0, c0, w, b] = [0, 1, 2, 3, 4].map(|i| narrow(&inputs[i]));
    let [grad_out, mut gh, mut gc] = [0, 1, 2].map(|i| narrow(&grads[i]));
    let (mut h, mut c, mut out) = (h0.clone(), c0.clone(), vec![9.0; grad_out.len()]);
    let (mut saved, mut gw, mut gb) = (vec![9.0; out.len()], vec![9.0; w.len()], vec![0.0; b.len()]);
    match case.kind {
        Kind::Lstm => {
            let (mut inference, mut h_2, mut c_2) = (x.clone(), h.clone(), c.clone());
            lstm(&steps, &w, &mut inference, &mut h_2, &mut c_2, &mut out, None);
            let first = std::mem::replace(&mut out, vec![9.0; grad_out.len()]);
            lstm(&steps, &w, &mut x, &mut h, &mut c, &mut out, Some(&mut saved));
            let same = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits());
            assert!(same(&first, &out) && same(&h, &h_2) && same(&c, &c_2));
            lstm_backward(&steps, &w, &mut x, &out, &saved, &h0, &c0, &grad_out, &mut gh, &mut gc, Some(&mut gw));
        }
        Kind::GruAfter | Kind::GruBefore => {
            let reset = if case.kind == Kind::GruAfter { GruReset::After } else { GruReset::Before };
            gru(&steps, reset, &w, &b, &mut x, &mut h, &mut out, &mut saved);
            let (x, saved) = (&mut x, &mut saved);
            gru_backward(&steps, reset, &w, x, saved, &out, &h0, &grad_out, &mut gh, Some(&mut gw), &mut gb);
        }
        Kind::Tanh | Kind::Relu => {
            let activation = if case.kind == Kind::Tanh { RnnActivation::Tanh } else { RnnActivation::Relu };
            rnn(&steps, activation, &w, &mut x, &mut h);
            out.clone_from(&x);
            x.clone_from(&grad_out);
            rnn_backward(&steps, activation, &w, &out, &h0, &mut x, &mut gh, Some(&mut gw));
        }
    }
    ([out, h, c], [x, gh, gc, gw, gb])
}

fn check(case: &Case, coordinates: usize) {
    let name = format!("{:?} {} {:?} reverse {}", case.kind, case.n, case.lengths, case.reverse);
    let lens = case.input_lens();
    let mut inputs: Inputs = [0, 1, 2, 3, 4].map(|i| values(lens[i], 1 + i as u64 + case.n as u64));
    let scale = (case.n as f64).powf(-0.5).min(0.5);
    inputs[3].iter_mut().for_each(|w| *w = f64::from((*w * scale) as f32));
    let expected = case.forward(&inputs);
    let mut grads = [0, 1, 2].map(|i| values(expected[i].len(), 11 + i as u64));
    if case.kind != Kind::Lstm {
        // Layers without a cell state: the kernel passes the gradient through.
        grads[2].fill(0.0);
    }
    let (found, found_grads) = kernels(case, &inputs, &grads);
    for (found, expected) in found.iter().zip(&expected) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((f64::from(*found) - expected).abs() <= 1e-5, "{name}: {found} {expected}");
        }
    }

    let loss = |inputs: &Inputs| -> f64 {
        let results = case.forward(inputs);
        results.iter().zip(&grads).map(|(y, g)| y.iter().zip(g).map(|(y, g)| y * g).sum::<f64>()).sum()
    };
    for (which, found) in found_grads.iter().enumerate() {
        let has_bias = matches!(case.kind, Kind::GruAfter | Kind::GruBefore);
        if inputs[which].is_empty() || which == 4 && !has_bias || which == 2 && case.kind != Kind::Lstm {
            continue;
        }
        let largest = found.iter().fold(1.0f64, |m, &g| m.max(f64::from(g).abs()));
        for k in 0..coordinates {
            // Always includes the first and the last element: errors are likely at the edges.
            let at = [0, found.len() - 1].get(k).copied().unwrap_or(k * 7919 % found.len());
            let mut moved = |by: f64| {
                let old = std::mem::replace(&mut inputs[which][at], f64::NAN);
                inputs[which][at] = old + by;
                let value = loss(&inputs);
                inputs[which][at] = old;
                value
            };
            let expected = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            let found = f64::from(found[at]);
            assert!((found - expected).abs() <= 1e-4 * largest, "{name}: gradient {which} at {at}: {found} {expected}");
        }
    }
}

const KINDS: [Kind; 5] = [Kind::Lstm, Kind::GruAfter, Kind::GruBefore, Kind::Tanh, Kind::Relu];

fn with_threads(threads: usize, run: impl FnOnce() + Send) {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run);
}

#[test]
fn sizes_lengths_directions_and_threads() {
    let lengths: [&[usize]; 9] = [
        &[1],
        &[5],
        &[3, 3],
        &[4, 2, 1],
        &[2, 1, 1, 1],
        &[6, 6, 5, 3, 1],
        &[3; 7],
        &[6, 5, 5, 4, 3, 3, 2, 1],
        &[5, 5, 5, 5, 5, 2, 2, 1, 1],
    ];
    for threads in 1..=4 {
        with_threads(threads, || {
            for (i, n) in [1, 2, 3, 5, 7, 8, 9, 15, 16, 17, 24, 31, 33, 48, 64, 65, 70].into_iter().enumerate() {
                for kind in KINDS {
                    for reverse in [false, true] {
                        // Over all threads and kinds, every size is combined with most of the lengths.
                        for skip in [0, 4] {
                            let lengths = lengths[(i + threads * 2 + skip + usize::from(reverse)) % lengths.len()];
                            check(&Case { kind, n, lengths: lengths.to_vec(), reverse }, if n < 32 { 12 } else { 4 });
                        }
                    }
                }
            }
        });
    }
}

#[test]
fn threads_that_share_each_product() {
    for (threads, n, lengths) in
        [(3, 530, vec![2]), (2, 517, vec![3, 1]), (4, 512, vec![3, 2, 2, 1, 1, 1]), (2, 515, vec![2; 9])]
    {
        with_threads(threads, || {
            for kind in KINDS {
                check(&Case { kind, n, lengths: lengths.clone(), reverse: threads == 2 }, 3);
            }
        });
    }
}

#[test]
fn nan_propagates_only_within_its_row() {
    for kind in KINDS {
        let case = Case { kind, n: 19, lengths: vec![4, 4, 3, 2, 1], reverse: false };
        let mut inputs: Inputs = case.input_lens().map(|len| values(len, 3));
        let grads = [case.input_lens()[0] / kind.gates(), 5 * 19, 5 * 19].map(|len| values(len, 4));
        // In the input of sequence 1 at step 1, which is packed row 6.
        inputs[0][6 * kind.gates() * 19 + 3] = f64::NAN;
        let ([out, h, _], [grad_x, ..]) = kernels(&case, &inputs, &grads);
        // The steps have 5, 4, 3 and 2 sequences.
        for (row, sequence, step) in
            [(0, 0, 0), (1, 1, 0), (5, 0, 1), (6, 1, 1), (10, 1, 2), (11, 2, 2), (12, 0, 3), (13, 1, 3)]
        {
            let nan = out[row * 19..][..19].iter().any(|y| y.is_nan());
            assert_eq!(nan, sequence == 1 && step >= 1, "{kind:?} row {row}");
        }
        assert!(h[19..2 * 19].iter().all(|h| h.is_nan()) && !h[..19].iter().any(|h| h.is_nan()));
        // The derivative of max(x, 0) is 0 or 1 even for NaN, also in PyTorch.
        let nan = grad_x[6 * kind.gates() * 19..][..19 * kind.gates()].iter().any(|g| g.is_nan());
        assert!(nan || kind == Kind::Relu, "{kind:?}");
    }
}

#[test]
fn empty_input() {
    for kind in KINDS {
        let case = Case { kind, n: 4, lengths: vec![], reverse: false };
        let inputs = case.input_lens().map(|len| values(len, 1));
        let (_, [.., grad_w, grad_b]) = kernels(&case, &inputs, &[vec![], vec![], vec![]]);
        assert!(grad_w.iter().chain(&grad_b).all(|&g| g == 0.0));
    }
}
