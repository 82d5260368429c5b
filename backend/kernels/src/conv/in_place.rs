//! The product of rows with what lies in windows.

use super::product::store;
use crate::{
    dispatch::vectorized,
    math::fma,
    matmul::{HEIGHT, WIDTH},
};

/// Rows in the order in which [`product_in_place`] reads them: of each strip of them one column after another.
pub(super) fn turn_strips(a: &[f32], rows: usize, depth: usize, strips: &mut Vec<f32>) {
    let tiles = rows.div_ceil(HEIGHT);
    for i in 0..tiles {
        let (row, end) = (rows * i / tiles, rows * (i + 1) / tiles);
        for k in 0..depth {
            strips.extend((row..end).map(|row| a[row * depth + k]));
        }
    }
}

/// The product of `M` rows and what is found in a window at each of the offsets and the places that follow it.
///
/// The innermost loop as that of `tile` in the matrix product.
#[inline(always)]
fn tile_in_place<const FUSED: bool, const M: usize, const P: usize>(
    a: &[[f32; M]],
    window: &[f32],
    offsets: &[usize],
    at: usize,
) -> [[[f32; WIDTH]; P]; M] {
    let mut sums = [[[0.0; WIDTH]; P]; M];
    let (a, window) = (&a[..offsets.len()], &window[at..]);
    for k in 0..offsets.len() {
        let places = &window[offsets[k]..offsets[k] + P * WIDTH];
        // Each on its own, as all at once would be loaded before they are spread over registers.
        for i in 0..M {
            let x = a[k][i];
            for p in 0..P {
                for j in 0..WIDTH {
                    sums[i][p][j] = fma::<FUSED>(x, places[p * WIDTH + j], sums[i][p][j]);
                }
            }
        }
    }
    sums
}

vectorized! {
    /// The product of `rows` rows that [`turn_strips`] has laid out and what is found in a window at each of the offsets, for so many
    /// panels of places.
    fn product_in_place<FUSED>(
        a: &[f32], rows: usize, window: &[f32], offsets: &[usize], count: usize, c: &mut [[f32; WIDTH]],
    ) {
        let depth = offsets.len();
        macro_rules! strip {
            ($height:literal, $wide:literal, $row:expr, $panel:expr) => {{
                let a = a[$row * depth..][..$height * depth].as_chunks::<$height>().0;
                let sums = tile_in_place::<FUSED, $height, $wide>(a, window, offsets, $panel * WIDTH);
                store(sums, &mut c[$row * count + $panel..], count, false);
            }};
        }
        macro_rules! few {
            ($height:literal, $wide:literal) => {{
                let mut panel = 0;
                while panel + $wide <= count {
                    strip!($height, $wide, 0, panel);
                    panel += $wide;
                }
                while panel < count {
                    strip!($height, 1, 0, panel);
                    panel += 1;
                }
            }};
        }
        let tiles = rows.div_ceil(HEIGHT);
        match rows {
            0 => {}
            1 => few!(1, 4),
            2 => few!(2, 2),
            3 => few!(3, 2),
            _ => for panel in 0..count {
                for i in 0..tiles {
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
