use rayon::prelude::*;

use crate::{
    dispatch::{TASK, rows_per_piece, vectorized},
    fresh::by_chunks_with,
    math::{dot, sum},
};

/// Normalisation of rows: layer norm (Ba et al., 2016), or without `centred` RMS norm (Zhang and Sennrich, 2019).
#[derive(Clone, Copy, Debug)]
pub struct RowNorm {
    /// If true, the mean is subtracted from each row first.
    pub centred: bool,
    /// Added to the variance for numerical stability.
    pub eps: f32,
}

impl RowNorm {
    /// Returns `(x - mean) / sqrt(variance + eps) * weight + bias` for each row, and the statistics: the mean and the inverse
    /// square root, two values per row.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn forward(&self, x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> (Vec<f32>, Vec<f32>) {
        let columns = weight.len();
        assert!(bias.is_none_or(|bias| bias.len() == columns), "the bias does not have {columns} elements");
        if x.is_empty() {
            return (vec![], vec![]);
        }
        let mut stats = vec![0.0; 2 * (x.len() / columns)];
        check(x.len(), x.len(), stats.len(), columns);
        let rows = rows_per_piece(columns);
        let y = by_chunks_with(x.len(), rows * columns, stats.par_chunks_mut(2 * rows), |i, y, stats| {
            forward(*self, &x[i * rows * columns..][..y.len()], weight, bias, y, stats);
        });
        (y, stats)
    }

    /// Computes the gradients of [`forward`](Self::forward) from its input and `stats`. Replaces `grad` by the gradient of
    /// the input. Adds the gradients of weight and bias to `d_weight` and `d_bias`, in an order that does not depend on the
    /// number of threads.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn backward(
        &self,
        x: &[f32],
        weight: &[f32],
        stats: &[f32],
        grad: &mut [f32],
        d_weight: &mut [f32],
        d_bias: &mut [f32],
    ) {
        let columns = weight.len();
        assert!(d_weight.len() == columns && d_bias.len() == columns, "the gradients do not have {columns} elements");
        if !check(x.len(), grad.len(), stats.len(), columns) {
            return;
        }
        // Each task sums its own rows. Longer sums get more rows.
        let rows = (4 * TASK / columns).max(16);
        let tasks = x.len().div_ceil(rows * columns);
        let mut sums = vec![0.0; tasks * 2 * columns];
        x.par_chunks(rows * columns)
            .zip(grad.par_chunks_mut(rows * columns))
            .zip(stats.par_chunks(2 * rows).zip(sums.par_chunks_mut(2 * columns)))
            .for_each(|((x, grad), (stats, sums))| {
                let (d_weight, d_bias) = sums.split_at_mut(columns);
                backward(*self, x, weight, stats, grad, d_weight, d_bias);
            });
        for sums in sums.chunks_exact(2 * columns) {
            for (total, sum) in d_weight.iter_mut().chain(d_bias.iter_mut()).zip(sums) {
                *total += sum;
            }
        }
    }
}

/// Returns true if there are any elements.
fn check(x: usize, y: usize, stats: usize, columns: usize) -> bool {
    assert!(x == y && x * 2 == stats * columns, "{x} and {y} elements in {} rows of {columns}", stats / 2);
    x > 0
}

vectorized! {
    fn forward<_FUSED>(norm: RowNorm, x: &[f32], weight: &[f32], bias: Option<&[f32]>, y: &mut [f32], stats: &mut [f32]) {
        let columns = weight.len();
        let each = 1.0 / columns as f32;
        for ((x, y), stats) in x.chunks_exact(columns).zip(y.chunks_exact_mut(columns)).zip(stats.chunks_exact_mut(2)) {
            let mean = if norm.centred { sum(x, |x| x) * each } else { 0.0 };
            let variance = sum(x, |x| (x - mean) * (x - mean)) * each;
            let inverse = 1.0 / (variance + norm.eps).sqrt();
            (stats[0], stats[1]) = (mean, inverse);
            match bias {
                Some(bias) => {
                    for ((y, &x), (&weight, &bias)) in y.iter_mut().zip(x).zip(weight.iter().zip(bias)) {
                        *y = (x - mean) * inverse * weight + bias;
                    }
                }
                None => {
                    for ((y, &x), &weight) in y.iter_mut().zip(x).zip(weight) {
                        *y = (x - mean) * inverse * weight;
                    }
                }
            }
        }
    }
}

