//! Products of bf16 by tiles of AMX, or by the instructions of AVX512-BF16, which multiply pairs of numbers and add the products
//! in f32.

use std::borrow::Cow;

use crate::{
    dispatch::vectorized,
    fresh::by_chunks,
    matmul::{GEMV_ROWS, Matrix, Rounded, multiplies_bf16, pair_product, tile_product},
};

/// Computes `a b + bias` in f32, as `[a.rows, b.columns]`, for matrices of bf16. Subnormal elements count as 0. Returns `None`
/// if this CPU does not multiply bf16, or if there are so few rows that reading `b` takes the time.
///
/// # Panics
/// If the sizes do not match.
pub fn product_bf16(a: Matrix<'_, u16>, b: Matrix<'_, u16>, bias: Option<&[f32]>) -> Option<Vec<f32>> {
    product(a, b, bias)
}

/// Like [`product_bf16`], with each result rounded to bf16.
///
/// # Panics
/// If the sizes do not match.
pub fn rounded_product_bf16(a: Matrix<'_, u16>, b: Matrix<'_, u16>, bias: Option<&[f32]>) -> Option<Vec<u16>> {
    product(a, b, bias)
}

fn product<T: Rounded>(a: Matrix<'_, u16>, b: Matrix<'_, u16>, bias: Option<&[f32]>) -> Option<Vec<T>> {
    a.check();
    b.check();
    assert!(a.columns == b.rows && bias.is_none_or(|bias| bias.len() == b.columns), "sizes that do not match");
    if a.rows <= GEMV_ROWS || a.columns == 0 || b.columns == 0 || !multiplies_bf16() {
        return None;
    }
    if let Some(c) = tile_product(a, b, bias) {
        return Some(c);
    }
    // The summed axis is that of the columns, so `b` is joined as its transpose.
    let b = b.transpose();
    let [a, b] = [a, b].map(Pairs::new);
    Some(T::all(pair_product(a.matrix(), b.matrix().transpose(), bias)))
}

/// A matrix of pairs, as [`pair_product`] takes it.
struct Pairs<'a> {
    data: Cow<'a, [f32]>,
    rows: usize,
    columns: usize,
    stride: usize,
    transposed: bool,
}

impl<'a> Pairs<'a> {
    /// Joins columns `2 j` and `2 j + 1` as column `j`; a missing last column is 0.
    fn new(m: Matrix<'a, u16>) -> Self {
        let (data, stride) = pairs(m);
        Self { data, rows: m.rows, columns: m.columns.div_ceil(2), stride, transposed: m.transposed }
    }

    fn matrix(&self) -> Matrix<'_> {
        let Self { ref data, rows, columns, stride, transposed } = *self;
        Matrix { data, rows, columns, stride, transposed }
    }
}

/// Returns the elements of [`Pairs`] and the distance from one row in memory to the next.
fn pairs(m: Matrix<'_, u16>) -> (Cow<'_, [f32]>, usize) {
    let Matrix { data, rows, stride, .. } = m;
    let columns = m.columns.div_ceil(2);
    if m.transposed {
        // The columns lie side by side in memory.
        let joined = by_chunks(columns * rows, rows, |j, out| {
            let column = |j: usize| data.get(j * stride..j * stride + rows).filter(|_| j < m.columns);
            join(column(2 * j).unwrap_or_default(), column(2 * j + 1).unwrap_or_default(), out);
        });
        return (Cow::Owned(joined), rows);
    }
    if m.columns.is_multiple_of(2) && stride.is_multiple_of(2) {
        // SAFETY: every pair of u16 is a valid f32.
        let (before, pairs, _) = unsafe { data[..data.len() / 2 * 2].align_to::<f32>() };
        if before.is_empty() {
            return (Cow::Borrowed(pairs), stride / 2);
        }
    }
    let copied = by_chunks(rows * columns, columns, |i, out| join_neighbours(&data[i * stride..][..m.columns], out));
    (Cow::Owned(copied), columns)
}

/// Joins elements `2 j` and `2 j + 1` of a row; a missing last element is 0.
fn join_neighbours(row: &[u16], out: &mut [f32]) {
    let (pairs, rest) = row.as_chunks::<2>();
    for (out, &pair) in out.iter_mut().zip(pairs.iter().chain(&rest.first().map(|&last| [last, 0]))) {
        *out = joined(pair);
    }
}

/// Returns a pair, the first number in the lower bits.
#[inline(always)]
pub(crate) fn joined([first, second]: [u16; 2]) -> f32 {
    f32::from_bits(u32::from(first) | u32::from(second) << 16)
}

