use super::*;
use crate::half::{HalfFormat, narrowed, widened};

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1013) as f32 / 500.0 - 1.0).collect()
}

/// Returns a convolution with stride, dilation and groups of 1.
fn dense(sizes: [usize; 5], kernel: [usize; 2], padding: [usize; 2]) -> Conv2d {
    let [batch, channels_in, height, width, channels_out] = sizes;
    let (stride, dilation, groups) = ([1, 1], [1, 1], 1);
    Conv2d { batch, channels_in, height, width, channels_out, kernel, stride, padding, dilation, groups }
}

/// Calls `f` with the indices in x, weight and output of each product.
fn products(conv: &Conv2d, mut f: impl FnMut(usize, usize, usize)) {
    let Conv2d { kernel, stride, padding, dilation, groups, .. } = *conv;
    let [rows, columns] = conv.output();
    let (each_in, each_out) = (conv.channels_in / groups, conv.channels_out / groups);
    for y_at in 0..conv.batch * conv.channels_out * rows * columns {
        let (column, row) = (y_at % columns, y_at / columns % rows);
        let (channel, image) = (y_at / columns / rows % conv.channels_out, y_at / columns / rows / conv.channels_out);
        for weight_at in 0..each_in * kernel[0] * kernel[1] {
            let (kx, ky) = (weight_at % kernel[1], weight_at / kernel[1] % kernel[0]);
            let c = channel / each_out * each_in + weight_at / kernel[1] / kernel[0];
            let (y, x) = (row * stride[0] + ky * dilation[0], column * stride[1] + kx * dilation[1]);
            if y < padding[0] || x < padding[1] || y - padding[0] >= conv.height || x - padding[1] >= conv.width {
                continue;
            }
            let x_at = ((image * conv.channels_in + c) * conv.height + y - padding[0]) * conv.width + x - padding[1];
            f(x_at, channel * each_in * kernel[0] * kernel[1] + weight_at, y_at);
        }
    }
}

fn close(what: &str, found: &[f32], expected: &[f64]) {
    let largest = expected.iter().fold(1.0f64, |largest, value| largest.max(value.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() < 1e-5 * largest, "{what}, {i}: {found} {expected}");
    }
}

fn check(conv: &Conv2d) {
    let [inputs, weights, outputs] = conv.elements();
    let (x, weight, grad) = (values(inputs, 1), values(weights, 2), values(outputs, 3));
    let (scale, shift) = (values(conv.channels_out, 4), values(conv.channels_out, 5));
    let [mut y, mut dx, mut dw] = [outputs, inputs, weights].map(|len| vec![0.0f64; len]);
    products(conv, |x_at, weight_at, y_at| {
        let wide = |values: &[f32], at: usize| f64::from(values[at]);
        y[y_at] += wide(&x, x_at) * wide(&weight, weight_at);
        dx[x_at] += wide(&grad, y_at) * wide(&weight, weight_at);
        dw[weight_at] += wide(&grad, y_at) * wide(&x, x_at);
    });
    let found = conv2d(&x, &weight, conv, Epilogue::default());
    assert_eq!(found.len(), outputs);
    close(&format!("output of {conv:?}"), &found, &y);
    let epilogue = Epilogue { scale: Some(&scale), shift: Some(&shift), residual: Some(&grad), relu: true };
    let found = conv2d(&x, &weight, conv, epilogue);
    let [rows, columns] = conv.output();
    for (i, y) in y.iter_mut().enumerate() {
        let channel = i / (rows * columns) % conv.channels_out;
        *y = (f64::from(scale[channel]) * *y + f64::from(shift[channel]) + f64::from(grad[i])).max(0.0);
    }
    close(&format!("finished output of {conv:?}"), &found, &y);
    let found = conv2d_backward_input(&weight, &grad, conv);
    assert_eq!(found.len(), inputs);
    close(&format!("gradient of the input of {conv:?}"), &found, &dx);
    let mut found = vec![f32::NAN; weights];
    conv2d_backward_weight(&x, &grad, conv, &mut found);
    close(&format!("gradient of the weights of {conv:?}"), &found, &dw);
}

