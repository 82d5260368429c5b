//! 16-bit floats at magnitudes that occur in networks: results and gradients against f64 arithmetic on the same rounded
//! inputs.
#![cfg(all(feature = "flex", feature = "candle"))]

use crate::against::{self, values};
use crate::common;
use burn::tensor::{DType, Int, Tensor, TensorData};
use grove_backend::{
    AnyTensor, AttentionOptions, Autodiff, Backend, Conv2dOptions, Epilogue, Flex, GeluApproximation, KeyRanges,
    ops::{self, BatchNorm, RowNorm},
};

/// Returns the dtypes that a backend computes in, with their machine epsilons.
fn types<B: Backend>(device: &B::Device) -> Vec<(DType, f64)> {
    let all = [(DType::F16, 2f64.powi(-10)), (DType::BF16, 2f64.powi(-7))];
    all.into_iter().filter(|(dtype, _)| B::computes_in(device, *dtype)).collect()
}

/// Returns pseudo-random values between -1 and 1, scaled, shifted and rounded to a dtype: the tensor and its values.
fn numbers<B: Backend, const D: usize>(
    shape: [usize; D],
    seed: u64,
    [factor, term]: [f32; 2],
    dtype: DType,
    device: &B::Device,
) -> (Tensor<B, D>, Vec<f64>) {
    let x = against::numbers::<B, D>(shape, seed, device).mul_scalar(factor).add_scalar(term).cast(dtype);
    let values = values(x.clone());
    (x, values)
}

fn close(what: &str, found: &[f64], expected: &[f64], tolerance: f64) {
    let (apart, largest) = common::distance(found, expected);
    assert!(apart <= tolerance * largest, "{what}: apart by {apart} of {largest}");
}

fn lift<B: Backend, const D: usize>(x: &Tensor<B, D>) -> Tensor<Autodiff<B>, D> {
    Tensor::from_inner(x.clone()).require_grad()
}

/// Returns the values of the gradient of `x`, which must have the dtype of `x`.
fn gradient<B: Backend, const D: usize>(
    x: &Tensor<Autodiff<B>, D>,
    grads: &<Autodiff<B> as burn::tensor::backend::AutodiffBackend>::Gradients,
) -> Vec<f64> {
    let grad = x.grad(grads).expect("a gradient");
    assert_eq!(grad.dtype(), x.dtype(), "a gradient has its leaf's type");
    values(grad)
}

/// Returns normalised rows in f64, and the gradient of their sum times `dy`.
fn norm_in_f64(x: &[f64], w: &[f64], dy: &[f64], centred: bool) -> [Vec<f64>; 3] {
    let (size, mut y, mut dx, mut dw) = (w.len(), vec![], vec![], vec![0.0; w.len()]);
    for (x, dy) in x.chunks(size).zip(dy.chunks(size)) {
        let n = size as f64;
        let mean = if centred { x.iter().sum::<f64>() / n } else { 0.0 };
        let inverse = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
        let normal: Vec<f64> = x.iter().map(|x| (x - mean) * inverse).collect();
        let scaled: Vec<f64> = dy.iter().zip(w).map(|(dy, w)| dy * w).collect();
        let along = scaled.iter().zip(&normal).map(|(s, n)| s * n).sum::<f64>() / n;
        let rest = if centred { scaled.iter().sum::<f64>() / n } else { 0.0 };
        for i in 0..size {
            y.push(normal[i] * w[i]);
            dx.push((scaled[i] - rest - normal[i] * along) * inverse);
            dw[i] += dy[i] * normal[i];
        }
    }
    [y, dx, dw]
}

