//! Attention of a few queries, as in decoding, in one launch. The scores are not materialised.

use burn::tensor::{DType, Shape, Tensor, TensorMetadata};
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    Fusing,
    key_range::{Limits, Ranges, visible_keys},
    reduce::{cube_max, cube_sum},
    register::{FusedTensor, register_list},
    tensor::{Strides, StridesLaunch, addresses, array, cubes, empty},
};
use crate::ops::{Attention, KeyRanges, Values};

/// Maximum number of queries per head for this kernel. Each query reads all keys and values.
const MAX_QUERIES: usize = 8;
const UNITS: usize = 256;

/// One cube per query, which processes the visible keys in blocks of 256: it computes their scores, updates the running
/// maximum and the sum of exponentials, and accumulates their values. Each unit accumulates one component for some of the
/// keys.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::collapsible_if)] // one is taken when the kernel is generated, the other when it runs
fn attention_kernel<X: Float, M: Int, P: Int, L: Int>(
    q: &Array<X>,
    k: &Array<X>,
    v: &Array<X>,
    mask: &Array<M>,
    padding: &Array<P>,
    lengths: &Array<L>,
    y: &mut Array<X>,
    q_at: Strides,
    k_at: Strides,
    v_at: Strides,
    mask_at: Strides,
    queries: usize,
    n_head: usize,
    group: usize,
    t: usize,
    s: usize,
    window: usize,
    scale: f32,
    #[comptime] head_dim: usize,
    #[comptime] limits: Limits,
    #[comptime] masked: bool,
    #[define(X, M, P, L)] _dtypes: [StorageType; 4],
) {
    let query = CUBE_POS;
    if query >= queries {
        terminate!();
    }
    let unit = UNIT_POS as usize;
    let (i, head, b) = (query % t, query / t % n_head, query / t / n_head);
    let mut shared = SharedMemory::<f32>::new(comptime!(UNITS));
    let mut weights = SharedMemory::<f32>::new(comptime!(UNITS));
    let mut numbers = SharedMemory::<f32>::new(head_dim);
    if unit < head_dim {
        let at = b * q_at.batch + head * q_at.head + i * q_at.position + unit * q_at.number;
        numbers[unit] = f32::cast_from(q[at]);
    }
    sync_cube();
    let k_start = b * k_at.batch + head / group * k_at.head;
    let v_start = b * v_at.batch + head / group * v_at.head;
    let mask_start = b * mask_at.batch + head * mask_at.head + i * mask_at.position;
    let keys = visible_keys::<P, L>(b, i, t, s, window, padding, lengths, limits);
    let seen = keys.end;
    let slices = comptime!(UNITS / head_dim);
    let (number, slice) = (unit % head_dim, unit / head_dim);
    let mut largest = f32::min_value();
    let mut sum = 0.0f32;
    let mut result = 0.0f32;
    let mut first = keys.start;
    while first < seen {
        let key = first + unit;
        let mut score = f32::min_value();
        let mut sees = key < seen;
        if comptime!(masked) {
            if sees {
                sees = u32::cast_from(mask[mask_start + key * mask_at.number]) == 0;
            }
        }
        if sees {
            let at = k_start + key * k_at.position;
            let mut product = 0.0f32;
            for j in 0..head_dim {
                product += numbers[j] * f32::cast_from(k[at + j * k_at.number]);
            }
            score = product * scale;
        }
        let highest = cube_max(&mut shared, score, comptime!(UNITS));
        let raised = select(highest > largest, highest, largest);
        let weight = select(sees, f32::exp(score - raised), 0.0f32);
        weights[unit] = weight;
        let total = cube_sum(&mut shared, weight, comptime!(UNITS));
        let shrink = f32::exp(largest - raised);
        sum = sum * shrink + total;
        result *= shrink;
        if slice < slices {
            let mut end = seen - first;
            if end > comptime!(UNITS) {
                end = comptime!(UNITS);
            }
            let mut j = slice;
            while j < end {
                let at = v_start + (first + j) * v_at.position + number * v_at.number;
                result += weights[j] * f32::cast_from(v[at]);
                j += slices;
            }
        }
        largest = raised;
        first += comptime!(UNITS);
    }
    sync_cube();
    shared[unit] = result;
    sync_cube();
    if unit < head_dim {
        let mut all = 0.0f32;
        #[unroll]
        for j in 0..slices {
            all += shared[j * head_dim + unit];
        }
        // A fully masked query gives 0.
        let divisor = select(sum > 0.0f32, sum, 1.0f32);
        y[((b * t + i) * n_head + head) * head_dim + unit] = X::cast_from(all / divisor);
    }
}

