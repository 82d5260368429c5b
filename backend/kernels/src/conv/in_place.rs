//! Products of packed rows with windows that are read in place.

use super::product::store;
use crate::{
    dispatch::vectorized,
    math::fma,
    matmul::{HEIGHT, Strips, TALL, WIDTH, wide},
};

/// Packed rows (packed A).
pub(super) enum Rows {
    Narrow(Strips<HEIGHT>),
    Wide(Strips<TALL>),
}

impl Rows {
    /// Packs `rows` rows of length `depth` of `a`.
    pub fn new(a: &[f32], rows: usize, depth: usize) -> Self {
        fn strips<const H: usize>(a: &[f32], rows: usize, depth: usize) -> Strips<H> {
            let mut strips = Strips::default();
            strips.pack(a, |row| row * depth, rows, depth);
            strips
        }
        // With few rows, several panels at once keep more sums in flight.
        if rows >= 4 && wide() { Self::Wide(strips(a, rows, depth)) } else { Self::Narrow(strips(a, rows, depth)) }
    }

    /// The product of some rows, which must be those of whole strips, and as many columns as there are offsets from `first`
    /// on, with what is found in a window at each of the offsets and the places that follow it, for so many panels of places.
    pub fn multiply(
        &self,
        rows: [usize; 2],
        first: usize,
        window: &[f32],
        offsets: &[usize],
        count: usize,
        c: &mut [[f32; WIDTH]],
    ) {
        match self {
            Self::Narrow(strips) => narrow_product(strips, rows, first, window, offsets, count, c),
            Self::Wide(strips) => strips.multiply_in_place(rows, first, window, offsets, count, c),
        }
    }

    /// Returns the boundaries of `parts` parts of whole strips with about as many rows each.
    pub fn cuts(&self, parts: usize) -> Vec<usize> {
        match self {
            Self::Narrow(strips) => strips.cuts(parts),
            Self::Wide(strips) => strips.cuts(parts),
        }
    }
}

/// The product of `M` rows and what is found in a window at each of the offsets and the places that follow it.
///
/// The innermost loop is that of `tile` in the matrix product.
#[inline(always)]
fn tile_in_place<const FUSED: bool, const M: usize, const P: usize>(
    a: &[[f32; HEIGHT]],
    window: &[f32],
    offsets: &[usize],
    at: usize,
) -> [[[f32; WIDTH]; P]; M] {
    let mut sums = [[[0.0; WIDTH]; P]; M];
    let (a, window) = (&a[..offsets.len()], &window[at..]);
    for k in 0..offsets.len() {
        let places = &window[offsets[k]..offsets[k] + P * WIDTH];
        // One element at a time: otherwise all would be loaded before they are broadcast to registers.
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
    fn narrow_product<FUSED>(
        strips: &Strips<HEIGHT>, rows: [usize; 2], first: usize, window: &[f32], offsets: &[usize], count: usize,
        c: &mut [[f32; WIDTH]],
    ) {
        macro_rules! strip {
            ($height:literal, $wide:literal, $row:expr, $a:expr, $panel:expr) => {{
                let sums = tile_in_place::<FUSED, $height, $wide>(&$a[first..], window, offsets, $panel * WIDTH);
                store(sums, &mut c[($row - rows[0]) * count + $panel..], count, false);
            }};
        }
        macro_rules! few {
            ($height:literal, $wide:literal, $a:expr) => {{
                let mut panel = 0;
                while panel + $wide <= count {
                    strip!($height, $wide, rows[0], $a, panel);
                    panel += $wide;
                }
                while panel < count {
                    strip!($height, 1, rows[0], $a, panel);
                    panel += 1;
                }
            }};
        }
        if let (Some((_, height, a)), None) = (strips.within(rows).next(), strips.within(rows).nth(1))
            && height < 4
        {
            return match height {
                1 => few!(1, 4, a),
                2 => few!(2, 2, a),
                _ => few!(3, 2, a),
            };
        }
        for panel in 0..count {
            for (row, height, a) in strips.within(rows) {
                match height {
                    6 => strip!(6, 1, row, a, panel),
                    5 => strip!(5, 1, row, a, panel),
                    4 => strip!(4, 1, row, a, panel),
                    _ => strip!(3, 1, row, a, panel),
                }
            }
        }
    }
}
