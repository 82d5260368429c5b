//! Kernels of a step of a recurrent layer.

use cubecl::prelude::*;

/// Sequences and hidden units per cube.
pub(super) const ROWS: usize = 16;
pub(super) const HIDDEN: usize = 4;
/// Terms per tile, for each of the units that share a sum.
const DEPTH: usize = 32;
/// Units that share a sum over the gates in a backward pass.
pub(super) const SLICES: usize = 4;

/// Rows of a step, and of the previous and the next step in processing order.
#[derive(CubeType, CubeLaunch, Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    /// First row of the step, and its number of sequences.
    pub start: usize,
    pub active: usize,
    /// First row of the previous step, and the number of sequences that it shares with this one.
    pub before: usize,
    pub active_before: usize,
    /// First row of the next step, and the number of sequences that it shares with this one.
    pub after: usize,
    pub active_after: usize,
}

/// Rows of the left operand, of `k` elements each: the first `split` are in one array, the others up to `limit` in another.
/// Rows from `limit` on are zeros.
#[derive(CubeType)]
struct Rows {
    first: usize,
    start: usize,
    split: usize,
    limit: usize,
    k: usize,
}

/// Rows of the right operand for the columns of a cube: `gates` times `HIDDEN` of them, `n` apart.
#[derive(CubeType)]
struct Columns {
    first: usize,
    n: usize,
}

/// Computes partial sums over `k`: each unit computes the part of one row, one column and one slice,
/// `[ROWS, columns, slices]`.
#[cube]
fn multiply<X: Float>(
    near: &Array<X>,
    far: &Array<X>,
    rows: &Rows,
    weight: &Array<X>,
    columns: &Columns,
    sums: &mut SharedMemory<f32>,
    #[comptime] gates: usize,
    #[comptime] slices: usize,
) {
    let wide = comptime!(gates * HIDDEN);
    let units = comptime!(ROWS * gates * HIDDEN * slices);
    let depth = comptime!(DEPTH * slices);
    // Padded, so that adjacent rows start in different banks.
    let pitch = comptime!(DEPTH * slices + slices);
    let mut left = SharedMemory::<f32>::new(comptime!(ROWS * DEPTH * slices));
    let mut right = SharedMemory::<f32>::new(comptime!(gates * HIDDEN * (DEPTH * slices + slices)));
    let unit = UNIT_POS as usize;
    let (slice, column, row) = (unit % slices, unit / slices % wide, unit / slices / wide);
    let mut sum = 0.0f32;
    let mut from = 0usize;
    while from < rows.k {
        let mut i = unit;
        while i < comptime!(ROWS * DEPTH * slices) {
            let (at, k) = (rows.first + i / depth, from + i % depth);
            let mut value = 0.0f32;
            if k < rows.k && at < rows.limit {
                if at < rows.split {
                    value = f32::cast_from(near[(rows.start + at) * rows.k + k]);
                } else {
                    value = f32::cast_from(far[at * rows.k + k]);
                }
            }
            left[i] = value;
            i += units;
        }
        let mut i = unit;
        while i < comptime!(gates * HIDDEN * DEPTH * slices) {
            let (at, k) = (i / depth, i % depth);
            let hidden = columns.first + at % HIDDEN;
            let mut value = 0.0f32;
            if from + k < rows.k && hidden < columns.n {
                value = f32::cast_from(weight[(at / HIDDEN * columns.n + hidden) * rows.k + from + k]);
            }
            right[at * pitch + k] = value;
            i += units;
        }
        sync_cube();
        #[unroll]
        for k in 0..comptime!(DEPTH) {
            sum += left[row * depth + k * slices + slice] * right[column * pitch + k * slices + slice];
        }
        sync_cube();
        from += depth;
    }
    sums[unit] = sum;
    sync_cube();
}

#[cube]
fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + f32::exp(-x))
}

