//! Transposition.

use crate::matmul::transposed;

/// Transposes the first `columns` columns of `rows` rows, which are `stride` apart, into lines that are `pitch` apart,
/// or adds them to the lines.
pub(super) fn transpose(
    matrix: &[f32],
    stride: usize,
    [rows, columns]: [usize; 2],
    out: &mut [f32],
    pitch: usize,
    add: bool,
) {
    let put = |to: &mut f32, value: f32| *to = if add { *to + value } else { value };
    let whole = [rows / 4 * 4, columns / 4 * 4];
    for column in (0..whole[1]).step_by(4) {
        for row in (0..whole[0]).step_by(4) {
            let four =
                [0, 1, 2, 3].map(|k| *matrix[(row + k) * stride + column..].first_chunk().expect("four columns"));
            for (i, values) in transposed(four).into_iter().enumerate() {
                let out = &mut out[(column + i) * pitch + row..][..4];
                out.iter_mut().zip(values).for_each(|(out, value)| put(out, value));
            }
        }
    }
    for column in 0..columns {
        for row in if column < whole[1] { whole[0] } else { 0 }..rows {
            put(&mut out[column * pitch + row], matrix[row * stride + column]);
        }
    }
}
