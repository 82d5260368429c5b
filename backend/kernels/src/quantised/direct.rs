//! Products of few rows: each row of the quantised matrix is unpacked where it stays in the first-level cache.

use super::{QuantisedMatrix, unpack::unpack};
use crate::{
    dispatch::TASK,
    math::dot,
    matmul::{Matrix, for_bands},
};

/// What [`matmul_quantised`](super::matmul_quantised) does, once the sizes are checked.
pub(super) fn product(a: Matrix<'_>, b: QuantisedMatrix<'_>, bias: Option<&[f32]>, c: &mut [f32]) {
    let width = (TASK * 4 / b.columns.max(1)).clamp(4, 512);
    for_bands(c, b.rows, width, |first, rows| {
        let mut weights = vec![0.0; b.columns];
        for j in 0..rows[0].len() {
            unpack(b.kind, b.part(first + j, 0, b.columns), &mut weights);
            for (i, row) in rows.iter_mut().enumerate() {
                let sum = dot(&a.data[i * a.stride..][..b.columns], &weights);
                row[j] = sum + bias.map_or(0.0, |bias| bias[first + j]);
            }
        }
    });
}