vectorized! {
    fn backward<_FUSED>(
        norm: RowNorm, x: &[f32], weight: &[f32], stats: &[f32], grad: &mut [f32], d_weight: &mut [f32], d_bias: &mut [f32],
    ) {
        let columns = weight.len();
        let each = 1.0 / columns as f32;
        let mut normal = vec![0.0; columns];
        for ((x, grad), stats) in x.chunks_exact(columns).zip(grad.chunks_exact_mut(columns)).zip(stats.chunks_exact(2)) {
            let (mean, inverse) = (stats[0], stats[1]);
            for (((normal, &x), (grad, &weight)), (d_weight, d_bias)) in
                normal.iter_mut().zip(x).zip(grad.iter_mut().zip(weight)).zip(d_weight.iter_mut().zip(d_bias.iter_mut()))
            {
                *normal = (x - mean) * inverse;
                *d_weight += *grad * *normal;
                *d_bias += *grad;
                *grad *= weight;
            }
            let along = dot(grad, &normal) * each;
            let mean = if norm.centred { sum(grad, |g| g) * each } else { 0.0 };
            for (grad, &normal) in grad.iter_mut().zip(&normal) {
                *grad = inverse * (*grad - mean - normal * along);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, step: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * step) % 113) as f32 / 10.0 - 4.0).collect()
    }

    /// Compared with the formulas in f64.
    #[test]
    fn rows_and_their_gradients() {
        let sizes = [(0, 3), (1, 1), (3, 5), (70, 192), (5, 33), (300, 700), (2, 40_000)];
        for ((rows, columns), centred) in
            sizes.into_iter().flat_map(|size| [true, false].map(|centred| (size, centred)))
        {
            let norm = RowNorm { centred, eps: 1e-5 };
            let [x, g] = [7919, 104_729].map(|step| numbers(rows * columns, step));
            let [weight, bias] = [31, 57].map(|step| numbers(columns, step));
            let (plain, _) = norm.forward(&x, &weight, None);
            let (y, stats) = norm.forward(&x, &weight, Some(&bias));
            let (mut dx, mut d_weight, mut d_bias) = (g.clone(), vec![0.0; columns], vec![0.0; columns]);
            norm.backward(&x, &weight, &stats, &mut dx, &mut d_weight, &mut d_bias);
            let (mut d_weight_exact, mut d_bias_exact) = (vec![0.0; columns], vec![0.0; columns]);
            for row in 0..rows {
                let at = row * columns;
                let n = columns as f64;
                let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect::<Vec<_>>();
                let (x, g, weight, bias) =
                    (wide(&x[at..][..columns]), wide(&g[at..][..columns]), wide(&weight), wide(&bias));
                let mean = if centred { x.iter().sum::<f64>() / n } else { 0.0 };
                let inverse = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
                let normal: Vec<f64> = x.iter().map(|x| (x - mean) * inverse).collect();
                let scaled: Vec<f64> = g.iter().zip(&weight).map(|(g, weight)| g * weight).collect();
                let g_mean = if centred { scaled.iter().sum::<f64>() / n } else { 0.0 };
                let along = scaled.iter().zip(&normal).map(|(g, normal)| g * normal).sum::<f64>() / n;
                for i in 0..columns {
                    let exact = normal[i] * weight[i];
                    assert!((f64::from(plain[at + i]) - exact).abs() < 2e-5 * (1.0 + exact.abs()));
                    assert!((f64::from(y[at + i]) - exact - bias[i]).abs() < 2e-5 * (1.0 + exact.abs()));
                    let expected = inverse * (scaled[i] - g_mean - normal[i] * along);
                    assert!((f64::from(dx[at + i]) - expected).abs() < 1e-4 * (1.0 + expected.abs()));
                    d_weight_exact[i] += g[i] * normal[i];
                    d_bias_exact[i] += g[i];
                }
            }
            for i in 0..columns {
                let close = |sum: f32, exact: f64| (f64::from(sum) - exact).abs() <= 1e-4 * (rows as f64 + exact.abs());
                assert!(close(d_weight[i], d_weight_exact[i]) && close(d_bias[i], d_bias_exact[i]), "{i} of {columns}");
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let (rows, columns) = (700, 130);
        let (x, weight) = (numbers(rows * columns, 7919), numbers(columns, 31));
        let norm = RowNorm { centred: true, eps: 1e-5 };
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let (mut y, stats) = norm.forward(&x, &weight, None);
                let (mut d_weight, mut d_bias) = (vec![0.0; columns], vec![0.0; columns]);
                norm.backward(&x, &weight, &stats, &mut y, &mut d_weight, &mut d_bias);
                (y, d_weight, d_bias)
            })
        };
        let one = with(1);
        for threads in 2..=8 {
            assert!(with(threads) == one, "{threads} threads");
        }
    }
}