fn row_norms_with_large_deviations<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        for (centred, factor, term) in
            [(true, 3000.0, 500.0), (true, 1.0, 3000.0), (false, 3000.0, 0.0), (true, 1.0, 0.0)]
        {
            let (rows, size) = (5, 320);
            let (mut x, _) = numbers::<B, 2>([rows, size], 1, [factor, term], dtype, &device);
            if factor == 1.0 && term == 0.0 {
                // One channel is an outlier, as in GPT-2.
                x = x.slice_assign([0..rows, 7..8], Tensor::<B, 2>::full([rows, 1], 2500.0, &device).cast(dtype));
            }
            let given = values(x.clone());
            let (w, weight) = numbers::<B, 1>([size], 2, [0.5, 1.0], dtype, &device);
            let (b, _) = numbers::<B, 1>([size], 3, [0.0, 0.0], dtype, &device);
            let (dy, slopes) = numbers::<B, 2>([rows, size], 4, [1.0, 0.0], dtype, &device);
            let (x, w, b) = (lift(&x), lift(&w), lift(&b));
            let bias = centred.then(|| b.clone());
            let (y, stats) = ops::row_norm(x.clone(), w.clone(), bias, RowNorm { centred, eps: 1e-5 });
            assert_eq!(stats.dtype(), DType::F32, "statistics are f32");
            assert_eq!(y.dtype(), dtype);
            let grads = (y.clone() * Tensor::<Autodiff<B>, 2>::from_inner(dy)).cast(DType::F32).sum().backward();
            let [expected, dx, dw] = norm_in_f64(&given, &weight, &slopes, centred);
            let what = format!("{dtype:?} {centred} {factor} {term}");
            close(&what, &values(y.inner()), &expected, ulp);
            close(&format!("{what}, dx"), &gradient(&x, &grads), &dx, 2.0 * ulp);
            close(&format!("{what}, dw"), &gradient(&w, &grads), &dw, 2.0 * ulp);
            if centred {
                let db: Vec<f64> = (0..size).map(|i| slopes.iter().skip(i).step_by(size).sum()).collect();
                close(&format!("{what}, db"), &gradient(&b, &grads), &db, 2.0 * ulp);
            }
        }
    }
}

/// Planes of 112 x 112 values in the hundreds, whose sums exceed f16, with another dtype for scale and shift.
fn batch_norm_of_large_planes<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        for of_weight in [dtype, DType::F32] {
            let [b, c, n] = [2, 2, 112 * 112];
            let (x, given) = numbers::<B, 4>([b, c, 112, 112], 1, [900.0, 200.0], dtype, &device);
            let (w, weight) = numbers::<B, 1>([c], 2, [0.5, 1.0], of_weight, &device);
            let (shift, bias) = numbers::<B, 1>([c], 3, [0.5, 0.0], of_weight, &device);
            let (r, residual) = numbers::<B, 4>([b, c, 112, 112], 5, [1.0, 0.0], dtype, &device);
            let (dy, slopes) = numbers::<B, 4>([b, c, 112, 112], 4, [1.0, 0.5], dtype, &device);
            let (x, w, shift, r) = (lift(&x), lift(&w), lift(&shift), lift(&r));
            let options = BatchNorm { relu: true, eps: 1e-5 };
            let normed = ops::batch_norm(x.clone(), w.clone(), shift.clone(), Some(r.clone()), options);
            let (y, mean, variance) = (normed.output, normed.mean, normed.variance);
            assert_eq!((mean.dtype(), variance.dtype()), (DType::F32, DType::F32));
            assert_eq!(y.dtype(), dtype);
            let found = values(y.clone().inner());
            let grads = (y * Tensor::<Autodiff<B>, 4>::from_inner(dy)).cast(DType::F32).sum().backward();

            let (mut expected, mut dx) = (vec![0.0; given.len()], vec![0.0; given.len()]);
            let (mut dr, mut dw, mut db) = (vec![0.0; given.len()], vec![0.0; c], vec![0.0; c]);
            let (mut means, mut variances) = (vec![], vec![]);
            for channel in 0..c {
                let places: Vec<usize> = (0..b).flat_map(|i| (0..n).map(move |j| (i * c + channel) * n + j)).collect();
                let count = places.len() as f64;
                let mean = places.iter().map(|&p| given[p]).sum::<f64>() / count;
                let variance = places.iter().map(|&p| (given[p] - mean).powi(2)).sum::<f64>() / count;
                let inverse = 1.0 / (variance + 1e-5).sqrt();
                let normal = |p: usize| (given[p] - mean) * inverse;
                for &p in &places {
                    expected[p] = (normal(p) * weight[channel] + bias[channel] + residual[p]).max(0.0);
                    // If the rounded output is 0, the derivative is 0 too.
                    dr[p] = if found[p] > 0.0 { slopes[p] } else { 0.0 };
                    dw[channel] += dr[p] * normal(p);
                    db[channel] += dr[p];
                }
                for &p in &places {
                    let rest = dr[p] - db[channel] / count - normal(p) * dw[channel] / count;
                    dx[p] = rest * inverse * weight[channel];
                }
                means.push(mean);
                variances.push(variance);
            }
            let what = format!("{dtype:?} {of_weight:?}");
            close(&what, &found, &expected, 2.0 * ulp);
            close(&format!("{what}, mean"), &values(mean.inner()), &means, 1e-5);
            close(&format!("{what}, variance"), &values(variance.inner()), &variances, 1e-5);
            close(&format!("{what}, dx"), &gradient(&x, &grads), &dx, 2.0 * ulp);
            close(&format!("{what}, dr"), &gradient(&r, &grads), &dr, ulp);
            close(&format!("{what}, dw"), &gradient(&w, &grads), &dw, 2.0 * ulp);
            close(&format!("{what}, db"), &gradient(&shift, &grads), &db, 2.0 * ulp);
        }
    }
}

