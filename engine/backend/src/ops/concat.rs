//! Concatenation along an axis.

use burn::tensor::Shape;

use super::{Backend, Differentiation, Outcome, Rules, Shapes, Values};

/// Concatenates parts of one shape and dtype along an axis; the inverse of [`Chunk`](super::Chunk).
///
/// # Shapes
/// - inputs: any number of parts of one shape
/// - output: their shape, with the axis multiplied by the number of parts
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Concat {
    /// Axis of concatenation.
    pub axis: usize,
}

impl Rules for Concat {
    const DIFFERENTIATION: Differentiation = Differentiation::Composed;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let sizes = inputs.get(0).unwrap_or_default();
        let fits = self.axis < sizes.len() && inputs.given().all(|shape| &shape[..] == sizes);
        inputs.require(fits, "concat", &format!("parts with the same sizes except along axis {}", self.axis));
        let mut shape = Shape::from(sizes.to_vec());
        shape[self.axis] *= inputs.len();
        vec![shape]
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        Outcome::new([B::float_cat(inputs.into_floats(), self.axis)])
    }
}
