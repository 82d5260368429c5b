//! Shape rules of operations that move elements. The output has the dtype of the first input.

use burn::tensor::{Shape, Slice};
use grove_backend::ops::Spec;

use super::expected::{require, take, with};
use crate::Primitive;

/// Returns the shape of the output.
pub(super) fn shape(primitive: &Primitive, inputs: &[&Spec]) -> Result<Vec<usize>, String> {
    Ok(match primitive {
        Primitive::Reshape(shape) => {
            let [x] = take(inputs)?;
            let product = |sizes: &[usize]| sizes.iter().try_fold(1_usize, |product, size| product.checked_mul(*size));
            require(product(shape) == product(&x.shape), format!("{shape:?} must have as many elements as the input"))?;
            shape.clone()
        }
        Primitive::SwapAxes(a, b) => {
            let [x] = take(inputs)?;
            let rank = x.shape.num_dims();
            require(*a < rank && *b < rank, format!("axes {a} and {b} are out of range for {rank} axes"))?;
            let mut shape = x.shape.to_vec();
            shape.swap(*a, *b);
            shape
        }
        Primitive::Transpose(axes) => {
            let [x] = take(inputs)?;
            let fits = axes.len() == x.shape.num_dims() && is_permutation(axes);
            require(fits, format!("{axes:?} must be a permutation of the axes"))?;
            axes.iter().map(|axis| x.shape[*axis]).collect()
        }
        Primitive::Flip(axes) => {
            let [x] = take(inputs)?;
            axes.iter().try_for_each(|axis| with(&x.shape, *axis, 1).map(drop))?;
            x.shape.to_vec()
        }
        Primitive::BroadcastTo(shape) => {
            let [x] = take(inputs)?;
            let missing = shape.len().checked_sub(x.shape.num_dims());
            let fits =
                missing.is_some_and(|missing| x.shape.iter().zip(&shape[missing..]).all(|(a, b)| a == b || *a == 1));
            require(fits, format!("the input must be broadcastable to {shape:?}"))?;
            shape.clone()
        }
        Primitive::Unfold(axis, size, step) => {
            let [x] = take(inputs)?;
            require(*step > 0, "a step must not be 0")?;
            let whole = x.shape.get(*axis).copied().unwrap_or_default();
            let windows = whole.checked_sub(*size).map_or(0, |rest| rest / step + 1);
            let mut shape = with(&x.shape, *axis, windows)?;
            shape.push(*size);
            shape
        }
        Primitive::Slice(ranges) => {
            let [x] = take(inputs)?;
            sliced(&x.shape, ranges)?
        }
        Primitive::UpdateSlice(ranges) => {
            let [x, part] = take(inputs)?;
            let shape = sliced(&x.shape, ranges)?;
            require(
                part.shape[..] == shape && part.dtype == x.dtype,
                format!("the update must have shape {shape:?} and the dtype of the array"),
            )?;
            x.shape.to_vec()
        }
        Primitive::Take(axis) => {
            let [x, indices] = take(inputs)?;
            positions(indices)?;
            require(indices.shape.num_dims() == 1, "indices must have one axis")?;
            with(&x.shape, *axis, indices.shape[0])?
        }
        Primitive::TakeAdd(axis) => {
            let [x, indices, part] = take(inputs)?;
            positions(indices)?;
            require(indices.shape.num_dims() == 1, "indices must have one axis")?;
            let shape = with(&x.shape, *axis, indices.shape[0])?;
            require(
                part.shape[..] == shape && part.dtype == x.dtype,
                format!("the added slices must have shape {shape:?} and the dtype of the array"),
            )?;
            x.shape.to_vec()
        }
        Primitive::Gather(axis) => {
            let [x, indices] = take(inputs)?;
            gathered(x, indices, *axis)?;
            indices.shape.to_vec()
        }
        Primitive::ScatterAdd(axis) => {
            let [x, indices, part] = take(inputs)?;
            gathered(x, indices, *axis)?;
            let fits = part.shape == indices.shape && part.dtype == x.dtype;
            require(fits, "the added elements must have the shape of the indices and the dtype of the array")?;
            x.shape.to_vec()
        }
        Primitive::Repeat(axis, times) => {
            let [x] = take(inputs)?;
            let size = x.shape.get(*axis).copied().unwrap_or_default();
            let size = size.checked_mul(*times).ok_or("the axis is too long")?;
            with(&x.shape, *axis, size)?
        }
        Primitive::Concatenate(axis) => {
            let first = inputs.first().ok_or("it must have at least one input")?;
            let others = with(&first.shape, *axis, 0)?;
            let mut size = 0_usize;
            for x in inputs {
                let fits = x.dtype == first.dtype && with(&x.shape, *axis, 0).is_ok_and(|shape| shape == others);
                require(
                    fits,
                    format!("the inputs must have the same dtype, and the same sizes except along axis {axis}"),
                )?;
                size = size.saturating_add(x.shape[*axis]);
            }
            with(&first.shape, *axis, size)?
        }
        _ => return Err("it does not move elements".into()),
    })
}

fn positions(x: &Spec) -> Result<(), String> {
    require(x.dtype.is_int() || x.dtype.is_uint(), "indices must be integers")
}

fn is_permutation(axes: &[usize]) -> bool {
    let mut sorted = axes.to_vec();
    sorted.sort_unstable();
    sorted.into_iter().eq(0..axes.len())
}

/// Returns the shape after a slice.
fn sliced(shape: &Shape, ranges: &[Slice]) -> Result<Vec<usize>, String> {
    require(ranges.len() <= shape.num_dims(), "there must be at most one range for each axis")?;
    require(ranges.iter().all(|range| range.step != 0), "a step must not be 0")?;
    let mut sizes = shape.to_vec();
    sizes.iter_mut().zip(ranges).for_each(|(size, range)| *size = range.output_size(*size));
    Ok(sizes)
}

/// Returns an error unless the indices along an axis are integers in a suitable shape.
fn gathered(x: &Spec, indices: &Spec, axis: usize) -> Result<(), String> {
    positions(indices)?;
    let rank = x.shape.num_dims();
    let fits = axis < rank && indices.shape.num_dims() == rank;
    let within = || (0..rank).all(|other| other == axis || indices.shape[other] <= x.shape[other]);
    require(fits && within(), format!("the indices must not exceed the array in axes other than {axis}"))
}
