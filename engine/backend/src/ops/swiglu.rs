//! The gated activation of LLaMA's feed-forward layers.

use burn::tensor::{Shape, activation};

use super::{Backend, BatchAxis, Outcome, Residuals, Rules, Shapes, Values, Wanted, float, primitive};

/// `silu(gate) * up` with `silu(x) = x / (1 + exp(-x))`: the activation of SwiGLU (Shazeer, 2020).
///
/// # Shapes
/// - inputs: gate and up, and the output, `[b, t, size]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SwiGlu;

impl Rules for SwiGlu {
    /// In f16 the gradient of a large gate may be infinite, and infinity times a sigmoid of 0 is NaN.
    const IN_F32: bool = true;
    const BATCH_AXIS: Option<BatchAxis> = BatchAxis::of(&[0, 1]);

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        let shape: [usize; 3] = inputs.dims("swiglu", 0);
        inputs.require(inputs.get(1) == Some(&shape), "swiglu", "gate and up of one shape");
        vec![shape.into()]
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([0, 1])
    }

    fn compose<B: Backend>(&self, inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let [gate, up] = inputs.take_floats().map(float::<B, 3>);
        Outcome::new([primitive(activation::silu(gate) * up)])
    }

    fn compose_vjp<B: Backend>(&self, residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let ([gate, up], grad) = (residuals.take_floats().map(float::<B, 3>), grads.take_tensor::<3>(0));
        let sigmoid = activation::sigmoid(gate.clone());
        // silu'(x) = s + x s (1 - s), where s is the sigmoid of x.
        let slope = sigmoid.clone() + gate.clone() * sigmoid.clone() * (sigmoid.clone().neg().add_scalar(1.0));
        Values::floats([primitive(grad.clone() * up * slope), primitive(grad * gate * sigmoid)])
    }
}
