//! Tests of deterministic mode, and of the unconditional guarantee: the same bits with any number of threads.

#[allow(dead_code)] // The layers in f64 are for another test.
mod common;

use std::sync::{Mutex, MutexGuard, PoisonError};

use common::{Case, Kind, narrow, values};
use grove_kernels::{
    Conv2d, Epilogue, GruReset, RnnActivation, Steps, conv2d, conv2d_backward_input, conv2d_backward_weight,
    deterministic, gru, gru_backward, lstm, lstm_backward, rnn, rnn_backward, set_deterministic,
};

/// Sets the mode, which is global to the process, and excludes other tests while the guard is held.
fn mode(on: bool) -> MutexGuard<'static, ()> {
    static MODE: Mutex<()> = Mutex::new(());
    let guard = MODE.lock().unwrap_or_else(PoisonError::into_inner);
    set_deterministic(on);
    guard
}

fn on_threads<R: Send>(threads: usize, run: impl FnOnce() -> R + Send) -> R {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(run)
}

fn numbers(len: usize, seed: u64) -> Vec<f32> {
    narrow(&values(len, seed))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Returns a convolution from `[batch, channels_in, height, width, channels_out]` and groups.
fn conv(sizes: [usize; 5], groups: usize, kernel: usize, stride: usize, padding: usize) -> Conv2d {
    let [batch, channels_in, height, width, channels_out] = sizes;
    let (kernel, stride, padding) = ([kernel; 2], [stride; 2], [padding; 2]);
    Conv2d { batch, channels_in, height, width, channels_out, kernel, stride, padding, dilation: [1, 1], groups }
}

fn outputs(conv: &Conv2d) -> usize {
    let [rows, columns] = conv.output();
    conv.channels_out * rows * columns
}

fn inputs(conv: &Conv2d) -> usize {
    conv.channels_in * conv.height * conv.width
}

fn weights(conv: &Conv2d) -> usize {
    conv.channels_out * conv.channels_in / conv.groups * conv.kernel[0] * conv.kernel[1]
}

/// Convolutions for Winograd, pointwise and in-place ones, strided ones, and some with one column more than whole panels;
/// with few channels and many pixels, whose weight gradients have several shares, and vice versa.
fn convolutions() -> Vec<Conv2d> {
    vec![
        conv([5, 33, 18, 21, 38], 1, 3, 1, 1),
        conv([3, 32, 16, 16, 64], 1, 3, 1, 1),
        conv([9, 3, 65, 67, 20], 1, 3, 1, 0),
        conv([40, 5, 28, 28, 12], 1, 3, 2, 1),
        conv([3, 100, 7, 7, 70], 1, 1, 1, 0),
        conv([30, 24, 23, 23, 40], 1, 1, 1, 0),
        conv([2, 300, 5, 7, 20], 1, 3, 1, 1),
        conv([7, 12, 30, 31, 18], 3, 5, 2, 2),
    ]
}

#[test]
fn threads_do_not_change_convolutions() {
    let _mode = mode(true);
    for conv in convolutions() {
        let (x, weight) = (numbers(conv.batch * inputs(&conv), 1), numbers(weights(&conv), 2));
        let grad = numbers(conv.batch * outputs(&conv), 3);
        let run = |threads: usize| {
            on_threads(threads, || {
                let mut gradient = vec![f32::NAN; weight.len()];
                conv2d_backward_weight(&x, &grad, &conv, &mut gradient);
                let y = conv2d(&x, &weight, &conv, Epilogue::default());
                [y, conv2d_backward_input(&weight, &grad, &conv), gradient].map(|values| bits(&values))
            })
        };
        let one = run(1);
        for threads in [2, 3, 8] {
            let several = run(threads);
            for (i, what) in ["output", "gradient of the input", "gradient of the weights"].iter().enumerate() {
                assert!(several[i] == one[i], "{what} on {threads} threads of {conv:?}");
            }
        }
    }
}

#[test]
fn the_rest_of_a_batch_does_not_change_an_image() {
    let _mode = mode(true);
    for conv in convolutions() {
        let alone = Conv2d { batch: 1, ..conv };
        let (x, weight) = (numbers(conv.batch * inputs(&conv), 4), numbers(weights(&conv), 5));
        let grad = numbers(conv.batch * outputs(&conv), 6);
        let (y, dx) = (conv2d(&x, &weight, &conv, Epilogue::default()), conv2d_backward_input(&weight, &grad, &conv));
        for image in 0..conv.batch {
            let at = image * inputs(&conv)..(image + 1) * inputs(&conv);
            let to = image * outputs(&conv)..(image + 1) * outputs(&conv);
            let y_alone = conv2d(&x[at.clone()], &weight, &alone, Epilogue::default());
            assert!(bits(&y_alone) == bits(&y[to.clone()]), "image {image} of {conv:?}");
            let dx_alone = conv2d_backward_input(&weight, &grad[to], &alone);
            assert!(bits(&dx_alone) == bits(&dx[at]), "gradient of image {image} of {conv:?}");
        }
    }
}

/// Infinities and NaN propagate to the outputs whose windows contain them, and to the gradients of the weights that they are
/// multiplied with.
#[test]
fn non_finite_values_affect_only_their_window() {
    let _mode = mode(true);
    // The first one is large enough for Winograd.
    for conv in [conv([2, 40, 20, 21, 36], 1, 3, 1, 1), conv([2, 3, 20, 30, 5], 1, 3, 1, 0)] {
        let [rows, columns] = conv.output();
        let (weight, grad) = (numbers(weights(&conv), 7), numbers(conv.batch * outputs(&conv), 8));
        for (value, [row, column]) in [
            (f32::NAN, [9, 10]),
            (f32::INFINITY, [9, 10]),
            (f32::NEG_INFINITY, [5, 0]),
            (f32::NAN, [0, conv.width - 1]),
        ] {
            let mut x = numbers(conv.batch * inputs(&conv), 9);
            let channel = 1;
            x[inputs(&conv) + (channel * conv.height + row) * conv.width + column] = value;
            let y = conv2d(&x, &weight, &conv, Epilogue::default());
            let near = |output: usize, input: usize| (output..output + 3).contains(&(input + conv.padding[0]));
            for (at, y) in y.iter().enumerate() {
                let (image, [i, j]) = (at / outputs(&conv), [at / columns % rows, at % columns]);
                let seen = image == 1 && near(i, row) && near(j, column);
                assert_eq!(!y.is_finite(), seen, "{value} at {row}, {column}: {y} at {i}, {j} of image {image}");
            }
            let mut gradient = vec![0.0; weight.len()];
            conv2d_backward_weight(&x, &grad, &conv, &mut gradient);
            for (at, gradient) in gradient.iter().enumerate() {
                let [tap_row, tap_column] = [at / 3 % 3, at % 3];
                // The output pixel that uses the value with this weight, if any.
                let meets = |input: usize, tap: usize, size: usize| {
                    (input + conv.padding[0]).checked_sub(tap).is_some_and(|output| output < size)
                };
                let seen = at / 9 % conv.channels_in == channel
                    && meets(row, tap_row, rows)
                    && meets(column, tap_column, columns);
                assert_eq!(!gradient.is_finite(), seen, "{value} at {row}, {column}: {gradient} of weight {at}");
            }
        }
    }
}

/// Without the mode these sizes use Winograd, whose last bits differ.
#[test]
fn the_mode_makes_a_difference() {
    for conv in [conv([5, 33, 18, 21, 38], 1, 3, 1, 1), conv([2, 40, 20, 21, 36], 1, 3, 1, 1)] {
        let (x, weight) = (numbers(conv.batch * inputs(&conv), 1), numbers(weights(&conv), 2));
        let run = |on: bool| {
            let _mode = mode(on);
            assert_eq!(deterministic(), on);
            conv2d(&x, &weight, &conv, Epilogue::default())
        };
        let (exact, fast) = (run(true), run(false));
        assert_ne!(bits(&exact), bits(&fast));
        assert!(exact.iter().zip(&fast).all(|(exact, fast)| (exact - fast).abs() < 1e-3));
    }
}

/// Forward and backward passes of all kinds, with batches so small or so large that threads share products, and batches for
/// which threads process separate sequences. Holds in any mode.
#[test]
fn threads_do_not_change_recurrent_layers() {
    for kind in [Kind::Lstm, Kind::GruAfter, Kind::GruBefore, Kind::Tanh, Kind::Relu] {
        let long = (1 << 26) / (kind.gates() * 256 * 256) + 1;
        for (n, lengths) in [(520, vec![5, 2]), (513, vec![3; 5]), (256, vec![2; long.min(400)]), (48, vec![4; 11])] {
            let case = Case { kind, n, lengths, reverse: false };
            let one = on_threads(1, || layer(&case));
            for threads in [2, 3, 8] {
                assert!(on_threads(threads, || layer(&case)) == one, "{kind:?} of {n} units on {threads} threads");
            }
        }
    }
}

/// Returns the bits of all results and gradients.
fn layer(case: &Case) -> Vec<Vec<u32>> {
    let steps = Steps::new(&case.sizes(), case.reverse);
    let lens = case.input_lens();
    let [mut x, h0, c0, w, b] = [0, 1, 2, 3, 4].map(|i| numbers(lens[i], i as u64));
    let rows = case.lengths.iter().sum::<usize>() * case.n;
    let (grad, mut gh, mut gc) = (numbers(rows, 5), numbers(h0.len(), 6), numbers(c0.len(), 7));
    // Small enough that not all gates saturate.
    let w: Vec<f32> = w.iter().map(|w| w / (case.n as f32).sqrt()).collect();
    let (mut h, mut c, mut out, mut saved) = (h0.clone(), c0.clone(), vec![0.0; rows], vec![0.0; rows]);
    let (mut gw, mut gb) = (vec![0.0; w.len()], vec![0.0; b.len()]);
    match case.kind {
        Kind::Lstm => {
            lstm(&steps, &w, &mut x, &mut h, &mut c, &mut out, Some(&mut saved));
            lstm_backward(&steps, &w, &mut x, &out, &saved, &h0, &c0, &grad, &mut gh, &mut gc, Some(&mut gw));
        }
        Kind::GruAfter | Kind::GruBefore => {
            let reset = if case.kind == Kind::GruAfter { GruReset::After } else { GruReset::Before };
            gru(&steps, reset, &w, &b, &mut x, &mut h, &mut out, &mut saved);
            let (x, saved) = (&mut x, &mut saved);
            gru_backward(&steps, reset, &w, x, saved, &out, &h0, &grad, &mut gh, Some(&mut gw), &mut gb);
        }
        Kind::Tanh | Kind::Relu => {
            let activation = if case.kind == Kind::Tanh { RnnActivation::Tanh } else { RnnActivation::Relu };
            rnn(&steps, activation, &w, &mut x, &mut h);
            out.clone_from(&x);
            x.clone_from(&grad);
            rnn_backward(&steps, activation, &w, &out, &h0, &mut x, &mut gh, Some(&mut gw));
        }
    }
    [out, h, c, x, gh, gc, gw, gb].iter().map(|values| bits(values)).collect()
}

/// Run by the test below, in its own process.
#[test]
#[ignore = "another test runs it"]
fn prints_the_mode_of_the_environment() {
    println!("deterministic: {}", deterministic());
}

#[test]
fn the_environment_variable_enables_it() {
    for (value, on) in [(Some("1"), true), (Some("true"), true), (Some("0"), false), (Some(""), false), (None, false)] {
        let mut process = std::process::Command::new(std::env::current_exe().unwrap());
        process.args(["--exact", "prints_the_mode_of_the_environment", "--ignored", "--nocapture"]);
        process.env_remove("GROVE_DETERMINISTIC").envs(value.map(|value| ("GROVE_DETERMINISTIC", value)));
        let stdout = String::from_utf8(process.output().unwrap().stdout).unwrap();
        assert!(stdout.contains(&format!("deterministic: {on}")), "{value:?}: {stdout}");
    }
}
