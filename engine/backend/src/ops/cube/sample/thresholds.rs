//! Thresholds of the tokens that may be sampled, by bisection of bits: the value of a given rank, or the value below which
//! the total probability is a given one.

use burn::tensor::DType;
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::prelude::*;

use crate::ops::{
    SampleOptions,
    cube::{
        reduce::{cube_max, cube_sum},
        tensor::{addresses, array, cubes, empty},
    },
};

/// Conversion of a logit into the value by which tokens are compared.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(super) struct Processing {
    penalty: f32,
    temperature: f32,
    #[cube(comptime)]
    penalised: bool,
    #[cube(comptime)]
    scaled: bool,
}

#[allow(clippy::collapsible_if)] // one is taken when the kernel is generated, the other when it runs
#[cube]
pub(super) fn value_at<X: Float, S: Numeric>(
    logits: &Array<X>,
    occurred: &Array<S>,
    at: usize,
    by: &Processing,
) -> f32 {
    let mut value = f32::cast_from(logits[at]);
    if comptime!(by.penalised) {
        if u32::cast_from(occurred[at]) != 0u32 {
            value = select(value < 0.0f32, value * by.penalty, value / by.penalty);
        }
    }
    if comptime!(by.scaled) {
        value /= by.temperature;
    }
    value
}

/// Returns an integer with the same order as the values, with -0 before 0.
#[cube]
pub(super) fn rank_of(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    select(bits >> 31u32 == 1u32, bits ^ 0xffffffffu32, bits | 0x80000000u32)
}

/// Returns the smallest rank whose value is not less than that of a rank: both zeros are equal.
#[cube]
fn no_less(rank: u32) -> u32 {
    select(rank == 0x80000000u32, 0x7fffffffu32, rank)
}

/// Sum over ranks: the number of tokens.
const COUNT: u32 = 0;
/// Sum over ranks: `exp(value - largest)` of the tokens from a rank on.
const MASS: u32 = 1;
/// Sum over indices: the number of tokens with a rank.
const INDEX: u32 = 2;

/// Returns the largest number below which the sum is at most a limit. Determines 2 bits per iteration.
#[cube]
fn search<X: Float, S: Numeric>(
    logits: &Array<X>,
    occurred: &Array<S>,
    by: &Processing,
    start: usize,
    classes: usize,
    largest: f32,
    rank: u32,
    limit: f32,
    shared: &mut SharedMemory<f32>,
    #[comptime] sum: u32,
    #[comptime] units: usize,
) -> u32 {
    let mut found = 0u32;
    let mut shift = 32u32;
    while shift > 0u32 {
        shift -= 2u32;
        let step = 1u32 << shift;
        let (a, b, c) = (found + step, found + step + step, found + step + step + step);
        let mut below_a = 0.0f32;
        let mut below_b = 0.0f32;
        let mut below_c = 0.0f32;
        let mut i = UNIT_POS as usize;
        while i < classes {
            let value = value_at(logits, occurred, start + i, by);
            let own = rank_of(value);
            let mut key = own;
            let mut weight = 1.0f32;
            if comptime!(sum == MASS) {
                weight = select(own < rank, 0.0f32, f32::exp(value - largest));
            }
            if comptime!(sum == INDEX) {
                key = u32::cast_from(i);
                weight = select(own == rank, 1.0f32, 0.0f32);
            }
            below_a += select(key < a, weight, 0.0f32);
            below_b += select(key < b, weight, 0.0f32);
            below_c += select(key < c, weight, 0.0f32);
            i += units;
        }
        let below_a = cube_sum(shared, below_a, units);
        let below_b = cube_sum(shared, below_b, units);
        let below_c = cube_sum(shared, below_c, units);
        if below_c <= limit {
            found = c;
        } else if below_b <= limit {
            found = b;
        } else if below_a <= limit {
            found = a;
        }
    }
    found
}