/// The epilogue of a convolution takes f32 parameters with 16-bit inputs, and its intermediate results may exceed the range
/// of f16.
fn epilogue_in_f32<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        let (x, given) = numbers::<B, 4>([1, 1, 4, 4], 1, [1000.0, 0.0], dtype, &device);
        let weight = Tensor::<B, 4>::full([1, 1, 1, 1], 32.0, &device).cast(dtype);
        let row = |value: f32| Tensor::<B, 1>::full([1], value, &device);
        // 32 x - 40000 for x up to 1000, times 16, divided by 16.
        let epilogue = Epilogue { scale: row(0.0625), shift: row(-400.0), residual: None, relu: false };
        let y = ops::conv2d_fused(x, weight, epilogue, Conv2dOptions::default());
        assert_eq!(y.dtype(), dtype);
        let expected: Vec<f64> = given.iter().map(|x| 32.0 * x * 0.0625 - 400.0).collect();
        close(&format!("{dtype:?}"), &values(y), &expected, 2.0 * ulp);
    }
}

fn softmax_of_many<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        let (rows, size) = (3, 4096);
        let (x, given) = numbers::<B, 4>([1, 1, rows, size], 1, [2000.0, 0.0], dtype, &device);
        // The elements of the first row are equal: neither dtype can represent the sum of 4096 ones when accumulated in
        // order.
        let x =
            x.slice_assign([0..1, 0..1, 0..1, 0..size], Tensor::<B, 4>::zeros([1, 1, 1, size], &device).cast(dtype));
        let (dy, slopes) = numbers::<B, 4>([1, 1, rows, size], 2, [1.0, 0.0], dtype, &device);
        let x = lift(&x);
        let y = ops::masked_softmax(x.clone(), 0.01, &KeyRanges::default());
        let grads = (y.clone() * Tensor::<Autodiff<B>, 4>::from_inner(dy)).cast(DType::F32).sum().backward();
        let (found, dx) = (values(y.inner()), gradient(&x, &grads));
        for row in 0..rows {
            let at = row * size..(row + 1) * size;
            let scores = given[at.clone()].iter().map(|x| if row == 0 { 0.0 } else { 0.01 * x });
            let e: Vec<f64> = scores.map(f64::exp).collect();
            let sum: f64 = e.iter().sum();
            let p: Vec<f64> = e.iter().map(|e| e / sum).collect();
            let mean: f64 = p.iter().zip(&slopes[at.clone()]).map(|(p, dy)| p * dy).sum();
            let expected: Vec<f64> = p.iter().zip(&slopes[at.clone()]).map(|(p, dy)| 0.01 * p * (dy - mean)).collect();
            close(&format!("{dtype:?} row {row}"), &found[at.clone()], &p, ulp);
            // f16's numbers below 6e-5 are further apart; these are about 1e-6.
            let (apart, largest) = common::distance(&dx[at], &expected);
            assert!(apart <= 6e-8 + 2.0 * ulp * largest, "{dtype:?} row {row}: {apart} of {largest}");
        }
    }
}

