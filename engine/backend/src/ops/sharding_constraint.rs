//! Places of arrays on meshes of devices, inside of functions.

use burn::tensor::Shape;

use super::{Backend, Outcome, Rules, Shapes, Values, Wanted};

/// The input as it is. A compiler for several devices makes it lie as said on their mesh; its gradient lies as it does.
///
/// # Shapes
/// - input: of any rank, of floating-point numbers
/// - output as the input
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ShardingConstraint {
    /// For each axis of the array the names of the mesh's axes over which it is split. Axes that are not mentioned are whole.
    pub axes: Vec<Vec<String>>,
}

impl Rules for ShardingConstraint {
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape = inputs.get(0).unwrap_or_default();
        inputs.require(
            shape.len() >= self.axes.len(),
            "with_sharding_constraint",
            "an axis for each of the specification's",
        );
        vec![shape.into()]
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        Outcome::new(inputs.take_floats::<1>())
    }

    fn compose_vjp<B: Backend>(&self, _residuals: Values<B>, grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        B::run(&self.clone().into(), grads, &[]).outputs
    }
}
