//! Sums of products of codes and values, for some rows of blocks.

use std::hint::black_box;

use super::{
    format::{CHUNK, Codes, Factors, Format, LANES, Lanes, codes},
    row::Strip,
};
use crate::math::fma;

/// Buffers for some rows of blocks, or for a part of one.
#[repr(align(64))]
pub(super) struct Scratch {
    /// For each strip, the sum of each half, or a single sum if the halves share their scales.
    sums: [Lanes; CHUNK / 32],
    factors: Factors,
}

impl Scratch {
    pub fn new() -> Self {
        Self { sums: [ZEROS; CHUNK / 32], factors: Factors::new() }
    }

    /// Multiplies codes by the values of a row, which repeat for each row of blocks, without scales and offsets. Also records
    /// and converts the scales and offsets.
    #[inline(always)]
    pub fn add_codes<F: Format, const FUSED: bool>(&mut self, blocks: &[u8], x: &[Strip]) {
        let (units, last) = F::units(blocks);
        let mut at = 0;
        for (i, unit) in units.iter().enumerate() {
            // The index is hidden from the compiler, which would otherwise combine the same lane of eight units in one
            // register.
            self.add_unit::<F, FUSED>(unit, black_box(i), &x[at..][..F::STRIPS]);
            at += F::STRIPS;
            at = if at == x.len() { 0 } else { at };
        }
        let mut count = units.len();
        if let Some(last) = last {
            self.add_unit::<F, FUSED>(&last, count, &x[at..]);
            count += 1;
        }
        F::finish(count, &mut self.factors);
    }

    /// Stores the sums in memory: adjacent stores are vectorised, but sums of all lanes that are carried through such a long
    /// loop are not.
    #[inline(always)]
    fn add_unit<F: Format, const FUSED: bool>(&mut self, unit: &F::Unit, place: usize, x: &[Strip]) {
        F::note(unit, place, &mut self.factors);
        let sums = &mut self.sums[place * F::STRIPS * F::SUMS..][..F::STRIPS * F::SUMS];
        add_strip::<F, FUSED>(codes::<F>(unit, 0), &x[0], sums, 0);
        // One by one, so that shifts are by constants.
        if F::STRIPS == 4 {
            add_strip::<F, FUSED>(codes::<F>(unit, 1), &x[1], sums, 1);
            add_strip::<F, FUSED>(codes::<F>(unit, 2), &x[2], sums, 2);
            add_strip::<F, FUSED>(codes::<F>(unit, 3), &x[3], sums, 3);
        }
    }

    /// Returns the result of row `i` from its `count` sums: the sums times their scales, plus the offsets times the sums of
    /// their values.
    #[inline(always)]
    pub fn total<F: Format, const FUSED: bool>(&self, i: usize, count: usize, numbers: &[f32]) -> f32 {
        let sums = &self.sums[i * count..][..count];
        let scales = &self.factors.scales[i * numbers.len()..][..numbers.len()];
        let weighed = |i: usize, start: Lanes| {
            let [a, b] = if F::SPLIT { scales.as_chunks().0[i] } else { [scales[i]; 2] };
            add_product::<FUSED>(start, sums[i], [a, a, a, a, b, b, b, b])
        };
        let mut lanes = ZEROS;
        // Four at a time, because each accumulation waits for the previous one.
        for i in (0..count / 4 * 4).step_by(4) {
            let (low, high) = (weighed(i + 1, weighed(i, ZEROS)), weighed(i + 3, weighed(i + 2, ZEROS)));
            lanes = add(lanes, add(low, high));
        }
        for i in count / 4 * 4..count {
            lanes = weighed(i, lanes);
        }
        let mut total = 0.0;
        if F::OFFSETS {
            let offsets = &self.factors.offsets[i * numbers.len()..][..numbers.len()];
            let ((offsets, offsets_left), (numbers, numbers_left)) = (offsets.as_chunks(), numbers.as_chunks());
            for (offsets, numbers) in offsets.iter().zip(numbers) {
                lanes = add_product::<FUSED>(lanes, *offsets, *numbers);
            }
            for (offset, number) in offsets_left.iter().zip(numbers_left) {
                total = fma::<FUSED>(*offset, *number, total);
            }
        }
        for lane in lanes {
            total += lane;
        }
        total
    }
}

const ZEROS: Lanes = [0.0; LANES];

#[inline(always)]
fn add_strip<F: Format, const FUSED: bool>(codes: [Codes; 2], x: &Strip, sums: &mut [Lanes], strip: usize) {
    let low = half_of::<F, FUSED>(codes[0], &x.x[0], x.start[0]);
    let high = half_of::<F, FUSED>(codes[1], &x.x[1], x.start[1]);
    if F::SHARED {
        sums[strip] = add(low, high);
    } else {
        sums[2 * strip] = low;
        sums[2 * strip + 1] = high;
    }
}

#[inline(always)]
fn half_of<F: Format, const FUSED: bool>(codes: Codes, x: &[Lanes; 4], start: Lanes) -> Lanes {
    let start = if F::SHIFT == 0.0 { [0.0; LANES] } else { start };
    let sums = add_product::<FUSED>(start, numbers::<F, 0>(codes), x[0]);
    let sums = add_product::<FUSED>(sums, numbers::<F, 1>(codes), x[1]);
    let sums = add_product::<FUSED>(sums, numbers::<F, 2>(codes), x[2]);
    add_product::<FUSED>(sums, numbers::<F, 3>(codes), x[3])
}

/// Converts byte `K` of each lane, at its position in the lane unless codes are signed.
#[inline(always)]
fn numbers<F: Format, const K: u32>(codes: Codes) -> Lanes {
    let mut numbers = [0.0; LANES];
    for j in 0..LANES {
        let code =
            if F::SIGNED { (codes[j] << (24 - 8 * K)) as i32 >> 24 } else { (codes[j] & (0xff << (8 * K))) as i32 };
        numbers[j] = code as f32;
    }
    numbers
}

#[inline(always)]
fn add_product<const FUSED: bool>(sums: Lanes, a: Lanes, b: Lanes) -> Lanes {
    let mut next = [0.0; LANES];
    for j in 0..LANES {
        next[j] = fma::<FUSED>(a[j], b[j], sums[j]);
    }
    next
}

#[inline(always)]
fn add(a: Lanes, b: Lanes) -> Lanes {
    let mut sums = a;
    for j in 0..LANES {
        sums[j] += b[j];
    }
    sums
}
