//! Sharding of arrays within functions.

use burn::tensor::Shape;

use super::{Backend, Outcome, Rules, Shapes, Values, Wanted};

/// Returns the input unchanged. A compiler for several devices shards the value over their mesh as specified, and its
/// gradient in the same way.
///
/// # Shapes
/// - input: floating-point, any rank
/// - output: the shape of the input
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ShardingConstraint {
    /// Names of the mesh axes over which each array axis is split; none if it is not split. Trailing axes may be omitted.
    pub axes: Vec<Vec<String>>,
}

impl Rules for ShardingConstraint {
    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape = inputs.get(0).unwrap_or_default();
        inputs.require(
            shape.len() >= self.axes.len(),
            "with_sharding_constraint",
            "at least as many axes as the specification",
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
