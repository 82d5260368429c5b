//! Writing new positions into buffers, in place if nothing else holds them.

use burn::tensor::{DType, Element, Int, Tensor, TensorMetadata, bf16, f16, ops::FloatTensorOps};
use burn_flex::{Flex, FlexTensor};
use bytemuck::Pod;

use super::{DynamicUpdateSlice, Outcome, Values, contiguous, shape};
use crate::ops::{UpdateCache, part_of_axis};

pub(super) fn update_cache(op: &UpdateCache, inputs: Values<Flex>) -> Outcome<Flex> {
    let [keys, values, new_keys, new_values] = inputs.take_floats();
    let [keys, values] = [(keys, new_keys), (values, new_values)].map(|(buffer, new)| write(buffer, new, 2, op.at));
    let [seen_keys, seen_values] =
        [&keys, &values].map(|buffer| Flex::float_slice(buffer.clone(), &part_of_axis(4, 2, op.seen.clone())));
    Outcome::new([keys, values, seen_keys, seen_values])
}

/// Reads the position and writes that slice only.
pub(super) fn dynamic_update_slice(op: DynamicUpdateSlice, mut inputs: Values<Flex>) -> Outcome<Flex> {
    let (whole, part, position) = (inputs.take_float(0), inputs.take_float(1), inputs.take_int(2));
    let (n, t) = (whole.shape()[op.axis], part.shape()[op.axis]);
    let position =
        Tensor::<Flex, 1, Int>::from_primitive(position).into_data().iter::<i64>().next().unwrap_or_default();
    Outcome::new([write(whole, part, op.axis, position.clamp(0, (n - t) as i64) as usize)])
}

/// Replaces a slice along an axis, from an index on. Burn's function holds a second handle while it writes, so that it copies the
/// whole tensor each time.
fn write(whole: FlexTensor, part: FlexTensor, axis: usize, from: usize) -> FlexTensor {
    match whole.dtype() {
        DType::F32 => write_elements::<f32>(whole, part, axis, from),
        DType::F16 => write_elements::<f16>(whole, part, axis, from),
        DType::BF16 => write_elements::<bf16>(whole, part, axis, from),
        _ => {
            let slices = part_of_axis(whole.shape().num_dims(), axis, from..from + part.shape()[axis]);
            Flex::float_slice_assign(whole, &slices, part)
        }
    }
}

fn write_elements<E: Element + Pod>(whole: FlexTensor, part: FlexTensor, axis: usize, from: usize) -> FlexTensor {
    let (mut whole, part) = (contiguous(whole), contiguous(part));
    let size = |x: &FlexTensor, axis: usize| shape(x).iter().skip(axis).product::<usize>();
    let (row, run, at) = (size(&whole, axis), size(&part, axis), from * size(&whole, axis + 1));
    if run > 0 {
        let values = part.storage::<E>().chunks_exact(run);
        for (row, values) in whole.storage_mut::<E>().chunks_exact_mut(row).zip(values) {
            row[at..at + run].copy_from_slice(values);
        }
    }
    whole
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops;

    fn buffer(first: f32) -> Tensor<Flex, 4> {
        Tensor::<Flex, 1, Int>::arange(0..2 * 3 * 5 * 2, &Default::default())
            .float()
            .add_scalar(first)
            .reshape([2, 3, 5, 2])
    }

    fn place(x: &Tensor<Flex, 4>) -> *const f32 {
        x.clone().into_primitive().tensor().as_slice::<f32>().expect("f32").as_ptr()
    }

    #[test]
    fn an_update_writes_in_place() {
        let new = || buffer(1000.0).slice([0..2, 0..3, 3..5, 0..2]);
        let (keys, values) = (buffer(0.0), buffer(100.0));
        let places = [place(&keys), place(&values)];
        let expected = keys.clone().slice_assign([0..2, 0..3, 1..3, 0..2], new());
        let [[keys, values], [seen, _]] = ops::update_cache([keys, values], [new(), new()], 1, 0..3);
        assert_eq!([place(&keys), place(&values)], places);
        assert_eq!(keys.to_data(), expected.to_data());
        assert_eq!(seen.into_data(), expected.clone().slice([0..2, 0..3, 0..3, 0..2]).into_data());

        let position = Tensor::<Flex, 1, Int>::from_ints([1], &Default::default());
        let written = ops::dynamic_update_slice(values, new(), position, 2);
        assert_eq!(place(&written), places[1]);
        assert_eq!(written.slice([0..2, 0..3, 1..3, 0..2]).into_data(), new().into_data());
    }

    #[test]
    fn a_shared_buffer_is_left_alone() {
        let keys = buffer(0.0);
        let new = || Tensor::zeros([2, 3, 1, 2], &Default::default());
        let [[written, _], _] = ops::update_cache([keys.clone(), buffer(0.0)], [new(), new()], 4, 0..5);
        assert_eq!(keys.to_data(), buffer(0.0).to_data());
        assert_eq!(written.into_data(), keys.slice_assign([0..2, 0..3, 4..5, 0..2], new()).into_data());
    }
}
