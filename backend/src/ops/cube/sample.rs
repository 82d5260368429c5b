//! Sampling of tokens from logits, `[rows, classes]`. Each row is divided into parts. A cube finds the best token of a
//! part, and another one the best of the parts. If only some tokens may be drawn, a cube first finds their thresholds
//! by bisection of the bits: the value of a given rank, or the value below which there is a given probability.

use burn::tensor::{DType, TensorData, TensorMetadata, backend::ExecutionError};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::{
    future::{DynFut, block_on},
    prelude::*,
};
use std::sync::{Arc, Mutex, PoisonError};

use super::{
    random::{gumbel_of, threefry},
    read::queue_read,
    reduce::{cube_max, cube_sum},
    register::{Lazy, register},
    tensor::{addresses, array, cubes, empty},
};
use crate::ops::{PendingRead, PendingTokens, SampleOptions, SampledPrimitives};

/// Units that find the best token of a part.
const UNITS: usize = 256;

/// Tokens of a part, and maximum number of parts of a row.
const PART: usize = 2048;
const PARTS: usize = 64;

/// The bits of minus infinity, which is an allowed logit, unlike other non-finite ones.
const MINUS_INFINITY: u32 = 0xff80_0000;

/// Conversion of a logit into the value that tokens are compared by.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
struct Processing {
    penalty: f32,
    temperature: f32,
    #[cube(comptime)]
    penalised: bool,
    #[cube(comptime)]
    scaled: bool,
}