/// Options of the kernel.
#[derive(Clone, Copy)]
struct Options {
    scale: f32,
    masked: bool,
    ranges: Ranges,
}

fn launch<R: CubeRuntime>(inputs: Vec<CubeTensor<R>>, options: Options) -> CubeTensor<R> {
    let Options { scale, masked, ranges } = options;
    let mut inputs = inputs.into_iter();
    let mut next = || inputs.next().expect("as many inputs as were registered");
    let [q, k, v] = [next(), next(), next()];
    let mask = masked.then(next);
    let [(padding, p_type), (lengths, l_type)] = ranges.tensors(inputs, &q);
    let shape = q.shape();
    let [b, n_head, t, head_dim] = [0, 1, 2, 3].map(|i| shape[i]);
    let (n_kv_head, s) = (k.meta.shape()[1], k.meta.shape()[2]);
    // The head axis follows the positions in memory, as the layer uses the output, so that the layer copies nothing.
    let mut y = empty(&q, [b, t, n_head, head_dim], q.dtype);
    let [mask_batch, mask_head, mask_position, mask_number] = mask.as_ref().map_or([0; 4], |mask| {
        let (shape, strides) = (mask.meta.shape(), mask.meta.strides());
        // An axis of size 1 is broadcast.
        [0, 1, 2, 3].map(|i| if shape[i] == 1 { 0 } else { strides[i] })
    });
    // Without a mask another array is passed as a placeholder, and is not read.
    let (m, m_type) = mask.as_ref().map_or((&q, DType::U32.into()), |mask| (mask, mask.dtype.into()));
    // SAFETY: batch, head, position and component indices are below the sizes of the indexed arrays; the head index of keys
    // and values is divided by the group size. Padding and lengths have one element per sequence if they are read. The
    // output has an element for each component of each query.
    unsafe {
        attention_kernel::launch_unchecked(
            &q.client,
            cubes(&q.client, b * n_head * t),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&q, &k, &v, m, &y]),
            array(&q),
            array(&k),
            array(&v),
            array(m),
            array(&padding),
            array(&lengths),
            array(&y),
            StridesLaunch::of(&q),
            StridesLaunch::of(&k),
            StridesLaunch::of(&v),
            StridesLaunch::new(mask_batch, mask_head, mask_position, mask_number),
            b * n_head * t,
            n_head,
            n_head / n_kv_head,
            t,
            s,
            ranges.window,
            scale,
            head_dim,
            ranges.limits,
            masked,
            [q.dtype.into(), m_type, p_type, l_type],
        );
    }
    y.meta.swap(1, 2);
    y
}

/// Returns true for sizes that this kernel supports.
pub(super) fn is_small(q: &Shape, k: &Shape, causal: bool) -> bool {
    let ([t, s], head_dim) = ([q[2], k[2]], q[3]);
    (1..=MAX_QUERIES).contains(&t) && (1..=UNITS).contains(&head_dim) && s > 0 && (!causal || t <= s)
}

/// Computes `softmax(q k^T * scale) v` for a few queries, without dropout.
pub(super) fn attention<R: CubeRuntime, B: Fusing<R>>(attention: Attention, mut values: Values<B>) -> FusedTensor<R> {
    let (q, s, dtype) = (values.shape(0), values.shape(1)[2], values.dtype(0));
    let ranges = KeyRanges::take(attention.causal, attention.window, &mut values, 3);
    let mask = values.take_optional_bool::<4>(5).map(Tensor::into_primitive);
    let masked = mask.is_some();
    let mut inputs: Vec<_> = [0, 1, 2].map(|i| values.take_float(i)).into_iter().chain(mask).collect();
    let ranges = Ranges::register(ranges, s, &mut inputs);
    let options = Options { scale: attention.scale as f32, masked, ranges };
    let y = register_list("grove_attention", inputs, vec![(q, dtype)], move |inputs| vec![launch(inputs, options)]);
    y.into_iter().next().expect("one output was described")
}
