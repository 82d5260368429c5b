//! Sums and maxima over the units of a cube, through shared memory: works on every device, whatever its plane size.

use cubecl::prelude::*;

/// Returns the sum over the units to every unit. `shared` has one element per unit; the number of units is a power of two.
#[cube]
pub(super) fn cube_sum(shared: &mut SharedMemory<f32>, x: f32, #[comptime] units: usize) -> f32 {
    reduce(shared, x, units, false)
}

/// Returns the maximum over the units to every unit.
#[cube]
pub(super) fn cube_max(shared: &mut SharedMemory<f32>, x: f32, #[comptime] units: usize) -> f32 {
    reduce(shared, x, units, true)
}

/// Reduces in only two steps, because each step needs a barrier: a few units reduce a column each, then every unit reduces
/// all columns.
#[cube]
fn reduce(shared: &mut SharedMemory<f32>, x: f32, #[comptime] units: usize, #[comptime] largest: bool) -> f32 {
    let unit = UNIT_POS as usize;
    let columns = comptime!(1usize << units.trailing_zeros().div_ceil(2));
    // Barrier: all units must have read the previous result.
    sync_cube();
    shared[unit] = x;
    sync_cube();
    if unit < columns {
        let mut result = shared[unit];
        #[unroll]
        for i in 1..comptime!(units / columns) {
            result = combined(result, shared[unit + comptime!(i * columns)], largest);
        }
        shared[unit] = result;
    }
    sync_cube();
    let mut result = shared[0];
    #[unroll]
    for i in 1..columns {
        result = combined(result, shared[comptime!(i)], largest);
    }
    result
}

#[cube]
fn combined(a: f32, b: f32, #[comptime] largest: bool) -> f32 {
    if comptime!(largest) { select(a > b, a, b) } else { a + b }
}
