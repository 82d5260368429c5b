//! Replacement of a slice whose position is an array.

use burn::tensor::{Int, IntDType, Shape, Tensor, TensorMetadata};

use super::{Backend, Differentiation, Outcome, Rules, Shapes, Values};

/// Replaces a slice along one axis, at a position given as an array: `jax.lax.dynamic_update_slice` for one axis. One
/// program thus serves every position. As in JAX, the position is clamped so that the slice stays within the array.
///
/// # Shapes
/// - inputs: the array `[.., n, ..]`, floating-point; the slice `[.., t, ..]`, with `t <= n` and equal other sizes; the
///   position `[1]`, integer
/// - output: the shape of the array
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DynamicUpdateSlice {
    /// The axis.
    pub axis: usize,
}

impl Rules for DynamicUpdateSlice {
    const DIFFERENTIATION: Differentiation = Differentiation::Composed;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let [whole, part] = [0, 1].map(|i| inputs.get(i).unwrap_or_default());
        let same =
            |(axis, (part, whole)): (usize, (&usize, &usize))| part == whole || axis == self.axis && part < whole;
        let fits = self.axis < whole.len()
            && part.len() == whole.len()
            && part.iter().zip(whole).enumerate().all(same)
            && inputs.get(2) == Some(&[1]);
        inputs.require(
            fits,
            "dynamic_update_slice",
            "an array [.., n, ..], a part [.., t, ..] with t at most n, and a position [1]",
        );
        vec![whole.to_vec().into()]
    }

    /// Selects for each position the element of the slice or of the array.
    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let (whole, part) = (inputs.take_float(0), inputs.take_float(1));
        let position = Tensor::<B, 1, Int>::from_primitive(inputs.take_int(2));
        let (shape, t) = (whole.shape(), part.shape()[self.axis]);
        let n = shape[self.axis];
        if t == 0 {
            return Outcome::new([whole]);
        }
        let position = position.clamp(0, (n - t) as i64);
        let places =
            Tensor::<B, 1, Int>::arange(0..n as i64, &position.device()).cast(IntDType::from(position.dtype()));
        let offsets = places - position.expand([n]);
        let outside = offsets.clone().lower_elem(0).bool_or(offsets.clone().greater_equal_elem(t as i64)); // [n]
        let spread = match t {
            1 => B::float_expand(part, shape.clone()),
            _ => {
                // candle selects from contiguous tensors only; reshaping makes the tensor contiguous.
                let (shape, count) = (part.shape(), part.shape().num_elements());
                let part = B::float_reshape(B::float_reshape(part, [count].into()), shape);
                B::float_select(part, self.axis, offsets.clamp(0, t as i64 - 1).into_primitive())
            }
        };
        let mut along = vec![1; shape.num_dims()];
        along[self.axis] = n;
        let outside = B::bool_expand(B::bool_reshape(outside.into_primitive(), along.into()), shape);
        Outcome::new([B::float_mask_where(spread, outside, whole)])
    }
}
