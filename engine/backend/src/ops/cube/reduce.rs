//! Sums and maxima over the units of a cube, in shared memory: on every device, whatever the size of its planes.

use cubecl::prelude::*;

/// Returns the sum over the units to each of them. `shared` has as many elements as there are units, a power of two.
#[cube]
pub(super) fn cube_sum(shared: &mut SharedMemory<f32>, x: f32, #[comptime] units: usize) -> f32 {
    reduce(shared, x, units, false)
}

/// Returns the maximum over the units to each of them.
#[cube]
pub(super) fn cube_max(shared: &mut SharedMemory<f32>, x: f32, #[comptime] units: usize) -> f32 {
    reduce(shared, x, units, true)
}

#[cube]
fn reduce(shared: &mut SharedMemory<f32>, x: f32, #[comptime] units: usize, #[comptime] largest: bool) -> f32 {
    let unit = UNIT_POS as usize;
    // Before this, all units have read the previous result.
    sync_cube();
    shared[unit] = x;
    sync_cube();
    #[unroll]
    for i in 0..comptime!(units.trailing_zeros() as usize) {
        let half = comptime!(units >> (i + 1));
        if unit < half {
            let (a, b) = (shared[unit], shared[unit + half]);
            shared[unit] = if comptime!(largest) { select(a > b, a, b) } else { a + b };
        }
        sync_cube();
    }
    shared[0]
}