/// Dot products of queries and keys of 83,000, which exceed the range of f16 before they are scaled.
fn attention_of_large_queries<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        for (kv, t, keep) in [(2, 6, false), (2, 6, true), (1, 6, true), (1, 1, false)] {
            let (heads, s, d) = (2, 6, 64);
            let (q, _) = numbers::<B, 4>([1, heads, t, d], 1, [1.0, 36.0], dtype, &device);
            let (k, _) = numbers::<B, 4>([1, kv, s, d], 2, [1.0, 36.0], dtype, &device);
            let (v, _) = numbers::<B, 4>([1, kv, s, d], 3, [1000.0, 0.0], dtype, &device);
            let wide = |x: &Tensor<B, 4>| {
                let x = x.clone().into_data().convert_dtype(DType::F32);
                Tensor::<Flex, 4>::from_data(x, &Default::default()).cast(DType::F64)
            };
            let all = |x: Tensor<Flex, 4>| x.repeat_dim(1, heads / kv);
            let scores = wide(&q).matmul(all(wide(&k)).swap_dims(2, 3)).mul_scalar(0.125);
            let ahead: Vec<i64> = (0..t * s).map(|i| i64::from(i % s > i / s + s - t)).collect();
            let ahead = Tensor::<Flex, 4, Int>::from_data(TensorData::new(ahead, [1, 1, t, s]), &Default::default());
            let scores = scores.mask_fill(ahead.equal_elem(1).expand([1, heads, t, s]), -1e30);
            let e = (scores.clone() - scores.max_dim(3)).exp();
            let expected = values((e.clone() / e.sum_dim(3)).matmul(all(wide(&v))));
            let y = if keep {
                let options = AttentionOptions::new(0.125, KeyRanges::new(true));
                ops::attention(lift(&q), lift(&k), lift(&v), options).inner()
            } else {
                ops::attention(q.clone(), k.clone(), v.clone(), AttentionOptions::new(0.125, KeyRanges::new(true)))
            };
            assert_eq!(y.dtype(), dtype);
            // GPUs round the scores to 16 bits when tensor cores store them.
            let tolerance = if B::FUSES { 1.0 } else { 4.0 * ulp };
            close(&format!("{dtype:?} {kv} {t} {keep}"), &values(y), &expected, tolerance);
        }
    }
}

/// Sums of thousands of equal values, which are wrong if accumulated in 16 bits.
fn long_sums<B: Backend>(device: B::Device) {
    let count = 6144;
    for (dtype, ulp) in types::<B>(&device) {
        let ones = |shape: [usize; 3]| Tensor::<B, 3>::ones(shape, &device).cast(dtype);
        // Gradients of a table row that all indices select, and of a bias.
        let table = lift(&Tensor::<B, 2>::zeros([3, 2], &device).cast(dtype));
        let indices = Tensor::<Autodiff<B>, 2, Int>::from_data(TensorData::new(vec![1i64; count], [1, count]), &device);
        let grads = ops::embedding(table.clone(), indices).cast(DType::F32).sum().backward();
        close("embedding", &gradient(&table, &grads), &[0.0, 0.0, count as f64, count as f64, 0.0, 0.0], ulp);

        let weight = Tensor::<B, 2>::ones([1, 2], &device).cast(dtype);
        let bias = lift(&Tensor::<B, 1>::zeros([2], &device).cast(dtype));
        let x = Tensor::<Autodiff<B>, 3>::from_inner(ones([2, count / 2, 1]));
        let weight = Tensor::<Autodiff<B>, 2>::from_inner(weight);
        let grads = ops::linear(x, weight, Some(bias.clone())).cast(DType::F32).sum().backward();
        close("bias", &gradient(&bias, &grads), &[count as f64; 2], ulp);

        let squares =
            ops::sum_of_squares::<B>(vec![AnyTensor::from(ones([1, count, 1]).mul_scalar(300.0))]).expect("a sum");
        assert_eq!(squares.dtype(), DType::F32);
        // candle sums f32 values in order.
        close("squares", &values(squares), &[90_000.0 * count as f64], 1e-3);

        let logits = lift(&Tensor::<B, 2>::zeros([2, count], &device).cast(dtype));
        let labels = Tensor::<Autodiff<B>, 1, Int>::from_data([0i64, 5], &device);
        let (losses, normaliser) = ops::nll(logits.clone(), labels);
        assert_eq!(normaliser.dtype(), DType::F32);
        let grads = losses.clone().cast(DType::F32).sum().backward();
        let uniform = (count as f64).ln();
        close("nll", &values(losses.inner()), &[uniform; 2], ulp);
        close("its normaliser", &values(normaliser.inner()), &[uniform; 2], 1e-6);
        let grad = gradient(&logits, &grads);
        close("its gradient", &grad[count + 4..count + 6], &[1.0 / count as f64, 1.0 / count as f64 - 1.0], ulp);
    }
}

