//! Splitting a tensor along an axis, with a gradient that costs one copy.

use burn::tensor::{Shape, TensorMetadata};

use super::{Backend, Concat, Differentiation, Outcome, Rules, Shapes, Values, Wanted, part_of_axis};

/// Splits a tensor into equal parts along an axis. The gradients of the parts are joined in one pass; gradients of slices
/// would each have the size of the whole tensor and be added up.
///
/// # Shapes
/// - input: `count` divides the size of the axis
/// - outputs: `count` parts of one shape
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Chunk {
    /// Number of parts.
    pub count: usize,
    /// Axis that is split.
    pub axis: usize,
}

impl Rules for Chunk {
    const DIFFERENTIATION: Differentiation = Differentiation::AllOutputs;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let (Self { count, axis }, sizes) = (*self, inputs.get(0).unwrap_or_default());
        let fits = count > 0 && sizes.get(axis).is_some_and(|size| size.is_multiple_of(count));
        inputs.require(fits, "chunk", &format!("{count} equal parts of axis {axis}"));
        let mut shape = Shape::from(sizes.to_vec());
        shape[axis] /= count;
        vec![shape; count]
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let x = inputs.take_float(0);
        let shape = x.shape();
        let size = shape[self.axis] / self.count;
        let part = |i: usize| part_of_axis(shape.num_dims(), self.axis, i * size..(i + 1) * size);
        Outcome::new((0..self.count).map(|i| B::float_slice(x.clone(), &part(i))))
    }

    /// Unused parts have zero gradients.
    fn compose_vjp<B: Backend>(&self, _residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let parts: Vec<_> = (0..self.count).map(|i| grads.take_optional_float(i)).collect();
        let Some(some) = parts.iter().flatten().next() else { return Values::default() };
        let zeros = || B::float_zeros(some.shape(), &B::float_device(some), some.dtype().into());
        let zeros = parts.iter().any(Option::is_none).then(zeros);
        let parts = parts.into_iter().map(|part| part.or_else(|| zeros.clone()).expect("a gradient or zeros"));
        B::run(&Concat { axis: self.axis }.into(), Values::floats(parts), &[]).outputs
    }
}
