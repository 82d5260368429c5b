//! Optimizer operations on many leaves in one launch.
//!
//! A kernel takes a sequence of arrays, is compiled for its length, and assigns a range of cubes to each leaf. The device's
//! number of bindings limits the leaves per launch.

use burn::tensor::{DType, Shape, TensorMetadata};
use burn_cubecl::{CubeRuntime, kernel::into_contiguous, tensor::CubeTensor};
use cubecl::prelude::*;

use super::{
    reduce::cube_sum,
    register::{FusedTensor, register_list},
    tensor::{addresses, cubes, empty, owned},
};

const UNITS: usize = 256;
/// Elements per unit.
const PER_UNIT: usize = 8;
/// Maximum number of leaves per launch and per registered operation, whose memory is held until the operation has run. CUDA
/// limits kernel parameters to 4 KB. An array takes at most 24 bytes (a pointer and two lengths): 40 leaves of four arrays,
/// and the hyperparameters, take 3,864 bytes.
const MAX_LEAVES: usize = 40;

/// Returns the number of leaves that fit into a launch, if each needs `bindings` bindings and there are at most three
/// others.
fn leaves_of_launch<R: CubeRuntime>(like: &CubeTensor<R>, bindings: usize) -> usize {
    let most = like.client.properties().hardware.max_bindings as usize;
    (most.saturating_sub(4) / bindings).clamp(1, MAX_LEAVES)
}

/// Returns the elements of a contiguous tensor as a kernel argument.
fn elements<R: CubeRuntime>(x: &CubeTensor<R>) -> ArrayArg<R> {
    let count = x.meta.shape().num_elements();
    // SAFETY: the tensor is contiguous, and its memory has an element for each element of its shape.
    unsafe { ArrayArg::from_raw_parts(x.handle.clone(), count) }
}

fn has_elements<R: CubeRuntime>(x: &CubeTensor<R>) -> bool {
    x.meta.shape().num_elements() > 0
}

fn cubes_of(count: usize) -> usize {
    count.div_ceil(UNITS * PER_UNIT)
}

/// Returns the number of cubes of a launch over these leaves.
fn cube_count<R: CubeRuntime>(leaves: &[&CubeTensor<R>]) -> usize {
    leaves.iter().map(|leaf| cubes_of(leaf.meta.shape().num_elements())).sum()
}

/// Writes the sum of squares of each cube.
#[cube(launch_unchecked, address_type = "dynamic")]
fn squares_kernel<X: Float>(leaves: &Sequence<Array<X>>, sums: &mut Array<f32>, #[define(X)] _dtype: StorageType) {
    let mut shared = SharedMemory::<f32>::new(UNITS);
    let unit = UNIT_POS as usize;
    let mut sum = 0.0f32;
    let mut first = 0usize;
    #[unroll]
    for i in 0..leaves.len() {
        let leaf = leaves.index(i);
        let count = leaf.len();
        let end = first + count.div_ceil(UNITS * PER_UNIT);
        if CUBE_POS >= first && CUBE_POS < end {
            let start = (CUBE_POS - first) * (UNITS * PER_UNIT) + unit;
            #[unroll]
            for j in 0..PER_UNIT {
                let at = start + j * UNITS;
                if at < count {
                    let x = f32::cast_from(leaf[at]);
                    sum += x * x;
                }
            }
        }
        first = end;
    }
    let sum = cube_sum(&mut shared, sum, UNITS);
    if unit == 0 && CUBE_POS < first {
        sums[CUBE_POS] = sum;
    }
}

/// Adds the cubes' sums to the previous total, in one cube.
#[cube(launch_unchecked, address_type = "dynamic")]
fn total_kernel(
    sums: &Array<f32>,
    before: &Array<f32>,
    total: &mut Array<f32>,
    count: usize,
    #[comptime] has_before: bool,
) {
    let mut shared = SharedMemory::<f32>::new(UNITS);
    let unit = UNIT_POS as usize;
    let mut sum = 0.0f32;
    let mut i = unit;
    while i < count {
        sum += sums[i];
        i += UNITS;
    }
    let sum = cube_sum(&mut shared, sum, UNITS);
    if unit == 0 {
        if comptime!(has_before) {
            total[0] = before[0] + sum;
        } else {
            total[0] = sum;
        }
    }
}