/// Results are rounded once.
fn check_half(format: HalfFormat, conv: &Conv2d) {
    let [inputs, weights, outputs] = conv.elements();
    let [x, weight, grad] =
        [(inputs, 1), (weights, 2), (outputs, 3)].map(|(len, seed)| narrowed(format, &values(len, seed)));
    let (scale, shift) = (values(conv.channels_out, 4), values(conv.channels_out, 5));
    let [wide_x, wide_weight, wide_grad] = [&x, &weight, &grad].map(|values| widened(format, values));
    let epilogue = Epilogue { scale: Some(&scale), shift: Some(&shift), residual: Some(&grad[..]), relu: true };
    let wide = Epilogue { scale: Some(&scale), shift: Some(&shift), residual: Some(&wide_grad[..]), relu: true };
    let ulp = if format == HalfFormat::F16 { 1.0 / 2048.0 } else { 1.0 / 256.0 };
    let close = |what: &str, found: &[u16], expected: &[f32]| {
        assert_eq!(found.len(), expected.len());
        let largest = expected.iter().fold(1.0f32, |largest, value| largest.max(value.abs()));
        for (found, expected) in widened(format, found).iter().zip(expected) {
            let apart = (found - expected).abs();
            assert!(
                apart <= ulp * expected.abs() + 1e-5 * largest,
                "{what} of {conv:?} in {format:?}: {found} {expected}"
            );
        }
    };
    close(
        "output",
        &conv2d_half(format, &x, &weight, conv, Epilogue::default()),
        &conv2d(&wide_x, &wide_weight, conv, Epilogue::default()),
    );
    close(
        "finished output",
        &conv2d_half(format, &x, &weight, conv, epilogue),
        &conv2d(&wide_x, &wide_weight, conv, wide),
    );
    if format == HalfFormat::F16 {
        return;
    }
    if let Some(dx) = conv2d_backward_input_bf16(&weight, &grad, conv) {
        close("gradient of the input", &dx, &conv2d_backward_input(&wide_weight, &wide_grad, conv));
    }
    if let Some(dw) = conv2d_backward_weight_bf16(&x, &grad, conv) {
        let mut expected = vec![0.0; weights];
        conv2d_backward_weight(&wide_x, &wide_grad, conv, &mut expected);
        let largest = expected.iter().fold(1.0f32, |largest, dw| largest.max(dw.abs()));
        // Each is a sum of that many products of at most 1.
        let tolerance = 1e-6 * (outputs / conv.channels_out) as f32 + 1e-5 * largest;
        assert_eq!(dw.len(), weights);
        for (dw, expected) in dw.iter().zip(&expected) {
            assert!((dw - expected).abs() <= tolerance, "gradient of the weight of {conv:?}: {dw} {expected}");
        }
    }
}

/// With kernels of one element, which are products of pairs where the CPU has them, and others, which are products of tiles; with
/// odd numbers of channels and pixels, few channels, long lines, several parts of a batch, and nothing at all.
#[test]
fn sixteen_bits() {
    // Batch, input channels, height, width, output channels, groups.
    let sizes = [
        [0, 2, 5, 5, 8, 1],
        [1, 0, 5, 5, 8, 1],
        [2, 3, 9, 7, 5, 1],
        [2, 9, 7, 7, 21, 1],
        [3, 4, 7, 7, 6, 2],
        [2, 5, 70, 41, 4, 1],
        [3, 32, 128, 128, 40, 1],
        [5, 50, 4, 5, 17, 1],
        [1, 2, 3, 2500, 5, 1],
        [1, 3, 4, 3, 6, 1],
    ];
    let shapes = [
        [[1, 1], [1, 1], [0, 0], [1, 1]],
        [[1, 1], [2, 2], [0, 0], [1, 1]],
        [[1, 1], [2, 3], [0, 0], [1, 1]],
        [[1, 1], [1, 1], [1, 1], [1, 1]],
        [[3, 3], [1, 1], [1, 1], [1, 1]],
        [[3, 3], [2, 2], [1, 1], [1, 1]],
        [[3, 3], [1, 1], [3, 0], [1, 1]],
        [[1, 3], [1, 2], [0, 2], [1, 3]],
        [[2, 1], [3, 1], [4, 0], [2, 1]],
        [[4, 2], [1, 3], [3, 3], [1, 2]],
        [[2, 2], [5, 4], [0, 1], [1, 1]],
        [[7, 7], [2, 2], [3, 3], [1, 1]],
        [[5, 5], [5, 5], [1, 1], [1, 1]],
        // A gradient whose taps are farther away than there are pixels.
        [[1, 2], [1, 3], [0, 4], [1, 10]],
    ];
    for [batch, channels_in, height, width, channels_out, groups] in sizes {
        for [kernel, stride, padding, dilation] in shapes {
            let sizes = [batch, channels_in, height, width, channels_out];
            let conv = Conv2d { stride, groups, dilation, ..dense(sizes, kernel, padding) };
            check_half(HalfFormat::F16, &conv);
            check_half(HalfFormat::Bf16, &conv);
        }
    }
}

#[test]
fn threads_do_not_matter_in_16_bits() {
    for (sizes, kernel, stride) in [([5, 20, 30, 31, 24], [3, 3], [1, 1]), ([9, 30, 8, 7, 40], [3, 2], [2, 1])] {
        let conv = Conv2d { stride, ..dense(sizes, kernel, [1, 1]) };
        let [x, weight, grad] = conv.elements().map(|len| narrowed(HalfFormat::Bf16, &values(len, len)));
        let of = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let y = conv2d_half(HalfFormat::Bf16, &x, &weight, &conv, Epilogue::default());
                let dx = conv2d_backward_input_bf16(&weight, &grad, &conv);
                (y, dx, conv2d_backward_weight_bf16(&x, &grad, &conv))
            })
        };
        let one = of(1);
        assert!([2, 3, 8].iter().all(|&threads| of(threads) == one), "threads of {conv:?}");
    }
}

