//! The best token of each part of a row, and of each row.

use cubecl::prelude::*;

use super::thresholds::{Processing, rank_of, value_at};
use crate::ops::cube::random::gumbel_of;

/// Units per part.
pub(super) const UNITS: usize = 256;

/// Maximum number of parts of a row.
pub(super) const PARTS: usize = 64;

/// Bits of minus infinity, the only valid non-finite logit.
const MINUS_INFINITY: u32 = 0xff80_0000;

/// Reduces over the units to the first one: the largest score, the first index of equal ones, and the union of all flags.
#[cube]
fn keep_best(
    scores: &mut SharedMemory<f32>,
    places: &mut SharedMemory<u32>,
    flags: &mut SharedMemory<u32>,
    #[comptime] units: usize,
) {
    let unit = UNIT_POS as usize;
    sync_cube();
    #[unroll]
    for i in 0..comptime!(units.trailing_zeros() as usize) {
        let half = comptime!(units >> (i + 1));
        if unit < half {
            let (a, b) = (scores[unit], scores[unit + half]);
            let better = b > a || (b == a && places[unit + half] < places[unit]);
            scores[unit] = select(better, b, a);
            places[unit] = select(better, places[unit + half], places[unit]);
            flags[unit] = flags[unit] | flags[unit + half];
        }
        sync_cube();
    }
}

/// Finds the best token of each part. Flags parts that contain invalid logits (1) and finite ones (2).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn best_of_parts_kernel<X: Float, S: Numeric>(
    logits: &Array<X>,
    occurred: &Array<S>,
    thresholds: &Array<u32>,
    keys: &Array<u32>,
    best: &mut Array<f32>,
    tokens: &mut Array<u32>,
    by: Processing,
    rows: usize,
    classes: usize,
    part: usize,
    parts: usize,
    #[comptime] limited: bool,
    #[comptime] random: bool,
    #[define(X, S)] _dtypes: [StorageType; 2],
) {
    if CUBE_POS >= rows * parts {
        terminate!();
    }
    let mut scores = SharedMemory::<f32>::new(UNITS);
    let mut places = SharedMemory::<u32>::new(UNITS);
    let mut flags = SharedMemory::<u32>::new(UNITS);
    let (row, from) = (CUBE_POS / parts, CUBE_POS % parts * part);
    let mut to = from + part;
    if to > classes {
        to = classes;
    }
    let mut k0 = 0u32;
    let mut k1 = 0u32;
    if comptime!(random) {
        k0 = keys[2 * row];
        k1 = keys[2 * row + 1];
    }
    let unit = UNIT_POS as usize;
    let mut score = f32::min_value();
    let mut place = 0xffffffffu32;
    let mut flag = 0u32;
    let mut i = from + unit;
    while i < to {
        let bits = u32::reinterpret(f32::cast_from(logits[row * classes + i]));
        let finite = bits & 0x7f800000u32 != 0x7f800000u32;
        flag |= select(finite, 2u32, select(bits == MINUS_INFINITY, 0u32, 1u32));
        let value = value_at(logits, occurred, row * classes + i, &by);
        let mut allowed = finite;
        if comptime!(limited) {
            let (rank, least) = (rank_of(value), thresholds[2 * row]);
            allowed = finite && (rank > least || (rank == least && u32::cast_from(i) >= thresholds[2 * row + 1]));
        }
        let mut own = value;
        if comptime!(random) {
            own = value + gumbel_of(i, k0, k1);
        }
        if allowed && own > score {
            score = own;
            place = u32::cast_from(i);
        }
        i += UNITS;
    }
    scores[unit] = score;
    places[unit] = place;
    flags[unit] = flag;
    keep_best(&mut scores, &mut places, &mut flags, UNITS);
    if unit == 0 {
        best[CUBE_POS] = scores[0];
        tokens[2 * CUBE_POS] = places[0];
        tokens[2 * CUBE_POS + 1] = flags[0];
    }
}

/// Writes the best token of each row for the device (0 if there is none) and for the host (-1 if there is none).
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn best_of_rows_kernel<S: Numeric>(
    best: &Array<f32>,
    tokens: &Array<u32>,
    drawn: &mut Array<i32>,
    read: &mut Array<i32>,
    occurred: &mut Array<S>,
    rows: usize,
    classes: usize,
    parts: usize,
    #[comptime] penalised: bool,
    #[define(S)] _dtype: StorageType,
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut scores = SharedMemory::<f32>::new(PARTS);
    let mut places = SharedMemory::<u32>::new(PARTS);
    let mut flags = SharedMemory::<u32>::new(PARTS);
    let unit = UNIT_POS as usize;
    scores[unit] = f32::min_value();
    places[unit] = 0xffffffffu32;
    flags[unit] = 0u32;
    if unit < parts {
        let at = row * parts + unit;
        scores[unit] = best[at];
        places[unit] = tokens[2 * at];
        flags[unit] = tokens[2 * at + 1];
    }
    keep_best(&mut scores, &mut places, &mut flags, PARTS);
    if unit == 0 {
        let token = places[0];
        if flags[0] == 2u32 && u32::cast_from(classes) > token {
            drawn[row] = i32::cast_from(token);
            read[row] = i32::cast_from(token);
            if comptime!(penalised) {
                occurred[row * classes + usize::cast_from(token)] = S::from_int(1);
            }
        } else {
            drawn[row] = 0i32;
            read[row] = -1i32;
        }
    }
}
