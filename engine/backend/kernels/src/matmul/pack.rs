//! Packing of the columns of a matrix.

use super::{microkernel::NR, packed_a::pack_rows};

/// Layout of a matrix in memory.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    /// Distance from one row to the next in elements, or with `transposed` from one column to the next.
    pub stride: usize,
    /// If true, columns are contiguous instead of rows.
    pub transposed: bool,
}

/// Packs one panel: the rows from `row` on of the [`NR`] columns from `column` on. Columns beyond `columns` become 0.
pub(crate) fn pack(b: &[f32], layout: Layout, row: usize, column: usize, columns: usize, data: &mut [[f32; NR]]) {
    let width = NR.min(columns - column);
    if !layout.transposed && width == NR {
        // A separate case, because a copy of unknown length is a function call.
        for (k, data) in data.iter_mut().enumerate() {
            data.copy_from_slice(&b[(row + k) * layout.stride + column..][..NR]);
        }
    } else if !layout.transposed {
        for (k, data) in data.iter_mut().enumerate() {
            data[width..].fill(0.0);
            data[..width].copy_from_slice(&b[(row + k) * layout.stride + column..][..width]);
        }
    } else if width == NR {
        let rows = data.len();
        pack_rows(|j| &b[(column + j) * layout.stride + row..][..rows], NR, data);
    } else {
        data.fill([0.0; NR]);
        for j in 0..width {
            let source = &b[(column + j) * layout.stride + row..][..data.len()];
            for (data, &value) in data.iter_mut().zip(source) {
                data[j] = value;
            }
        }
    }
}