/// Returns `a b`, `[m, n]`, in f64.
fn product(a: &[f64], b: &[f64], [m, k, n]: [usize; 3]) -> Vec<f64> {
    let at = |i: usize, j: usize| (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
    (0..m * n).map(|place| at(place / n, place % n)).collect()
}

/// Returns the transpose of an `[m, n]` matrix.
fn transposed(a: &[f64], [m, n]: [usize; 2]) -> Vec<f64> {
    (0..m * n).map(|place| a[place % m * n + place / m]).collect()
}

/// Layers and their gradients with few and many rows, odd sizes, and both layouts of the weight. candle rounds a product and
/// its sum with the bias.
fn linear_layers<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        let ulp = 2.0 * ulp;
        for [rows, i, o] in [[1, 40, 33], [3, 7, 5], [29, 300, 41], [70, 31, 64], [130, 64, 3]] {
            for turned in [false, true] {
                let shape = if turned { [o, i] } else { [i, o] };
                let (x, x_values) = numbers::<B, 3>([1, rows, i], 1, [1.0, 0.1], dtype, &device);
                let (weight, stored) = numbers::<B, 2>(shape, 2, [1.0, 0.1], dtype, &device);
                let (bias, bias_values) = numbers::<B, 1>([o], 3, [1.0, 0.0], dtype, &device);
                let (dy, dy_values) = numbers::<B, 3>([1, rows, o], 4, [1.0, 0.1], dtype, &device);
                let w = if turned { transposed(&stored, [o, i]) } else { stored };
                let (x, weight, bias) = (lift(&x), lift(&weight), lift(&bias));
                let used = if turned { weight.clone().swap_dims(0, 1) } else { weight.clone() };
                let y = ops::linear(x.clone(), used, Some(bias.clone()));
                assert_eq!(y.dtype(), dtype);
                let grads = (y.clone().cast(DType::F32) * Tensor::from_inner(dy.cast(DType::F32))).sum().backward();
                let what = format!("{dtype:?} {rows} {i} {o} {turned}");
                let expected: Vec<_> = product(&x_values, &w, [rows, i, o])
                    .iter()
                    .enumerate()
                    .map(|(place, sum)| sum + bias_values[place % o])
                    .collect();
                close(&what, &values(y.inner()), &expected, ulp);
                let dx = product(&dy_values, &transposed(&w, [i, o]), [rows, o, i]);
                close(&format!("{what}: dx"), &gradient(&x, &grads), &dx, ulp);
                let dw = product(&transposed(&x_values, [rows, i]), &dy_values, [i, rows, o]);
                let dw = if turned { transposed(&dw, [i, o]) } else { dw };
                close(&format!("{what}: dw"), &gradient(&weight, &grads), &dw, ulp);
                let db = product(&vec![1.0; rows], &dy_values, [1, rows, o]);
                close(&format!("{what}: db"), &gradient(&bias, &grads), &db, ulp);
            }
        }
    }
}

