use rayon::prelude::*;

use crate::dispatch::{rows_per_task, vectorized};

/// Applies rotary position embedding in place: each pair `(a, b)` of a head becomes `(a cos - b sin, b cos + a sin)` (Su et
/// al., "RoFormer", 2021).
///
/// `x` has rows of `heads * 2 * half` elements. `cos` and `sin` have rows of `half`. Row `i` of `x` uses row
/// `i % (cos.len() / half)`: the positions of a sequence, shared by all sequences. The pairs of each head are
/// `(j, j + half)`, as in transformers' Llama; with `interleaved` they are `(2j, 2j + 1)`, as in Meta's code and in GPT-J.
/// With `-sin` this computes the inverse, and thus the gradient.
///
/// # Panics
/// If the sizes do not match.
pub fn rotate(x: &mut [f32], cos: &[f32], sin: &[f32], half: usize, heads: usize, interleaved: bool) {
    if x.is_empty() {
        return;
    }
    let columns = heads * 2 * half;
    assert!(columns > 0 && x.len().is_multiple_of(columns), "{} elements in rows of {columns}", x.len());
    let angles = (cos.len(), sin.len());
    assert!(
        angles.0 == angles.1 && angles.0 > 0 && angles.0.is_multiple_of(half),
        "{angles:?} angles in rows of {half}"
    );
    let rows = rows_per_task(columns);
    if x.len() <= rows * columns {
        return turn(x, cos, sin, half, heads, interleaved, 0);
    }
    x.par_chunks_mut(rows * columns)
        .enumerate()
        .for_each(|(task, x)| turn(x, cos, sin, half, heads, interleaved, task * rows));
}

vectorized! {
    /// Rotates some rows, starting at row `first`.
    fn turn<_FUSED>(
        x: &mut [f32], cos: &[f32], sin: &[f32], half: usize, heads: usize, interleaved: bool, first: usize,
    ) {
        let positions = cos.len() / half;
        for (i, row) in x.chunks_exact_mut(heads * 2 * half).enumerate() {
            let at = (first + i) % positions * half;
            let (cos, sin) = (&cos[at..][..half], &sin[at..][..half]);
            for head in row.chunks_exact_mut(2 * half) {
                if interleaved {
                    let pairs = &mut head.as_chunks_mut::<2>().0[..half];
                    for j in 0..half {
                        let [a, b] = pairs[j];
                        pairs[j] = [a * cos[j] - b * sin[j], b * cos[j] + a * sin[j]];
                    }
                } else {
                    let (low, high) = head.split_at_mut(half);
                    let high = &mut high[..half];
                    for j in 0..half {
                        let (a, b) = (low[j], high[j]);
                        low[j] = a * cos[j] - b * sin[j];
                        high[j] = b * cos[j] + a * sin[j];
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotation_and_inverse_cancel() {
        for (rows, positions, half, heads) in
            [(0, 1, 2, 2), (1, 1, 1, 1), (6, 3, 5, 2), (7, 7, 16, 3), (600, 75, 32, 4)]
        {
            for interleaved in [false, true] {
                let columns = heads * 2 * half;
                let x: Vec<f32> = (0..rows * columns).map(|i| ((i * 7919) % 1013) as f32 / 100.0 - 5.0).collect();
                let angles: Vec<f32> = (0..positions * half).map(|i| (i * 31 % 63) as f32 / 10.0).collect();
                let (cos, sin): (Vec<f32>, Vec<f32>) = angles.iter().map(|angle| (angle.cos(), angle.sin())).unzip();
                let mut y = x.clone();
                rotate(&mut y, &cos, &sin, half, heads, interleaved);
                for (row, head, j) in (0..rows * heads * half).map(|i| (i / half / heads, i / half % heads, i % half)) {
                    let start = row * columns + head * 2 * half;
                    let (a, b) =
                        if interleaved { (start + 2 * j, start + 2 * j + 1) } else { (start + j, start + j + half) };
                    let angle = row % positions * half + j;
                    let [c, s] = [&cos, &sin].map(|values| f64::from(values[angle]));
                    let [first, second] = [a, b].map(|at| f64::from(x[at]));
                    assert!((f64::from(y[a]) - (first * c - second * s)).abs() < 2e-6);
                    assert!((f64::from(y[b]) - (second * c + first * s)).abs() < 2e-6);
                }
                let back: Vec<f32> = sin.iter().map(|sin| -sin).collect();
                rotate(&mut y, &cos, &back, half, heads, interleaved);
                assert!(y.iter().zip(&x).all(|(y, x)| (y - x).abs() < 5e-6));
            }
        }
    }
}
