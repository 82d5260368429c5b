use rayon::prelude::*;

use crate::{
    dispatch::{rows_per_piece, rows_per_task, vectorized},
    fresh::by_chunks,
    math::{change_and_sum, dot, exp_below_88, max_of},
};

/// Computes the softmax of each row times `scale`, in place.
///
/// `queries` is the number of queries of causal attention: row `i` is query `i % queries`, aligned with the last `queries`
/// columns, and attends to the columns up to its own; later columns become 0. With `None`, every query attends to all
/// columns.
///
/// A row that is minus infinity everywhere after the product with `scale` (a fully masked query) becomes zeros, and so does
/// its gradient.
///
/// # Panics
/// If the rows are not whole, or there are more queries than columns.
pub fn softmax_rows(x: &mut [f32], columns: usize, scale: f32, queries: Option<usize>) {
    if x.is_empty() {
        return;
    }
    check(x.len(), columns, queries);
    let rows = rows_per_task(columns);
    x.par_chunks_mut(rows * columns).enumerate().for_each(|(task, x)| forward(x, columns, scale, queries, task * rows));
}

/// Like [`softmax_rows`], in newly allocated memory.
///
/// # Panics
/// If the rows are not whole, or there are more queries than columns.
pub fn softmax_rows_of(x: &[f32], columns: usize, scale: f32, queries: Option<usize>) -> Vec<f32> {
    if x.is_empty() {
        return vec![];
    }
    check(x.len(), columns, queries);
    let rows = rows_per_piece(columns);
    by_chunks(x.len(), rows * columns, |task, y| {
        y.copy_from_slice(&x[task * rows * columns..][..y.len()]);
        forward(y, columns, scale, queries, task * rows);
    })
}

/// Computes the gradient with respect to the input of [`softmax_rows`] from its output `y`, in place of `grad`.
///
/// # Panics
/// If the slices differ in length or the rows are not whole.
pub fn softmax_rows_backward(y: &[f32], grad: &mut [f32], columns: usize, scale: f32) {
    assert_eq!(y.len(), grad.len());
    if y.is_empty() {
        return;
    }
    check(y.len(), columns, None);
    let size = rows_per_task(columns) * columns;
    y.par_chunks(size).zip(grad.par_chunks_mut(size)).for_each(|(y, grad)| backward(y, grad, columns, scale));
}

fn check(len: usize, columns: usize, queries: Option<usize>) {
    assert!(columns > 0 && len.is_multiple_of(columns), "{len} elements are not whole rows of {columns}");
    assert!(queries.is_none_or(|queries| (1..=columns).contains(&queries)), "{queries:?} queries of {columns} keys");
}

/// Softmax of one row times `scale`; zeros if the whole row is minus infinity.
#[inline(always)]
pub(crate) fn softmax_row<const FUSED: bool>(row: &mut [f32], scale: f32) {
    // A negative scale would reverse the order, so the scale is applied first.
    let largest = max_of(row, |x| scale * x);
    // `max_of` ignores NaN, which must propagate.
    if largest == f32::NEG_INFINITY && !row.iter().any(|x| (scale * x).is_nan()) {
        return row.fill(0.0);
    }
    let inverse = 1.0 / change_and_sum(row, |x| exp_below_88::<FUSED>(scale * x - largest));
    for value in row.iter_mut() {
        *value *= inverse;
    }
}

vectorized! {
    fn forward<FUSED>(x: &mut [f32], columns: usize, scale: f32, queries: Option<usize>, first_row: usize) {
        for (i, row) in x.chunks_exact_mut(columns).enumerate() {
            let visible = queries.map_or(columns, |queries| columns - queries + 1 + (first_row + i) % queries);
            let (row, hidden) = row.split_at_mut(visible);
            softmax_row::<FUSED>(row, scale);
            hidden.fill(0.0);
        }
    }
}

vectorized! {
    fn backward<_FUSED>(y: &[f32], grad: &mut [f32], columns: usize, scale: f32) {
        for (y, grad) in y.chunks_exact(columns).zip(grad.chunks_exact_mut(columns)) {
            let mean = dot(y, grad);
            for (grad, &y) in grad.iter_mut().zip(y) {
                *grad = scale * y * (*grad - mean);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(len: usize, seed: u32) -> Vec<f32> {
        (0..len as u32)
            .map(|i| ((i.wrapping_mul(2_654_435_761).wrapping_add(seed) >> 8) % 1000) as f32 / 100.0 - 5.0)
            .collect()
    }

    #[test]
    fn rows_and_their_gradients() {
        for (rows, columns, queries) in
            [(1, 1, None), (6, 5, None), (300, 100, None), (6, 3, Some(3)), (8, 7, Some(4)), (512, 64, Some(64))]
        {
            let (x, g) = (values(rows * columns, 1), values(rows * columns, 2));
            let scale = 0.37f32;
            let (mut y, mut grad) = (x.clone(), g.clone());
            softmax_rows(&mut y, columns, scale, queries);
            softmax_rows_backward(&y, &mut grad, columns, scale);
            for row in 0..rows {
                let visible = queries.map_or(columns, |queries| columns - queries + 1 + row % queries);
                let at = |i: usize| row * columns + i;
                let e: Vec<f64> = (0..visible).map(|i| (f64::from(scale) * f64::from(x[at(i)])).exp()).collect();
                let total: f64 = e.iter().sum();
                let dot: f64 = (0..visible).map(|i| e[i] / total * f64::from(g[at(i)])).sum();
                for i in 0..columns {
                    let p = e.get(i).map_or(0.0, |e| e / total);
                    assert!((f64::from(y[at(i)]) - p).abs() < 1e-6);
                    let expected = f64::from(scale) * p * (f64::from(g[at(i)]) - dot);
                    assert!((f64::from(grad[at(i)]) - expected).abs() < 1e-5);
                }
            }
        }
    }

    #[test]
    fn non_finite_values() {
        let mut x = [0.0, f32::NEG_INFINITY, 0.0];
        softmax_rows(&mut x, 3, 1.0, None);
        assert!((x[0] - 0.5).abs() < 1e-6 && x[1] == 0.0);
        let mut x = [0.0, f32::NAN, 0.0];
        softmax_rows(&mut x, 3, 1.0, None);
        assert!(x.iter().all(|x| x.is_nan()));
    }

    #[test]
    fn rows_without_a_visible_key_are_zeros() {
        for columns in [1, 3, 8, 21] {
            for scale in [0.5, -0.5] {
                let least = f32::NEG_INFINITY * f32::signum(scale);
                let mut x = vec![least; 2 * columns];
                x[columns..].fill(0.25);
                softmax_rows(&mut x, columns, scale, None);
                assert!(x[..columns].iter().all(|&x| x == 0.0));
                assert!(x[columns..].iter().all(|&x| (x * columns as f32 - 1.0).abs() < 1e-5));
                let mut grad = vec![3.0; 2 * columns];
                softmax_rows_backward(&x, &mut grad, columns, scale);
                assert!(grad[..columns].iter().all(|&x| x == 0.0));

                // A single NaN propagates to the whole row.
                let mut x = vec![least; columns];
                x[columns / 2] = f32::NAN;
                softmax_rows(&mut x, columns, scale, None);
                assert!(x.iter().all(|x| x.is_nan()));
            }
        }
    }
}