/// Activations and their derivatives far from 0, where squares overflow, and near 0, where `1 + erf` loses small values.
fn activations_everywhere<B: Backend>(device: B::Device) {
    let gelu = |x: f64| 0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh());
    let slope = |x: f64| {
        let tanh = (0.797_884_560_802_865_4 * (x + 0.044_715 * x.powi(3))).tanh();
        0.5 * (1.0 + tanh) + 0.5 * x * (1.0 - tanh * tanh) * 0.797_884_560_802_865_4 * (1.0 + 3.0 * 0.044_715 * x * x)
    };
    let silu = |x: f64| x / (1.0 + (-x).exp());
    for (dtype, ulp) in types::<B>(&device) {
        let x = Tensor::<B, 1>::from_floats([-3000.0, -300.0, -4.0, -2.0, -0.5, 0.0, 0.5, 2.0, 300.0, 3000.0], &device);
        let x = x.cast(dtype);
        let given = values(x.clone());
        let x = lift(&x);
        let y = ops::gelu(x.clone(), GeluApproximation::Tanh);
        let grads = y.clone().cast(DType::F32).sum().backward();
        let each = |what: &str, found: &[f64], expected: Vec<f64>| {
            for (found, expected) in found.iter().zip(expected) {
                let near = (found - expected).abs() <= ulp * expected.abs() + 1e-6;
                assert!(near, "{what} {dtype:?}: {found}, not {expected}");
            }
        };
        each("gelu", &values(y.inner()), given.iter().map(|&x| gelu(x)).collect());
        each("its slope", &gradient(&x, &grads), given.iter().map(|&x| slope(x)).collect());

        let y = ops::gelu(x.clone(), GeluApproximation::None);
        let grads = y.cast(DType::F32).sum().backward();
        let found = gradient(&x, &grads);
        assert!(found.iter().all(|x| x.is_finite()), "{found:?}");
        assert_eq!([found[0], found[5], found[9]], [0.0, 0.5, 1.0]);

        // A large gate, a large `up` and a large gradient.
        let gate = x.clone().reshape([1, 1, 10]);
        let up = lift(&Tensor::<B, 3>::full([1, 1, 10], 100.0, &device).cast(dtype));
        let y = ops::swiglu(gate, up.clone());
        let dy = Tensor::<Autodiff<B>, 3>::full([1, 1, 10], 60.0, &device);
        let grads = (y.cast(DType::F32) * dy).sum().backward();
        let finite = if dtype == DType::F16 { 65504.0 } else { f64::MAX };
        let expected = given.iter().map(|&x| if 60.0 * silu(x) > finite { f64::INFINITY } else { 60.0 * silu(x) });
        for (found, expected) in gradient(&up, &grads).into_iter().zip(expected) {
            let near = found == expected || (found - expected).abs() <= ulp * expected.abs() + 1e-6;
            assert!(near, "the gate's gradient {dtype:?}: {found}, not {expected}");
        }
        assert!(gradient(&x, &grads).iter().all(|x| !x.is_nan()));
    }
}