/// Returns the sum of the squares of all elements of leaves, plus the previous total.
fn launch_squares<R: CubeRuntime>(before: Option<CubeTensor<R>>, leaves: &[&CubeTensor<R>]) -> CubeTensor<R> {
    let like = leaves[0];
    let (count, total) = (cube_count(leaves), empty(like, [1], DType::F32));
    let sums = empty(like, [count], DType::F32);
    // SAFETY: leaves are contiguous, and `sums` has an element for each of their cubes. `before` and `total` have one
    // element.
    unsafe {
        squares_kernel::launch_unchecked(
            &like.client,
            cubes(&like.client, count),
            CubeDim::new_1d(UNITS as u32),
            addresses(leaves),
            leaves.iter().copied().map(elements).collect(),
            elements(&sums),
            like.dtype.into(),
        );
        total_kernel::launch_unchecked(
            &like.client,
            CubeCount::new_single(),
            CubeDim::new_1d(UNITS as u32),
            addresses(&[&sums]),
            elements(&sums),
            elements(before.as_ref().unwrap_or(&sums)),
            elements(&total),
            count,
            before.is_some(),
        );
    }
    total
}

/// See [`SumOfSquares`](crate::ops::SumOfSquares). No leaf may be empty.
pub(super) fn sum_of_squares<R: CubeRuntime>(leaves: Vec<FusedTensor<R>>) -> Option<FusedTensor<R>> {
    let mut total: Option<FusedTensor<R>> = None;
    for group in groups(leaves) {
        let continued = total.is_some();
        let inputs = total.into_iter().chain(group).collect();
        let outputs = vec![(Shape::from([1]), DType::F32)];
        let mut sums = register_list("grove_sum_of_squares", inputs, outputs, move |mut inputs| {
            let mut total = continued.then(|| inputs.remove(0));
            let leaves: Vec<_> = inputs.into_iter().map(into_contiguous).collect();
            for part in leaves.iter().collect::<Vec<_>>().chunks(leaves_of_launch(&leaves[0], 1)) {
                total = Some(launch_squares(total.take(), part));
            }
            total.into_iter().collect()
        });
        total = sums.pop();
    }
    total
}

/// Divides leaves into groups, one operation each.
fn groups<T>(leaves: Vec<T>) -> Vec<Vec<T>> {
    let mut rest = leaves.into_iter();
    std::iter::from_fn(|| Some(rest.by_ref().take(MAX_LEAVES).collect::<Vec<_>>()).filter(|group| !group.is_empty()))
        .collect()
}

#[cube(launch_unchecked, address_type = "dynamic")]
fn scale_kernel<X: Float>(leaves: &mut Sequence<Array<X>>, factor: &Array<X>, #[define(X)] _dtype: StorageType) {
    let unit = UNIT_POS as usize;
    let factor = f32::cast_from(factor[0]);
    let mut first = 0usize;
    #[unroll]
    for i in 0..leaves.len() {
        let leaf = leaves.index_mut(i);
        let count = leaf.len();
        let end = first + count.div_ceil(UNITS * PER_UNIT);
        if CUBE_POS >= first && CUBE_POS < end {
            let start = (CUBE_POS - first) * (UNITS * PER_UNIT) + unit;
            #[unroll]
            for j in 0..PER_UNIT {
                let at = start + j * UNITS;
                if at < count {
                    leaf[at] = X::cast_from(f32::cast_from(leaf[at]) * factor);
                }
            }
        }
        first = end;
    }
}

/// See [`Scale`](crate::ops::Scale).
pub(super) fn scale<R: CubeRuntime>(leaves: Vec<FusedTensor<R>>, factor: FusedTensor<R>) -> Vec<FusedTensor<R>> {
    let scaled = |group: Vec<FusedTensor<R>>| {
        let outputs = group.iter().map(|leaf| (leaf.shape(), leaf.dtype())).collect();
        let inputs = std::iter::once(factor.clone()).chain(group).collect();
        register_list("grove_scale", inputs, outputs, |mut inputs| {
            let factor = inputs.remove(0);
            let leaves: Vec<_> = inputs.into_iter().map(owned).collect();
            let filled: Vec<_> = leaves.iter().filter(|leaf| has_elements(leaf)).collect();
            for part in filled.chunks(leaves_of_launch(&factor, 1)) {
                // SAFETY: leaves are contiguous and not shared, as `owned` guarantees. `factor` has one element.
                unsafe {
                    scale_kernel::launch_unchecked(
                        &factor.client,
                        cubes(&factor.client, cube_count(part)),
                        CubeDim::new_1d(UNITS as u32),
                        addresses(part),
                        part.iter().copied().map(elements).collect(),
                        elements(&factor),
                        factor.dtype.into(),
                    );
                }
            }
            leaves
        })
    };
    groups(leaves).into_iter().flat_map(scaled).collect()
}