/// Computes for each row the minimum rank of tokens that may be sampled, and the index of the first token with that rank.
#[cube(launch_unchecked, address_type = "dynamic")]
fn thresholds_kernel<X: Float, S: Numeric>(
    logits: &Array<X>,
    occurred: &Array<S>,
    thresholds: &mut Array<u32>,
    by: Processing,
    rows: usize,
    classes: usize,
    left_out: f32,
    mass_left_out: f32,
    log_min_p: f32,
    #[comptime] has_top_k: bool,
    #[comptime] has_top_p: bool,
    #[comptime] has_min_p: bool,
    #[comptime] units: usize,
    #[define(X, S)] _dtypes: [StorageType; 2],
) {
    let row = CUBE_POS;
    if row >= rows {
        terminate!();
    }
    let mut shared = SharedMemory::<f32>::new(units);
    let start = row * classes;
    let unit = UNIT_POS as usize;
    let mut largest = f32::min_value();
    let mut i = unit;
    while i < classes {
        let value = value_at(logits, occurred, start + i, &by);
        largest = select(value > largest, value, largest);
        i += units;
    }
    let largest = cube_max(&mut shared, largest, units);
    let mut least = 0u32;
    let mut first = 0u32;
    if comptime!(has_top_k) {
        let found = search(logits, occurred, &by, start, classes, largest, 0u32, left_out, &mut shared, COUNT, units);
        least = no_less(found);
    }
    if comptime!(has_top_p) {
        let mut mass = 0.0f32;
        let mut i = unit;
        while i < classes {
            let value = value_at(logits, occurred, start + i, &by);
            mass += select(rank_of(value) < least, 0.0f32, f32::exp(value - largest));
            i += units;
        }
        let limit = mass_left_out * cube_sum(&mut shared, mass, units);
        let found = search(logits, occurred, &by, start, classes, largest, least, limit, &mut shared, MASS, units);
        // The most likely token is always retained, however small the retained probability.
        let top = rank_of(largest);
        let found = select(found > top, top, found);
        let bound = select(found < least, least, found);
        // Of equally likely tokens, the first ones are removed first, as long as the removed probability stays within the
        // limit.
        let mut below = 0.0f32;
        let mut ties = 0.0f32;
        let mut each = 0.0f32;
        let mut i = unit;
        while i < classes {
            let value = value_at(logits, occurred, start + i, &by);
            let own = rank_of(value);
            let weight = f32::exp(value - largest);
            below += select(own >= least && own < bound, weight, 0.0f32);
            ties += select(own == bound, 1.0f32, 0.0f32);
            each = select(own == bound, weight, each);
            i += units;
        }
        let below = cube_sum(&mut shared, below, units);
        let ties = cube_sum(&mut shared, ties, units);
        let each = cube_max(&mut shared, each, units);
        let gone = f32::floor((limit - below) / each);
        let gone = select(gone < 0.0f32, 0.0f32, gone);
        let gone = select(gone < ties - 1.0f32, gone, ties - 1.0f32);
        first = search(logits, occurred, &by, start, classes, largest, bound, gone, &mut shared, INDEX, units);
        least = bound;
    }
    if comptime!(has_min_p) {
        let rank = no_less(rank_of(largest + log_min_p));
        if rank > least {
            least = rank;
            first = 0u32;
        }
    }
    if unit == 0 {
        thresholds[2 * row] = least;
        thresholds[2 * row + 1] = first;
    }
}

pub(super) fn processing<R: CubeRuntime>(options: &SampleOptions) -> ProcessingLaunch<R> {
    let (penalty, temperature) = (options.repetition_penalty, options.temperature);
    ProcessingLaunch::new(penalty, temperature, penalty != 1.0, ![0.0, 1.0].contains(&temperature))
}

/// Returns the thresholds of rows, `[rows, 2]`; `None` if all tokens may be sampled.
pub(super) fn thresholds<R: CubeRuntime>(
    logits: &CubeTensor<R>,
    occurred: &CubeTensor<R>,
    options: &SampleOptions,
) -> Option<CubeTensor<R>> {
    let (rows, classes) = (logits.meta.shape()[0], logits.meta.shape()[1]);
    let top_k = options.top_k.filter(|&k| k < classes);
    let top_p = options.top_p.filter(|&p| p < 1.0);
    let min_p = options.min_p.filter(|&p| p > 0.0);
    if options.temperature == 0.0 || top_k.is_none() && top_p.is_none() && min_p.is_none() {
        return None;
    }
    let thresholds = empty(logits, [rows, 2], DType::U32);
    let most = logits.client.properties().hardware.max_units_per_cube as usize;
    let units = classes.next_power_of_two().clamp(32, if most >= 1024 { 1024 } else { 256 });
    // SAFETY: logits and occurred tokens have `rows` rows of `classes` elements, and thresholds have 2 per row.
    unsafe {
        thresholds_kernel::launch_unchecked(
            &logits.client,
            cubes(&logits.client, rows),
            CubeDim::new_1d(units as u32),
            addresses(&[logits]),
            array(logits),
            array(occurred),
            array(&thresholds),
            processing(options),
            rows,
            classes,
            (classes - top_k.unwrap_or(classes)) as f32,
            (1.0 - f64::from(top_p.unwrap_or(1.0))) as f32,
            min_p.unwrap_or(1.0).ln(),
            top_k.is_some(),
            top_p.is_some(),
            min_p.is_some(),
            units,
            [logits.dtype.into(), occurred.dtype.into()],
        );
    }
    Some(thresholds)
}
