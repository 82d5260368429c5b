use rayon::prelude::*;

use crate::{
    dispatch::{rows_per_task, vectorized},
    math::{dot, sum},
};

/// Each row over the root of its mean square plus `eps`: what an RMS norm does before its scale. The inverse roots are
/// written to `inverse_rms`, one for each row. (Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.)
///
/// # Panics
/// If the slices do not fit each other.
pub fn rms_normalize(x: &[f32], y: &mut [f32], inverse_rms: &mut [f32], eps: f32) {
    let Some(columns) = columns(x.len(), y.len(), inverse_rms.len()) else { return };
    let rows = rows_per_task(columns);
    if inverse_rms.len() <= rows {
        // Where there is nothing to divide, nobody is woken: the rows of a single position take a microsecond.
        return forward(x, y, inverse_rms, columns, eps);
    }
    x.par_chunks(rows * columns)
        .zip(y.par_chunks_mut(rows * columns))
        .zip(inverse_rms.par_chunks_mut(rows))
        .for_each(|((x, y), inverse_rms)| forward(x, y, inverse_rms, columns, eps));
}

/// The gradient with respect to the input of [`rms_normalize`], given its outputs, in place of `grad`.
///
/// # Panics
/// If the slices do not fit each other.
pub fn rms_normalize_backward(y: &[f32], inverse_rms: &[f32], grad: &mut [f32]) {
    let Some(columns) = columns(y.len(), grad.len(), inverse_rms.len()) else { return };
    let rows = rows_per_task(columns);
    y.par_chunks(rows * columns)
        .zip(grad.par_chunks_mut(rows * columns))
        .zip(inverse_rms.par_chunks(rows))
        .for_each(|((y, grad), inverse_rms)| backward(y, inverse_rms, grad, columns));
}

/// Elements of a row; `None` where there are no elements.
fn columns(x: usize, y: usize, rows: usize) -> Option<usize> {
    assert!(x == y && (rows > 0 || x == 0) && x.is_multiple_of(rows.max(1)), "{x} and {y} elements in {rows} rows");
    (x > 0).then(|| x / rows)
}

vectorized! {
    fn forward<_FUSED>(x: &[f32], y: &mut [f32], inverse_rms: &mut [f32], columns: usize, eps: f32) {
        let each = 1.0 / columns as f32;
        for ((x, y), inverse_rms) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)).zip(inverse_rms) {
            *inverse_rms = 1.0 / (sum(x, |x| x * x) * each + eps).sqrt();
            for (y, &x) in y.iter_mut().zip(x) {
                *y = x * *inverse_rms;
            }
        }
    }
}

vectorized! {
    fn backward<_FUSED>(y: &[f32], inverse_rms: &[f32], grad: &mut [f32], columns: usize) {
        let each = 1.0 / columns as f32;
        for ((y, grad), &inverse_rms) in y.chunks_exact(columns).zip(grad.chunks_exact_mut(columns)).zip(inverse_rms) {
            let along = dot(grad, y) * each;
            for (grad, &y) in grad.iter_mut().zip(y) {
                *grad = inverse_rms * (*grad - y * along);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_their_gradients() {
        for (rows, columns) in [(0, 3), (1, 1), (3, 5), (1, 576), (70, 192), (500, 33)] {
            let x: Vec<f32> = (0..rows * columns).map(|i| ((i * 7919) % 113) as f32 / 10.0 - 4.0).collect();
            let g: Vec<f32> = (0..rows * columns).map(|i| ((i * 104_729) % 97) as f32 / 10.0 - 5.0).collect();
            let (mut y, mut inverse_rms, mut grad) = (vec![0.0; x.len()], vec![0.0; rows], g.clone());
            rms_normalize(&x, &mut y, &mut inverse_rms, 1e-5);
            rms_normalize_backward(&y, &inverse_rms, &mut grad);
            for row in 0..rows {
                let (x, g) = (&x[row * columns..][..columns], &g[row * columns..][..columns]);
                let n = columns as f64;
                let inverse = 1.0 / (x.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
                assert!((f64::from(inverse_rms[row]) - inverse).abs() < 1e-6 * inverse);
                let along = g.iter().zip(x).map(|(&g, &x)| f64::from(g) * f64::from(x) * inverse).sum::<f64>() / n;
                for i in 0..columns {
                    let (at, normal) = (row * columns + i, f64::from(x[i]) * inverse);
                    assert!((f64::from(y[at]) - normal).abs() < 2e-6 * (1.0 + normal.abs()));
                    let expected = inverse * (f64::from(g[i]) - normal * along);
                    assert!((f64::from(grad[at]) - expected).abs() < 1e-5 * (1.0 + expected.abs()));
                }
            }
        }
    }

    #[test]
    fn zeros_and_nan() {
        let (mut y, mut inverse_rms) = ([1.0; 6], [0.0; 2]);
        rms_normalize(&[0.0, 0.0, 0.0, 1.0, f32::NAN, 1.0], &mut y, &mut inverse_rms, 1e-6);
        assert!(y[..3] == [0.0; 3] && y[3..].iter().all(|y| y.is_nan()));
    }
}