#[allow(clippy::collapsible_if)] // one is taken when the kernel is generated, the other when it runs
#[cube]
fn value_at<X: Float, S: Numeric>(logits: &Array<X>, occurred: &Array<S>, at: usize, by: &Processing) -> f32 {
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

/// Returns an integer with the order of the values, -0 before 0.
#[cube]
fn rank_of(value: f32) -> u32 {
    let bits = u32::reinterpret(value);
    select(bits >> 31u32 == 1u32, bits ^ 0xffffffffu32, bits | 0x80000000u32)
}

/// Returns the least rank whose value is not below that of a rank: both zeros are equal.
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

/// Returns the largest number below which the sum is at most a limit. Determines 2 bits at a time.
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

/// Computes, for each row, the rank from which on tokens may be drawn, and the index of the first token with that rank.
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
        // The likeliest token is kept, however small the kept probability is.
        let top = rank_of(largest);
        let found = select(found > top, top, found);
        let bound = select(found < least, least, found);
        // Of equally likely tokens the first ones are left out first, until too much would be left out.
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

/// Reduces the units to the first one: the largest score, the first index among equal ones, and all flags combined.
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

/// Finds the best token of each part. Flags parts with invalid logits (1) and with finite ones (2).
#[cube(launch_unchecked, address_type = "dynamic")]
fn best_of_parts_kernel<X: Float, S: Numeric>(
    logits: &Array<X>,
    occurred: &Array<S>,
    thresholds: &Array<u32>,
    best: &mut Array<f32>,
    tokens: &mut Array<u32>,
    by: Processing,
    rows: usize,
    classes: usize,
    part: usize,
    parts: usize,
    k0: u32,
    k1: u32,
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
    let (r0, r1) = threefry(0u32, u32::cast_from(row), k0, k1);
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
            own = value + gumbel_of(i, r0, r1);
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

/// Writes the best token of each row for the device, where it is 0 if there is none, and for the host, where it is -1.
#[cube(launch_unchecked, address_type = "dynamic")]
fn best_of_rows_kernel<S: Numeric>(
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

fn processing<R: CubeRuntime>(options: &SampleOptions) -> ProcessingLaunch<R> {
    let (penalty, temperature) = (options.repetition_penalty, options.temperature);
    ProcessingLaunch::new(penalty, temperature, penalty != 1.0, ![0.0, 1.0].contains(&temperature))
}

/// Returns the thresholds of rows, `[rows, 2]`; `None` if all tokens may be drawn.
fn thresholds<R: CubeRuntime>(
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
    // SAFETY: logits and the occurred tokens have `rows` rows of `classes` elements, and thresholds have 2 for each
    // row.
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

/// Returns the drawn tokens for the device and for the host, and the tokens that have occurred, if they are used.
fn launch<R: CubeRuntime>(
    logits: CubeTensor<R>,
    occurred: Option<CubeTensor<R>>,
    options: &SampleOptions,
) -> (CubeTensor<R>, CubeTensor<R>, Option<CubeTensor<R>>) {
    let logits = into_contiguous(logits);
    // A shared tensor is copied before it is written.
    let occurred = occurred.map(into_contiguous).map(|x| if x.can_mut() { x } else { x.copy() });
    let (rows, classes) = (logits.meta.shape()[0], logits.meta.shape()[1]);
    // In place of a missing array another one is passed, and is not read.
    let flags = occurred.as_ref().unwrap_or(&logits);
    let thresholds = thresholds(&logits, flags, options);
    let part = classes.div_ceil(PARTS).max(PART);
    let parts = classes.div_ceil(part);
    let best = empty(&logits, [rows, parts], DType::F32);
    let tokens = empty(&logits, [rows, parts, 2], DType::U32);
    let [drawn, read] = [(); 2].map(|()| empty(&logits, [rows], DType::I32));
    let unused = empty(&logits, [1, 1], DType::I32);
    let limits = thresholds.as_ref().unwrap_or(&unused);
    let written = occurred.as_ref().unwrap_or(&unused);
    let [k0, k1] = options.key;
    // SAFETY: logits and the occurred tokens have `rows` rows of `classes` elements. Each part of a row has its
    // elements in `best` and `tokens`, and each row in `drawn` and `read`. A token that is written is below `classes`.
    unsafe {
        best_of_parts_kernel::launch_unchecked(
            &logits.client,
            cubes(&logits.client, rows * parts),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&logits]),
            array(&logits),
            array(flags),
            array(limits),
            array(&best),
            array(&tokens),
            processing(options),
            rows,
            classes,
            part,
            parts,
            k0,
            k1,
            thresholds.is_some(),
            options.temperature > 0.0,
            [logits.dtype.into(), flags.dtype.into()],
        );
        best_of_rows_kernel::launch_unchecked(
            &logits.client,
            cubes(&logits.client, rows),
            CubeDim::new_1d(PARTS as u32),
            addresses(&[&logits]),
            array(&best),
            array(&tokens),
            array(&drawn),
            array(&read),
            array(written),
            rows,
            classes,
            parts,
            occurred.is_some(),
            written.dtype.into(),
        );
    }
    (drawn, read, occurred)
}

/// Slot in which an operation stores the queued copy of its result once it has been executed.
type Slot = Arc<Mutex<Option<DynFut<Result<TensorData, ExecutionError>>>>>;

fn begin_read<R: CubeRuntime>(x: CubeTensor<R>, slot: &Slot) {
    *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(queue_read(x));
}

/// See [`Backend::sample`](crate::Backend::sample).
pub(super) fn sample<R: CubeRuntime, B>(
    logits: Lazy<R>,
    occurred: Option<Lazy<R>>,
    options: SampleOptions,
) -> SampledPrimitives<B>
where
    B: crate::Backend<IntTensorPrimitive = Lazy<R>>,
{
    let penalised = options.repetition_penalty != 1.0;
    assert!(!penalised || occurred.is_some(), "a repetition penalty needs the tokens that have occurred");
    let client = logits.client.clone();
    let slot = Slot::default();
    let filled = slot.clone();
    let rows = logits.shape()[0];
    let output = ([rows].into(), DType::I32);
    let (drawn, occurred) = match occurred.filter(|_| penalised) {
        Some(occurred) => {
            let outputs = [output, (occurred.shape(), occurred.dtype())];
            let [drawn, occurred] = register("grove_sample", [logits, occurred], outputs, move |[logits, occurred]| {
                let (drawn, read, occurred) = launch(logits, Some(occurred), &options);
                begin_read(read, &filled);
                [drawn, occurred.expect("what went in")]
            });
            (drawn, Some(occurred))
        }
        None => {
            let [drawn] = register("grove_sample", [logits], [output], move |[logits]| {
                let (drawn, read, _) = launch(logits, None, &options);
                begin_read(read, &filled);
                [drawn]
            });
            (drawn, None)
        }
    };
    let take = |slot: &Slot| slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    let pending = PendingRead::new(move || {
        // If the operation has not been executed yet, this executes all queued operations.
        let copy = take(&slot).or_else(|| {
            client.sync(|| ());
            take(&slot)
        });
        block_on(copy.expect("the operation was carried out"))
    });
    (drawn, occurred, PendingTokens(pending))
}
