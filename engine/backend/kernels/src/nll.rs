use rayon::prelude::*;

use crate::{
    dispatch::{rows_per_task, vectorized},
    fresh::by_chunks_with,
    math::{exp_below_88, max, sum},
};

/// Computes the negative log-likelihood of each row's label under the softmax of the row:
/// `loss[i] = normaliser[i] - x[i][label[i]]`. Also writes the normaliser, which is the logarithm of the sum of exponentials.
///
/// # Panics
/// If the sizes do not match, or a label is not a column index.
pub fn nll(x: &[f32], labels: &[i64], loss: &mut [f32], normaliser: &mut [f32]) {
    let rows = labels.len();
    assert!(loss.len() == rows && normaliser.len() == rows, "{rows} labels, {} losses", loss.len());
    let Some(columns) = columns(x.len(), labels) else { return };
    let task = rows_per_task(columns);
    x.par_chunks(task * columns)
        .zip(labels.par_chunks(task))
        .zip(loss.par_chunks_mut(task).zip(normaliser.par_chunks_mut(task)))
        .for_each(|((x, labels), (loss, normaliser))| forward(x, labels, loss, normaliser, columns));
}

/// Computes the gradient of [`nll`] with respect to `x` from the gradient of the losses: `(softmax - [label]) grad[i]`.
///
/// # Panics
/// If the sizes do not match, or a label is not a column index.
pub fn nll_backward(x: &[f32], labels: &[i64], normaliser: &[f32], grad: &[f32]) -> Vec<f32> {
    let rows = labels.len();
    assert!(normaliser.len() == rows && grad.len() == rows, "{rows} labels");
    let Some(columns) = columns(x.len(), labels) else { return vec![] };
    let task = rows_per_task(columns);
    let of_rows = labels.par_chunks(task).zip(normaliser.par_chunks(task).zip(grad.par_chunks(task)));
    by_chunks_with(x.len(), task * columns, of_rows, |i, out, (labels, (normaliser, grad))| {
        backward(&x[i * task * columns..][..out.len()], labels, normaliser, grad, out, columns);
    })
}

/// Returns the number of columns; `None` if there are no rows.
fn columns(len: usize, labels: &[i64]) -> Option<usize> {
    if labels.is_empty() {
        assert_eq!(len, 0, "elements without labels");
        return None;
    }
    assert!(len.is_multiple_of(labels.len()), "{len} elements in {} rows", labels.len());
    let columns = len / labels.len();
    if let Some(label) = labels.iter().find(|&&label| usize::try_from(label).map_or(true, |label| label >= columns)) {
        panic!("label {label} is not one of the {columns} classes");
    }
    Some(columns)
}

vectorized! {
    fn forward<FUSED>(x: &[f32], labels: &[i64], loss: &mut [f32], normaliser: &mut [f32], columns: usize) {
        for (i, row) in x.chunks_exact(columns).enumerate() {
            let largest = max(row);
            // If all logits are minus infinity, the differences are NaN, as in PyTorch.
            let total = sum(row, |x| exp_below_88::<FUSED>(x - largest));
            let log = total.ln();
            normaliser[i] = largest + log;
            // The differences first: for large logits, the normaliser has fewer fractional digits.
            loss[i] = log - (row[labels[i] as usize] - largest);
        }
    }
}

vectorized! {
    fn backward<FUSED>(x: &[f32], labels: &[i64], normaliser: &[f32], grad: &[f32], out: &mut [f32], columns: usize) {
        for (i, (row, out)) in x.chunks_exact(columns).zip(out.chunks_exact_mut(columns)).enumerate() {
            let (shift, factor) = (normaliser[i], grad[i]);
            for (out, &x) in out.iter_mut().zip(row) {
                *out = exp_below_88::<FUSED>(x - shift) * factor;
            }
            out[labels[i] as usize] -= factor;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_and_their_gradients() {
        for (rows, columns) in [(0, 3), (1, 1), (4, 7), (300, 61), (3, 5000)] {
            let x: Vec<f32> = (0..rows * columns).map(|i| ((i * 7919) % 113) as f32 / 8.0 - 4.0).collect();
            let labels: Vec<i64> = (0..rows).map(|i| ((i * 31) % columns) as i64).collect();
            let grad: Vec<f32> = (0..rows).map(|i| i as f32 / 7.0 - 1.0).collect();
            let (mut loss, mut normaliser) = (vec![0.0; rows], vec![0.0; rows]);
            nll(&x, &labels, &mut loss, &mut normaliser);
            let out = nll_backward(&x, &labels, &normaliser, &grad);
            for row in 0..rows {
                let x = &x[row * columns..][..columns];
                let total: f64 = x.iter().map(|&x| f64::from(x).exp()).sum();
                let expected = total.ln() - f64::from(x[labels[row] as usize]);
                assert!((f64::from(loss[row]) - expected).abs() < 1e-5 * (1.0 + expected));
                for i in 0..columns {
                    let p = f64::from(x[i]).exp() / total - f64::from(u8::from(i as i64 == labels[row]));
                    assert!((f64::from(out[row * columns + i]) - p * f64::from(grad[row])).abs() < 1e-4);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "label 3 is not one of the 3 classes")]
    fn a_label_that_is_not_a_class() {
        nll(&[0.0; 3], &[3], &mut [0.0], &mut [0.0]);
    }
}