/// Forward step: computes the gates of each sequence and hidden unit, and the cell's new state.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn forward_kernel<X: Float>(
    projected: &Array<X>,
    w_hh: &Array<X>,
    bias: &Array<X>,
    h0: &Array<X>,
    c0: &Array<X>,
    output: &mut Array<X>,
    gates: &mut Array<X>,
    saved: &mut Array<X>,
    step: Step,
    n: usize,
    rows: usize,
    batch: usize,
    cubes: usize,
    #[comptime] count: usize,
    #[comptime] keep: bool,
    #[define(X)] _dtype: StorageType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let blocks = n.div_ceil(HIDDEN);
    let (first_row, first) = (CUBE_POS / blocks * ROWS, CUBE_POS % blocks * HIDDEN);
    let mut sums = SharedMemory::<f32>::new(comptime!(ROWS * HIDDEN * count));
    let left = Rows { first: first_row, start: step.before, split: step.active_before, limit: step.active, k: n };
    let right = Columns { first, n };
    multiply::<X>(output, h0, &left, w_hh, &right, &mut sums, count, 1usize);

    let unit = UNIT_POS as usize;
    let (row, hidden) = (first_row + unit / HIDDEN, first + unit % HIDDEN);
    if unit < comptime!(ROWS * HIDDEN) && row < step.active && hidden < n {
        let wide = count * n;
        let at = (step.start + row) * wide + hidden;
        let sum = unit / HIDDEN * comptime!(count * HIDDEN) + unit % HIDDEN;
        let result = (step.start + row) * n + hidden;
        let own = row * n + hidden;
        let h = if comptime!(count == 4) {
            let i = sigmoid(f32::cast_from(projected[at]) + sums[sum]);
            let f = sigmoid(f32::cast_from(projected[at + n]) + sums[sum + HIDDEN]);
            let g = f32::tanh(f32::cast_from(projected[at + 2 * n]) + sums[sum + 2 * HIDDEN]);
            let o = sigmoid(f32::cast_from(projected[at + 3 * n]) + sums[sum + 3 * HIDDEN]);
            let state = (rows + batch) * n + own;
            let mut c_before = f32::cast_from(c0[own]);
            if row < step.active_before {
                c_before = f32::cast_from(output[state]);
            }
            let c = f * c_before + i * g;
            output[state] = X::cast_from(c);
            if comptime!(keep) {
                gates[at] = X::cast_from(i);
                gates[at + n] = X::cast_from(f);
                gates[at + 2 * n] = X::cast_from(g);
                gates[at + 3 * n] = X::cast_from(o);
                saved[result] = X::cast_from(c);
            }
            o * f32::tanh(c)
        } else {
            let r = sigmoid(f32::cast_from(projected[at]) + sums[sum]);
            let z = sigmoid(f32::cast_from(projected[at + n]) + sums[sum + HIDDEN]);
            let from_state = sums[sum + 2 * HIDDEN] + f32::cast_from(bias[3 * n + hidden]);
            let new = f32::tanh(f32::cast_from(projected[at + 2 * n]) + r * from_state);
            let mut before = f32::cast_from(h0[own]);
            if row < step.active_before {
                before = f32::cast_from(output[(step.before + row) * n + hidden]);
            }
            if comptime!(keep) {
                gates[at] = X::cast_from(r);
                gates[at + n] = X::cast_from(z);
                gates[at + 2 * n] = X::cast_from(new);
                saved[result] = X::cast_from(from_state);
            }
            new + z * (before - new)
        };
        output[result] = X::cast_from(h);
        if row >= step.active_after {
            output[rows * n + own] = X::cast_from(h);
        }
    }
}

