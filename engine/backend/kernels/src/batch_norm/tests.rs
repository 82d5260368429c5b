use super::*;

fn values(len: usize, seed: usize) -> Vec<f32> {
    (0..len).map(|i| ((i * 7919 + seed * 104_729 + 13) % 1013) as f32 / 500.0 - 1.0).collect()
}

fn close(what: &str, found: &[f32], expected: &[f64]) {
    let largest = expected.iter().fold(1.0f64, |largest, value| largest.max(value.abs()));
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((f64::from(*found) - expected).abs() < 1e-5 * largest, "{what}, {i}: {found} {expected}");
    }
}

fn check(batch: usize, channels: usize, plane: usize, with_residual: bool, relu: bool) {
    let len = batch * channels * plane;
    let (x, weight, bias) = (values(len, 1), values(channels, 2), values(channels, 3));
    // Far from 0, as the inputs of a first layer may be.
    let x: Vec<f32> = x.iter().map(|x| x + 7.0).collect();
    let (residual, grad) = (values(len, 4), values(len, 5));
    let norm = BatchNorm { channels, plane, weight: &weight, relu };
    let (mut mean, mut variance) = (vec![0.0; channels], vec![0.0; channels]);
    let y = norm.forward(&x, 1e-3, &bias, with_residual.then_some(&residual), &mut mean, &mut variance);
    let mut masked = grad.clone();
    let (mut dweight, mut dbias) = (vec![0.0; channels], vec![0.0; channels]);
    let moments = [&mean[..], &variance[..]];
    let dx = norm.backward(&x, 1e-3, moments, &y, &mut masked, &mut dweight, &mut dbias);
    let mut expected = [(); 3].map(|()| vec![0.0; len]);
    let mut sums = [(); 4].map(|()| vec![0.0; channels]);
    for c in 0..channels {
        let indices: Vec<usize> = (0..batch * plane).map(|i| (i / plane * channels + c) * plane + i % plane).collect();
        let n = indices.len() as f64;
        let wide = |values: &[f32], at: usize| f64::from(values[at]);
        let mean = indices.iter().map(|&at| wide(&x, at)).sum::<f64>() / n;
        let variance = indices.iter().map(|&at| (wide(&x, at) - mean).powi(2)).sum::<f64>() / n;
        let inverse = 1.0 / (variance + 1e-3).sqrt();
        let normal = |at| (wide(&x, at) - mean) * inverse;
        for &at in &indices {
            let value = normal(at) * wide(&weight, c) + wide(&bias, c);
            let value = value + if with_residual { wide(&residual, at) } else { 0.0 };
            expected[0][at] = if relu { value.max(0.0) } else { value };
            expected[1][at] = if relu && value <= 0.0 { 0.0 } else { wide(&grad, at) };
        }
        let total = indices.iter().map(|&at| expected[1][at]).sum::<f64>();
        let along = indices.iter().map(|&at| expected[1][at] * normal(at)).sum::<f64>();
        for &at in &indices {
            expected[2][at] = wide(&weight, c) * inverse * (expected[1][at] - total / n - normal(at) * along / n);
        }
        for (sums, value) in sums.iter_mut().zip([mean, variance, along, total]) {
            sums[c] = value;
        }
    }
    for (found, expected) in [&y, &masked, &dx].into_iter().zip(&expected) {
        close(&format!("{batch} {channels} {plane}"), found, expected);
    }
    if len > 0 {
        for (found, expected) in [&mean, &variance, &dweight, &dbias].into_iter().zip(&sums) {
            close(&format!("{batch} {channels} {plane}, sums"), found, expected);
        }
    }
}

#[test]
fn values_and_gradients() {
    let sizes = [(0, 3, 4), (2, 1, 1), (7, 5, 1), (3, 70, 49), (2, 3, 5000), (5, 16, 30), (2, 2, 700)];
    // Miri would take an hour for the other sizes.
    let sizes = if cfg!(miri) { &sizes[..3] } else { &sizes[..] };
    for &(batch, channels, plane) in sizes {
        for (with_residual, relu) in [(false, false), (false, true), (true, false), (true, true)] {
            check(batch, channels, plane, with_residual, relu);
        }
    }
}