#[test]
fn values_and_gradients() {
    // Batch, input channels, height, width, output channels, groups.
    let sizes = [
        [0, 2, 5, 5, 3, 1],
        [1, 1, 1, 1, 1, 1],
        [1, 0, 5, 5, 3, 1],
        [2, 3, 9, 7, 5, 1],
        [3, 4, 7, 7, 6, 2],
        [1, 6, 12, 31, 6, 6],
        [5, 50, 4, 5, 17, 1],
        [1, 8, 33, 20, 64, 1],
        [2, 150, 6, 6, 70, 1],
    ];
    // Kernel, stride, padding, dilation.
    let shapes = [
        [[1, 1], [1, 1], [0, 0], [1, 1]],
        [[1, 1], [2, 2], [0, 0], [1, 1]],
        [[3, 3], [1, 1], [1, 1], [1, 1]],
        [[3, 3], [2, 2], [1, 1], [1, 1]],
        [[1, 3], [1, 2], [0, 2], [1, 3]],
        [[2, 1], [3, 1], [4, 0], [2, 1]],
        [[7, 7], [2, 2], [3, 3], [1, 1]],
        [[4, 2], [1, 3], [3, 3], [1, 2]],
    ];
    // Miri would take hours for the other sizes.
    let sizes = if cfg!(miri) { &sizes[..4] } else { &sizes[..] };
    for &[batch, channels_in, height, width, channels_out, groups] in sizes {
        for [kernel, stride, padding, dilation] in shapes {
            check(&Conv2d {
                batch,
                channels_in,
                height,
                width,
                channels_out,
                kernel,
                stride,
                padding,
                dilation,
                groups,
            });
        }
    }
}

/// Large enough for Winograd; with partial tiles, several images per task, several tasks, and several threads per image.
#[test]
fn minimal_filtering() {
    let sizes = [[1, 32, 33, 20, 32], [2, 35, 17, 75, 40], [5, 33, 6, 7, 39], [20, 32, 3, 3, 38], [8, 64, 7, 7, 70]];
    for [batch, channels_in, height, width, channels_out] in sizes {
        for padding in [[1, 1], [0, 2]] {
            let conv = dense([batch, channels_in, height, width, channels_out], [3, 3], padding);
            check(&conv);
            same_with_threads(&conv);
        }
    }
}

/// Large enough to be read in place; with planes that end within a panel and within a pair, several images and groups, and
/// several threads per image.
#[test]
fn planes() {
    // Batch, input channels, height, width, output channels, groups.
    let sizes = [[1, 8, 33, 20, 64, 1], [3, 50, 16, 17, 23, 1], [2, 6, 21, 13, 4, 2], [1, 0, 16, 16, 3, 1]];
    for [batch, channels_in, height, width, channels_out, groups] in sizes {
        let conv = Conv2d { groups, ..dense([batch, channels_in, height, width, channels_out], [1, 1], [0, 0]) };
        check(&conv);
        same_with_threads(&conv);
    }
}

/// The kernel is so large that gradients are divided by channels, and one thread gets no channels.
#[test]
fn a_thread_without_channels() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    pool.install(|| check(&dense([1, 1, 25, 25, 20], [23, 23], [0, 0])));
}

/// Asserts that the results do not depend on the number of threads.
fn same_with_threads(conv: &Conv2d) {
    let [inputs, weights, outputs] = conv.elements();
    let (x, weight) = (values(inputs, 1), values(weights, 2));
    let of = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| conv2d(&x, &weight, conv, Epilogue::default()))
    };
    let one = of(1);
    assert_eq!(one.len(), outputs);
    assert!([2, 3, 8].iter().all(|&threads| of(threads) == one), "threads of {conv:?}");
}

#[test]
fn nan_propagates() {
    let conv = dense([1, 2, 5, 5, 3], [3, 3], [1, 1]);
    let (mut x, weight) = (vec![0.5; 50], vec![0.0; 54]);
    x[12] = f32::NAN;
    let y = conv2d(&x, &weight, &conv, Epilogue { relu: true, ..Epilogue::default() });
    for (i, y) in y.iter().enumerate() {
        let (row, column) = (i / 5 % 5, i % 5);
        assert_eq!(y.is_nan(), (1..4).contains(&row) && (1..4).contains(&column));
    }
    let conv = Conv2d { height: 20, width: 20, kernel: [1, 1], padding: [0, 0], ..conv };
    let (mut x, weight) = (vec![0.5; 800], vec![0.0; 6]);
    x[399] = f32::NAN;
    let y = conv2d(&x, &weight, &conv, Epilogue { relu: true, ..Epilogue::default() });
    assert!(y.iter().enumerate().all(|(i, y)| y.is_nan() == (i % 400 == 399)));
}