/// Backward step: computes the gradients of the gates of each sequence and hidden unit from those of the next step.
#[cube(launch_unchecked, address_type = "dynamic")]
pub(super) fn backward_kernel<X: Float>(
    weight: &Array<X>,
    gates: &Array<X>,
    saved: &Array<X>,
    output: &Array<X>,
    h0: &Array<X>,
    c0: &Array<X>,
    grad: &Array<X>,
    d_state: &mut Array<X>,
    d_new: &mut Array<X>,
    before: &mut Array<X>,
    direct: &mut Array<X>,
    d_first: &mut Array<X>,
    step: Step,
    n: usize,
    rows: usize,
    batch: usize,
    cubes: usize,
    #[comptime] count: usize,
    #[define(X)] _dtype: StorageType,
) {
    if CUBE_POS >= cubes {
        terminate!();
    }
    let blocks = n.div_ceil(HIDDEN);
    let (first_row, first) = (CUBE_POS / blocks * ROWS, CUBE_POS % blocks * HIDDEN);
    let wide = count * n;
    let mut sums = SharedMemory::<f32>::new(comptime!(ROWS * HIDDEN * SLICES));
    if first_row < step.active_after {
        let left =
            Rows { first: first_row, start: step.after, split: step.active_after, limit: step.active_after, k: wide };
        let right = Columns { first, n };
        multiply::<X>(d_state, grad, &left, weight, &right, &mut sums, 1usize, SLICES);
    }

    let unit = UNIT_POS as usize;
    let (row, hidden) = (first_row + unit / HIDDEN, first + unit % HIDDEN);
    if unit < comptime!(ROWS * HIDDEN) && row < step.active && hidden < n {
        let own = row * n + hidden;
        let result = (step.start + row) * n + hidden;
        let at = (step.start + row) * wide + hidden;
        let continues = row < step.active_after;
        let mut dh = f32::cast_from(grad[rows * n + own]);
        if continues {
            dh = 0.0f32;
            #[unroll]
            for slice in 0..comptime!(SLICES) {
                dh += sums[unit * SLICES + slice];
            }
        }
        let mut h_before = f32::cast_from(h0[own]);
        if row < step.active_before {
            h_before = f32::cast_from(output[(step.before + row) * n + hidden]);
        }
        before[result] = X::cast_from(h_before);
        let own_grad = f32::cast_from(grad[result]);
        let mut grads = Array::<f32>::new(count);
        if comptime!(count == 4) {
            let d_output = dh + own_grad;
            let i = f32::cast_from(gates[at]);
            let f = f32::cast_from(gates[at + n]);
            let g = f32::cast_from(gates[at + 2 * n]);
            let o = f32::cast_from(gates[at + 3 * n]);
            let squashed = f32::tanh(f32::cast_from(saved[result]));
            let mut c_before = f32::cast_from(c0[own]);
            if row < step.active_before {
                c_before = f32::cast_from(saved[(step.before + row) * n + hidden]);
            }
            let mut dc = f32::cast_from(grad[(rows + batch) * n + own]);
            if continues {
                dc = f32::cast_from(direct[own]);
            }
            let dc = dc + d_output * o * (1.0 - squashed * squashed);
            direct[own] = X::cast_from(dc * f);
            grads[0] = dc * g * i * (1.0 - i);
            grads[1] = dc * c_before * f * (1.0 - f);
            grads[2] = dc * i * (1.0 - g * g);
            grads[3] = d_output * squashed * o * (1.0 - o);
        } else {
            if continues {
                dh += f32::cast_from(direct[own]);
            }
            let d_output = dh + own_grad;
            let r = f32::cast_from(gates[at]);
            let z = f32::cast_from(gates[at + n]);
            let new = f32::cast_from(gates[at + 2 * n]);
            let to_new = d_output * (1.0 - z) * (1.0 - new * new);
            direct[own] = X::cast_from(d_output * z);
            d_new[result] = X::cast_from(to_new);
            grads[0] = to_new * f32::cast_from(saved[result]) * r * (1.0 - r);
            grads[1] = d_output * (h_before - new) * z * (1.0 - z);
            grads[2] = to_new * r;
        }
        #[unroll]
        for gate in 0..count {
            d_state[at + gate * n] = X::cast_from(grads[gate]);
        }
        if row >= step.active_before {
            #[unroll]
            for gate in 0..count {
                d_first[row * wide + gate * n + hidden] = X::cast_from(grads[gate]);
            }
        }
    }
}
