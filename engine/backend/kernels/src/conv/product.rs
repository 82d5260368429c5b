//! Products of unpacked rows with packed panels.

use crate::{
    dispatch::vectorized,
    math::fma,
    matmul::{MR, NR, Start, has_avx512, microkernel, with_strips},
};

/// Returns `M` rows of length `depth`, which start at `starts` in `a`.
#[inline(always)]
fn rows_of<'a, const M: usize>(a: &'a [f32], starts: &[usize], depth: usize) -> [&'a [f32]; M] {
    // A loop, because neither `from_fn` nor `map` is always inlined.
    let mut rows: [&[f32]; M] = [&[]; M];
    for i in 0..M {
        rows[i] = &a[starts[i]..][..depth];
    }
    rows
}

/// Stores the accumulators of a microkernel, or adds them to `c`.
///
/// By value and without iterators; see `add_tile` of the matrix product.
#[inline(always)]
pub(super) fn store<const M: usize, const P: usize>(
    sums: [[[f32; NR]; P]; M],
    c: &mut [[f32; NR]],
    stride: usize,
    add: bool,
) {
    for i in 0..M {
        for p in 0..P {
            let c = &mut c[i * stride + p];
            if add {
                for j in 0..NR {
                    c[j] += sums[i][p][j];
                }
            } else {
                *c = sums[i][p];
            }
        }
    }
}

/// Minimum number of panels for which rows are packed.
const COLUMNS: usize = 6;

/// Multiplies rows of length `depth`, which start at `starts` in `a`, by panels, `pitch` apart. Writes the results to `c`, or
/// adds them if `add` is true. A row of `c` holds one row of each panel; rows are `c_stride` apart.
#[allow(clippy::too_many_arguments)]
pub(super) fn product(
    a: &[f32],
    starts: &[usize],
    panels: &[[f32; NR]],
    pitch: usize,
    depth: usize,
    count: usize,
    c: &mut [[f32; NR]],
    c_stride: usize,
    add: bool,
) {
    // With few columns, packing the rows would be a large part of the work.
    if starts.len() < 4 || count < COLUMNS || !has_avx512() {
        return narrow_product(a, starts, panels, pitch, depth, count, c, c_stride, add);
    }
    let start = if add { Start::There } else { Start::Zero };
    with_strips(|strips| {
        strips.pack(a, |row| starts[row], starts.len(), depth);
        strips.multiply(panels, pitch, count * NR, c.as_flattened_mut(), c_stride * NR, start);
    });
}

vectorized! {
    /// [`product`] with microkernels that fit into the registers of every CPU.
    fn narrow_product<FUSED>(
        a: &[f32], starts: &[usize], panels: &[[f32; NR]], pitch: usize, depth: usize, count: usize,
        c: &mut [[f32; NR]], c_stride: usize, add: bool,
    ) {
        let rows = starts.len();
        let tiles = rows.div_ceil(MR);
        macro_rules! strip {
            ($height:literal, $panels:literal, $row:expr, $panel:expr) => {{
                let mut b: [&[[f32; NR]]; $panels] = [&[]; $panels];
                for p in 0..$panels {
                    b[p] = &panels[($panel + p) * pitch..][..depth];
                }
                let sums = microkernel::<FUSED, $height, $panels>(depth, rows_of(a, &starts[$row..], depth), 1, b);
                store(sums, &mut c[$row * c_stride + $panel..], c_stride, add);
            }};
        }
        // With few rows a panel is read once, and several panels at a time keep enough accumulators busy.
        macro_rules! remainder {
            ($height:literal, $panels:literal) => {{
                let mut panel = 0;
                while panel + $panels <= count {
                    strip!($height, $panels, 0, panel);
                    panel += $panels;
                }
                while panel < count {
                    strip!($height, 1, 0, panel);
                    panel += 1;
                }
            }};
        }
        match rows {
            0 => {}
            1 => remainder!(1, 4),
            2 => remainder!(2, 2),
            3 => remainder!(3, 2),
            _ => for panel in 0..count {
                for i in 0..tiles {
                    // Strip heights as even as possible.
                    let (row, end) = (rows * i / tiles, rows * (i + 1) / tiles);
                    match end - row {
                        6 => strip!(6, 1, row, panel),
                        5 => strip!(5, 1, row, panel),
                        4 => strip!(4, 1, row, panel),
                        _ => strip!(3, 1, row, panel),
                    }
                }
            },
        }
    }
}

/// Returns the dot products of `M` rows with a column.
#[inline(always)]
fn dots<const FUSED: bool, const M: usize>(a: &[f32], stride: usize, column: &[f32]) -> [f32; M] {
    const LANES: usize = 8;
    let depth = column.len();
    let whole = depth / LANES;
    let chunks = &column.as_chunks::<LANES>().0[..whole];
    let mut rows: [&[[f32; LANES]]; M] = [&[]; M];
    for i in 0..M {
        rows[i] = &a[i * stride..][..depth].as_chunks::<LANES>().0[..whole];
    }
    let mut sums = [[0.0; LANES]; M];
    for k in 0..whole {
        let x = chunks[k];
        for i in 0..M {
            for lane in 0..LANES {
                sums[i][lane] = fma::<FUSED>(rows[i][k][lane], x[lane], sums[i][lane]);
            }
        }
    }
    let mut dots = [0.0; M];
    for i in 0..M {
        for sum in sums[i] {
            dots[i] += sum;
        }
        for k in whole * LANES..depth {
            dots[i] = fma::<FUSED>(a[i * stride + k], column[k], dots[i]);
        }
    }
    dots
}

vectorized! {
    /// Like [`product`], for a single column, which is column `at` of the first panel in `c`. In a panel with few columns,
    /// most of the products would be wasted.
    fn product_of_column<FUSED>(
        a: &[f32], a_stride: usize, rows: usize, column: &[f32], c: &mut [[f32; NR]], c_stride: usize, at: usize,
        add: bool,
    ) {
        let mut row = 0;
        macro_rules! strip {
            ($height:literal) => {{
                let dots = dots::<FUSED, $height>(&a[row * a_stride..], a_stride, column);
                for i in 0..$height {
                    let c = &mut c[(row + i) * c_stride][at];
                    *c = if add { *c + dots[i] } else { dots[i] };
                }
                row += $height;
            }};
        }
        while row + 8 <= rows {
            strip!(8);
        }
        while row < rows {
            strip!(1);
        }
    }
}
