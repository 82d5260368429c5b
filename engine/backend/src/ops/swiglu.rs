//! The gated activation of LLaMA's feed-forward layers.

use burn::tensor::{Shape, activation};

use super::{
    Backend, BatchAxis, Outcome, Residuals, Rules, Shapes, Values, Wanted, float,
    operation::{run_in_f32, run_vjp_in_f32},
    primitive,
};

/// `silu(gate) * up` with `silu(x) = x / (1 + exp(-x))`: the activation of SwiGLU (Shazeer, 2020).
///
/// # Shapes
/// - inputs: gate and up, and the output, `[b, t, size]`
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SwiGlu;

impl Rules for SwiGlu {
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

    fn compose<B: Backend>(&self, inputs: Values<B>, needs: &[bool]) -> Outcome<B> {
        if inputs.is_half() {
            return run_in_f32(*self, inputs, needs);
        }
        let [gate, up] = inputs.take_floats().map(float::<B, 3>);
        Outcome::new([primitive(activation::silu(gate) * up)])
    }

    /// 16-bit gradients are computed in f32: in f16 a large gate times a gradient may be infinite, and infinity times a
    /// sigmoid of 0 is NaN.
    fn compose_vjp<B: Backend>(&self, residuals: Values<B>, mut grads: Values<B>, wanted: &Wanted) -> Values<B> {
        if grads.is_half() {
            return run_vjp_in_f32(*self, residuals, grads, wanted);
        }
        let ([gate, up], grad) = (residuals.take_floats().map(float::<B, 3>), grads.take_tensor::<3>(0));
        let sigmoid = activation::sigmoid(gate.clone());
        // silu'(x) = s + x s (1 - s), where s is the sigmoid of x.
        let slope = sigmoid.clone() + gate.clone() * sigmoid.clone() * (sigmoid.clone().neg().add_scalar(1.0));
        Values::floats([primitive(grad.clone() * up * slope), primitive(grad * gate * sigmoid)])
    }
}