/// 16-bit weights with f32 inputs have 16-bit gradients.
fn gradients_have_their_leafs_type<B: Backend>(device: B::Device) {
    if !B::MIXED_DTYPE_WEIGHTS {
        return;
    }
    for dtype in [DType::F16, DType::BF16] {
        for turned in [false, true] {
            let (x, given) = numbers::<B, 2>([5, 3], 1, [1.0, 0.0], DType::F32, &device);
            let (w, weight) = numbers::<B, 2>([3, 3], 2, [1.0, 0.0], dtype, &device);
            let (b, _) = numbers::<B, 1>([3], 3, [1.0, 0.0], dtype, &device);
            let (x, w, b) = (lift(&x), lift(&w), lift(&b));
            let matrix = if turned { w.clone().transpose() } else { w.clone() };
            let y = ops::linear(x.clone(), matrix, Some(b.clone()));
            assert_eq!(y.dtype(), DType::F32);
            let grads = y.sum().backward();
            // For a gradient of ones: sums over the rows of x, and over the columns of the weight.
            let sums: Vec<f64> = (0..3).map(|i| (0..5).map(|row| given[3 * row + i]).sum()).collect();
            let dw: Vec<f64> = (0..9).map(|i| sums[if turned { i % 3 } else { i / 3 }]).collect();
            let of_input =
                |i: usize| (0..3).map(|j| if turned { weight[3 * j + i] } else { weight[3 * i + j] }).sum::<f64>();
            let dx: Vec<f64> = (0..15).map(|i| of_input(i % 3)).collect();
            close("dw", &gradient(&w, &grads), &dw, 2f64.powi(-8));
            close("db", &gradient(&b, &grads), &[5.0; 3], 1e-9);
            close("dx", &gradient(&x, &grads), &dx, 1e-6);

            // The same for scale and shift of a norm.
            let (x, scale, shift) = (lift(&x.inner()), lift(&b.clone().inner()), lift(&b.inner()));
            for centred in [true, false] {
                let bias = centred.then(|| shift.clone());
                let (y, _) = ops::row_norm(x.clone(), scale.clone(), bias, RowNorm { centred, eps: 1e-5 });
                let grads = y.sum().backward();
                gradient(&scale, &grads);
                assert_eq!(gradient(&x, &grads).len(), 15);
                if centred {
                    close("shift", &gradient(&shift, &grads), &[5.0; 3], 1e-9);
                }
            }
        }
    }
}

/// Queries in f32 with keys and values of 16 bits, as from a cache, give the results of the same numbers in f32.
fn attention_with_16_bit_keys<B: Backend>(device: B::Device) {
    for (dtype, ulp) in types::<B>(&device) {
        for [b, n_head, n_kv_head, t, s, d] in [[2, 6, 2, 1, 70, 16], [1, 4, 4, 1, 9, 5], [2, 4, 2, 3, 11, 8]] {
            let (q, _) = numbers::<B, 4>([b, n_head, t, d], 1, [2.0, 0.0], DType::F32, &device);
            let (k, _) = numbers::<B, 4>([b, n_kv_head, s, d], 2, [2.0, 0.0], dtype, &device);
            let (v, _) = numbers::<B, 4>([b, n_kv_head, s, d], 3, [1.0, 0.0], dtype, &device);
            let (dy, _) = numbers::<B, 4>([b, n_head, t, d], 4, [1.0, 0.0], DType::F32, &device);
            let attend = |[q, k, v]: [Tensor<Autodiff<B>, 4>; 3]| {
                ops::attention(q, k, v, AttentionOptions::new(0.3, KeyRanges::new(true)))
            };
            let gradients = |x: [Tensor<Autodiff<B>, 4>; 3]| {
                let y = attend(x.clone());
                assert_eq!(y.dtype(), DType::F32);
                let grads = (y.clone() * Tensor::from_inner(dy.clone())).sum().backward();
                (values(y.inner()), x.map(|x| gradient(&x, &grads)))
            };
            let narrow = [&q, &k, &v].map(lift);
            let wide = [&q, &k.cast(DType::F32), &v.cast(DType::F32)].map(lift);
            let (found, [dq, dk, dv]) = gradients(narrow);
            let (expected, expected_grads) = gradients(wide);
            let what = format!("{dtype:?} {:?}", [b, n_head, n_kv_head, t, s, d]);
            close(&what, &found, &expected, 1e-6);
            for (name, found, expected, tolerance) in [
                ("dq", dq, &expected_grads[0], 1e-5),
                ("dk", dk, &expected_grads[1], ulp),
                ("dv", dv, &expected_grads[2], ulp),
            ] {
                close(&format!("{what}, {name}"), &found, expected, tolerance);
            }
        }
    }
}

on_each_backend!(
    row_norms_with_large_deviations,
    batch_norm_of_large_planes,
    epilogue_in_f32,
    softmax_of_many,
    attention_of_large_queries,
    long_sums,
    linear_layers,
    activations_everywhere,
    gradients_have_their_leafs_type,
    attention_with_16_bit_keys,
);
