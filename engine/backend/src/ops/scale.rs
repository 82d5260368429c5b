//! Multiplication of several tensors by one factor.

use burn::tensor::{Shape, TensorMetadata, ops::FloatTensor};

use super::{Backend, Differentiation, Outcome, Rules, Shapes, Values, flat, primitive};

/// Multiplies several tensors by one factor. All have the same dtype.
///
/// # Shapes
/// - inputs: the factor `[1]`; any number of tensors of any shapes
/// - outputs: the shapes of the tensors
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Scale;

impl Rules for Scale {
    const DIFFERENTIATION: Differentiation = Differentiation::Composed;

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        inputs.require(inputs.get(0) == Some(&[1]), "scale", "a factor [1], followed by tensors");
        inputs.given().skip(1).cloned().collect()
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let factor = inputs.take_tensor::<1>(0);
        let scaled = |x: FloatTensor<B>| {
            let shape = x.shape();
            B::float_reshape(primitive(flat::<B>(x) * factor.clone()), shape)
        };
        let leaves = (1..inputs.len()).map(|i| inputs.take_float(i)).collect::<Vec<_>>();
        Outcome::new(leaves.into_iter().map(scaled))
    }
}
