//! Packing of the columns of a matrix.

use super::{strips::turn, tile::WIDTH};

/// Layout of a matrix in memory.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Elements from one row to the next, or with `transposed` from one column to the next.
    pub stride: usize,
    /// If true, columns are contiguous instead of rows.
    pub transposed: bool,
}

/// Packs one panel: the rows from `row` on of the [`WIDTH`] columns from `column` on. Columns beyond `columns` become
/// 0.
pub(crate) fn pack(b: &[f32], layout: Layout, row: usize, column: usize, columns: usize, data: &mut [[f32; WIDTH]]) {
    let width = WIDTH.min(columns - column);
    if !layout.transposed && width == WIDTH {
        // Separate from the general case, as a copy of unknown length is a call.
        for (k, data) in data.iter_mut().enumerate() {
            data.copy_from_slice(&b[(row + k) * layout.stride + column..][..WIDTH]);
        }
    } else if !layout.transposed {
        for (k, data) in data.iter_mut().enumerate() {
            data[width..].fill(0.0);
            data[..width].copy_from_slice(&b[(row + k) * layout.stride + column..][..width]);
        }
    } else if width == WIDTH {
        let rows = data.len();
        turn(|j| &b[(column + j) * layout.stride + row..][..rows], WIDTH, data);
    } else {
        data.fill([0.0; WIDTH]);
        for j in 0..width {
            let source = &b[(column + j) * layout.stride + row..][..data.len()];
            for (data, &value) in data.iter_mut().zip(source) {
                data[j] = value;
            }
        }
    }
}