/// AdamW step. `numbers` are the hyperparameters of [`AdamStep`](crate::ops::AdamStep).
#[cube(launch_unchecked, address_type = "dynamic")]
fn adam_kernel(
    params: &mut Sequence<Array<f32>>,
    grads: &Sequence<Array<f32>>,
    firsts: &mut Sequence<Array<f32>>,
    seconds: &mut Sequence<Array<f32>>,
    numbers: &Array<f32>,
) {
    let unit = UNIT_POS as usize;
    let mut begin = 0usize;
    #[unroll]
    for i in 0..grads.len() {
        let grad = grads.index(i);
        let count = grad.len();
        let end = begin + count.div_ceil(UNITS * PER_UNIT);
        if CUBE_POS >= begin && CUBE_POS < end {
            let start = (CUBE_POS - begin) * (UNITS * PER_UNIT) + unit;
            let param = params.index_mut(i);
            let first = firsts.index_mut(i);
            let second = seconds.index_mut(i);
            #[unroll]
            for j in 0..PER_UNIT {
                let at = start + j * UNITS;
                if at < count {
                    let (p, g) = (param[at], grad[at]);
                    let mu = first[at] * numbers[0] + g * numbers[1];
                    let nu = second[at] * numbers[2] + g * g * numbers[3];
                    let root = f32::sqrt(nu / numbers[7] + numbers[5]) + numbers[4];
                    let update = mu / numbers[6] / root + p * numbers[9];
                    param[at] = p - update * numbers[8];
                    first[at] = mu;
                    second[at] = nu;
                }
            }
        }
        begin = end;
    }
}

/// Returns the leaves after a step: all parameters, then all first moments, then all second moments. `inputs` are the
/// hyperparameters and the four tensors of each leaf.
fn launch_adam<R: CubeRuntime>(mut inputs: Vec<CubeTensor<R>>) -> Vec<CubeTensor<R>> {
    let numbers = into_contiguous(inputs.remove(0));
    let (mut params, mut grads, mut firsts, mut seconds) = (vec![], vec![], vec![], vec![]);
    let mut rest = inputs.into_iter();
    while let (Some(param), Some(grad), Some(first), Some(second)) =
        (rest.next(), rest.next(), rest.next(), rest.next())
    {
        params.push(owned(param));
        grads.push(into_contiguous(grad));
        firsts.push(owned(first));
        seconds.push(owned(second));
    }
    // A row holds a leaf's parameters, gradient and two moments.
    let rows = params.iter().zip(&grads).zip(firsts.iter().zip(&seconds));
    let rows: Vec<_> = rows.map(|((p, g), (mu, nu))| [p, g, mu, nu]).filter(|[p, ..]| has_elements(p)).collect();
    for part in rows.chunks(leaves_of_launch(&numbers, 4)) {
        let list = |column: usize| part.iter().map(|row| elements(row[column])).collect();
        // SAFETY: a leaf's four tensors have one shape and are contiguous, and those that are written are not shared. There
        // are ten hyperparameters.
        unsafe {
            adam_kernel::launch_unchecked(
                &numbers.client,
                cubes(&numbers.client, cube_count(&part.iter().map(|row| row[1]).collect::<Vec<_>>())),
                CubeDim::new_1d(UNITS as u32),
                addresses(part.as_flattened()),
                list(0),
                list(1),
                list(2),
                list(3),
                elements(&numbers),
            );
        }
    }
    params.into_iter().chain(firsts).chain(seconds).collect()
}

/// See [`AdamStep`](crate::ops::AdamStep).
pub(super) fn adam_steps<R: CubeRuntime>(
    leaves: Vec<[FusedTensor<R>; 4]>,
    numbers: FusedTensor<R>,
) -> Vec<[FusedTensor<R>; 3]> {
    let step = |group: Vec<[FusedTensor<R>; 4]>| {
        let kinds = group.iter().map(|[param, ..]| (param.shape(), param.dtype()));
        let outputs = kinds.clone().chain(kinds.clone()).chain(kinds).collect();
        let count = group.len();
        let inputs = std::iter::once(numbers.clone()).chain(group.into_iter().flatten()).collect();
        let mut params = register_list("grove_adam_steps", inputs, outputs, launch_adam);
        let mut firsts = params.split_off(count);
        let seconds = firsts.split_off(count);
        params.into_iter().zip(firsts).zip(seconds).map(|((param, first), second)| [param, first, second])
    };
    groups(leaves).into_iter().flat_map(step).collect()
}