vectorized! {
    /// Joins the elements of two rows. The elements of an empty row are 0.
    fn join<_FUSED>(first: &[u16], second: &[u16], out: &mut [f32]) {
        if second.is_empty() {
            for (out, &first) in out.iter_mut().zip(first) {
                *out = joined([first, 0]);
            }
            return;
        }
        for ((out, &first), &second) in out.iter_mut().zip(first).zip(second) {
            *out = joined([first, second]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{HalfFormat, narrowed, widened};

    /// Exact products of the rounded numbers; the second matrix in both layouts, the first one too.
    #[test]
    fn sizes_and_layouts() {
        for (m, k, n) in
            [(5, 1, 1), (5, 7, 9), (13, 300, 33), (100, 17, 70), (201, 520, 18), (50, 4200, 40), (70, 64, 64)]
        {
            let numbers = |len: usize, seed: usize| -> Vec<u16> {
                let values: Vec<f32> = (0..len).map(|i| ((i * seed) % 113) as f32 / 50.0 - 1.0).collect();
                narrowed(HalfFormat::Bf16, &values)
            };
            let bias: Vec<f32> = (0..n).map(|j| (j % 50) as f32).collect();
            for (a_transposed, b_transposed, extra) in
                [(false, false, 0), (false, true, 1), (true, false, 3), (true, true, 0), (false, true, 2)]
            {
                let matrix = |data, rows, columns, transposed, inner| Matrix {
                    data,
                    rows,
                    columns,
                    stride: inner + extra,
                    transposed,
                };
                let (a_outer, a_inner) = if a_transposed { (k, m) } else { (m, k) };
                let (b_outer, b_inner) = if b_transposed { (n, k) } else { (k, n) };
                let (a, b) =
                    (numbers(a_outer * (a_inner + extra), 7919), numbers(b_outer * (b_inner + extra), 104_729));
                let (x, y) = (widened(HalfFormat::Bf16, &a), widened(HalfFormat::Bf16, &b));
                let a_at = |i, p| if a_transposed { p * (m + extra) + i } else { i * (k + extra) + p };
                let b_at = |p, j| if b_transposed { j * (k + extra) + p } else { p * (n + extra) + j };
                let (left, right) = (matrix(&a, m, k, a_transposed, a_inner), matrix(&b, k, n, b_transposed, b_inner));
                let Some(found) = product_bf16(left, right, Some(&bias)) else {
                    assert!(!multiplies_bf16() || m <= GEMV_ROWS);
                    continue;
                };
                let rounded = rounded_product_bf16(left, right, Some(&bias)).expect("the same sizes");
                assert_eq!(rounded, narrowed(HalfFormat::Bf16, &found));
                for (at, &found) in found.iter().enumerate() {
                    let (i, j) = (at / n, at % n);
                    let terms = || (0..k).map(|p| f64::from(x[a_at(i, p)]) * f64::from(y[b_at(p, j)]));
                    let expected = terms().sum::<f64>() + f64::from(bias[j]);
                    let size = terms().map(f64::abs).sum::<f64>() + f64::from(bias[j]);
                    let error = (f64::from(found) - expected).abs();
                    assert!(error <= 1e-6 * size, "{m} {k} {n}, {a_transposed} {b_transposed}: {found} {expected}");
                }
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        for (m, k, n) in [(30, 100, 3000), (700, 300, 40), (110, 2600, 70)] {
            let a: Vec<u16> = (0..m * k).map(|i| 0x3f00 + (i * 7919 % 113) as u16).collect();
            let b: Vec<u16> = (0..k * n).map(|i| 0xbf00 - (i * 104_729 % 97) as u16).collect();
            let with = |threads: usize| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| product_bf16(Matrix::new(&a, m, k), Matrix::new(&b, k, n), None))
            };
            let one = with(1);
            for threads in [2, 3, 8] {
                assert!(with(threads) == one, "{m} {k} {n} on {threads} threads");
            }
        }
    }

    #[test]
    fn non_finite_values_propagate() {
        let a = narrowed(HalfFormat::Bf16, &[1.0; 20 * 30]);
        for (value, expected) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (f32::NEG_INFINITY, "-inf")] {
            let mut b = vec![1.0; 30 * 40];
            b[11 * 40 + 7] = value;
            let b = narrowed(HalfFormat::Bf16, &b);
            if let Some(c) = product_bf16(Matrix::new(&a, 20, 30), Matrix::new(&b, 30, 40), None) {
                for (i, value) in c.iter().enumerate() {
                    assert_eq!(value.to_string(), if i % 40 == 7 { expected } else { "30" });
                }
            }
        }
    }
}
