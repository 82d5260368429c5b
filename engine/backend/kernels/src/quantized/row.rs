//! The left-hand row of a product, laid out in the order of a format's codes.

use super::{
    QuantizedMatrix,
    for_kind::for_kind,
    format::{Format, Lanes, Place, STRIP, parts},
};
use crate::dispatch::vectorized;

/// Factors that compensate for the position of each byte in its lane.
pub(super) const FACTORS: [f32; 4] = [1.0, 1.0 / 256.0, 1.0 / 65_536.0, 1.0 / 16_777_216.0];

/// A left-hand row.
pub(super) struct Row<'a> {
    pub numbers: &'a [f32],
    /// The values, laid out in the order of the codes.
    pub strips: Vec<Strip>,
    /// For each scale (and offset), the sum of its values.
    pub sums: Vec<f32>,
    /// True if no value is infinite or NaN.
    pub is_finite: bool,
}

/// Values that a strip of weights is multiplied by, aligned so that no register load crosses a cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(64))]
pub(super) struct Strip {
    /// The values for each half and each byte of a lane, multiplied by the factor that compensates for the byte's position.
    pub x: [[Lanes; 4]; 2],
    /// Initial values of the sums of each half, which account for the shift of the codes.
    pub start: [Lanes; 2],
}

impl<'a> Row<'a> {
    /// Lays out a row for products with a matrix that has as many columns.
    pub fn new(numbers: &'a [f32], b: QuantizedMatrix<'_>) -> Self {
        let is_finite = numbers.iter().all(|number| number.is_finite());
        let mut row = Self { numbers, strips: Vec::new(), sums: Vec::new(), is_finite };
        lay_out(b, &mut row);
        row
    }
}

vectorized! {
    fn lay_out<FUSED>(b: QuantizedMatrix<'_>, row: &mut Row<'_>) {
        if FUSED {
            for_kind!(b.kind, lay_out_for[](row));
        }
    }
}

#[inline(always)]
fn lay_out_for<F: Format>(row: &mut Row<'_>) {
    let x = row.numbers;
    let units = x.len().div_ceil(F::STRIPS * STRIP);
    row.strips.resize(units * F::STRIPS, Strip::default());
    row.sums.resize(units * F::SCALES, 0.0);
    let strips = row.strips.chunks_exact_mut(F::STRIPS);
    for (i, (x, strips)) in x.chunks(F::STRIPS * STRIP).zip(strips).enumerate() {
        for (strip, laid) in strips.iter_mut().enumerate() {
            for at in parts(strip) {
                // A padded unit may lack whole blocks, and thus whole parts.
                let Some(x) = x[F::first(at).min(x.len())..].first_chunk::<16>() else { continue };
                let sum = lay_out_part::<F>(x, laid, at);
                row.sums[i * F::SCALES + F::scale(at)] += sum;
            }
        }
    }
}

/// Lays out a part and returns the sum of its values.
#[inline(always)]
fn lay_out_part<F: Format>(x: &[f32; 16], laid: &mut Strip, at: Place) -> f32 {
    let mut totals = [0.0; 4];
    for i in 0..4 {
        for k in 0..4 {
            let value = x[4 * i + k];
            laid.x[at.half][k][4 * at.part + i] = if F::SIGNED { value } else { value * FACTORS[k] };
            totals[i] += value;
        }
        laid.start[at.half][4 * at.part + i] = -F::SHIFT * totals[i];
    }
    (totals[0] + totals[2]) + (totals[1] + totals[3])
}
