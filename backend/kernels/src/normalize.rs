use rayon::prelude::*;

use crate::{
    dispatch::{rows_per_task, vectorized},
    math::{dot, sum},
};

/// Each row less its mean, over the root of its variance plus `eps`: what a layer norm does before scale and shift. The
/// inverse roots are written to `inverse_std`, one for each row.
///
/// # Panics
/// If the slices do not fit each other.
pub fn normalize(x: &[f32], y: &mut [f32], inverse_std: &mut [f32], eps: f32) {
    let Some(columns) = columns(x.len(), y.len(), inverse_std.len()) else { return };
    let rows = rows_per_task(columns);
    x.par_chunks(rows * columns)
        .zip(y.par_chunks_mut(rows * columns))
        .zip(inverse_std.par_chunks_mut(rows))
        .for_each(|((x, y), inverse_std)| forward(x, y, inverse_std, columns, eps));
}

/// The gradient with respect to the input of [`normalize`], given its outputs, in place of `grad`.
///
/// # Panics
/// If the slices do not fit each other.
pub fn normalize_backward(y: &[f32], inverse_std: &[f32], grad: &mut [f32]) {
    let Some(columns) = columns(y.len(), grad.len(), inverse_std.len()) else { return };
    let rows = rows_per_task(columns);
    y.par_chunks(rows * columns)
        .zip(grad.par_chunks_mut(rows * columns))
        .zip(inverse_std.par_chunks(rows))
        .for_each(|((y, grad), inverse_std)| backward(y, inverse_std, grad, columns));
}

/// Elements of a row; `None` where there are no rows.
fn columns(x: usize, y: usize, rows: usize) -> Option<usize> {
    assert!(x == y && (rows > 0 || x == 0) && x.is_multiple_of(rows.max(1)), "{x} and {y} elements in {rows} rows");
    (x > 0).then(|| x / rows)
}

vectorized! {
    fn forward<_FUSED>(x: &[f32], y: &mut [f32], inverse_std: &mut [f32], columns: usize, eps: f32) {
        let each = 1.0 / columns as f32;
        for ((x, y), inverse_std) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)).zip(inverse_std) {
            let mean = sum(x, |x| x) * each;
            let variance = sum(x, |x| (x - mean) * (x - mean)) * each;
            *inverse_std = 1.0 / (variance + eps).sqrt();
            for (y, &x) in y.iter_mut().zip(x) {
                *y = (x - mean) * *inverse_std;
            }
        }
    }
}

vectorized! {
    fn backward<_FUSED>(y: &[f32], inverse_std: &[f32], grad: &mut [f32], columns: usize) {
        let each = 1.0 / columns as f32;
        for ((y, grad), &inverse_std) in y.chunks_exact(columns).zip(grad.chunks_exact_mut(columns)).zip(inverse_std) {
            let mean = sum(grad, |g| g) * each;
            let along = dot(grad, y) * each;
            for (grad, &y) in grad.iter_mut().zip(y) {
                *grad = inverse_std * (*grad - mean - y * along);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_their_gradients() {
        for (rows, columns) in [(0, 3), (1, 1), (3, 5), (70, 192), (5, 33)] {
            let x: Vec<f32> = (0..rows * columns).map(|i| ((i * 7919) % 113) as f32 / 10.0 - 4.0).collect();
            let g: Vec<f32> = (0..rows * columns).map(|i| ((i * 104_729) % 97) as f32 / 10.0 - 5.0).collect();
            let (mut y, mut inverse_std, mut grad) = (vec![0.0; x.len()], vec![0.0; rows], g.clone());
            normalize(&x, &mut y, &mut inverse_std, 1e-5);
            normalize_backward(&y, &inverse_std, &mut grad);
            for row in 0..rows {
                let (x, g) = (&x[row * columns..][..columns], &g[row * columns..][..columns]);
                let n = columns as f64;
                let mean = x.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
                let variance = x.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
                let inverse = 1.0 / (variance + 1e-5).sqrt();
                let normal: Vec<f64> = x.iter().map(|&x| (f64::from(x) - mean) * inverse).collect();
                let g_mean = g.iter().map(|&g| f64::from(g)).sum::<f64>() / n;
                let along = g.iter().zip(&normal).map(|(&g, y)| f64::from(g) * y).sum::<f64>() / n;
                for i in 0..columns {
                    let at = row * columns + i;
                    assert!((f64::from(y[at]) - normal[i]).abs() < 1e-5);
                    let expected = inverse * (f64::from(g[i]) - g_mean - normal[i] * along);
                    assert!((f64::from(grad[at]) - expected).abs() < 1e-4 * (1.0 + expected.abs()));
                }
            }
        }
    }
}
