//! Scaled exponential linear unit.

use burn::tensor::{Scalar, Shape, TensorMetadata};

use super::{
    Backend, BatchAxis, Differentiation, Outcome, Residuals, Rules, Shapes, Values, Wanted, flat,
    gelu::{scale, shift},
    primitive,
};

/// Scale of all values; `ALPHA` also multiplies `exp(x) - 1` for negative `x`.
const SCALE: f64 = 1.050_700_987_355_480_5;
const ALPHA: f64 = 1.673_263_242_354_377_2;

/// Scaled exponential linear unit (Klambauer et al., 2017).
///
/// # Shapes
/// - input and output of any shape
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Selu;

impl Rules for Selu {
    const DIFFERENTIATION: Differentiation = Differentiation::MemoryBound;
    const IN_F32: bool = true;
    const BATCH_AXIS: Option<BatchAxis> = BatchAxis::of(&[0]);

    #[track_caller]
    fn shapes(&self, inputs: &Shapes) -> Vec<Shape> {
        inputs.given().cloned().collect()
    }

    fn residuals(&self, _needs: &[bool]) -> Residuals {
        Residuals::default().inputs([0])
    }

    fn compose<B: Backend>(&self, mut inputs: Values<B>, _needs: &[bool]) -> Outcome<B> {
        let x = inputs.take_float(0);
        // Derivative 0 at 0, where the negative branch has its own derivative.
        let negative = flat::<B>(x.clone()).lower_equal_elem(0.0);
        let above = B::float_reshape(primitive(flat::<B>(x.clone()).mask_fill(negative, 0.0)), x.shape());
        let below = shift::<B>(B::float_exp(B::float_clamp_max(x, Scalar::from(0.0))), -1.0);
        Outcome::new([scale::<B>(B::float_add(above, scale::<B>(below, ALPHA)), SCALE)])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let x = residuals.take_float(0);
        let below = scale::<B>(B::float_exp(B::float_clamp_max(x.clone(), Scalar::from(0.0))), SCALE * ALPHA);
        let positive = flat::<B>(x).greater_elem(0.0);
        let shape = below.shape();
        let slope = flat::<B>(below).mask_fill(positive, SCALE);
        Values::floats([B::float_mul(grads.take_float(0), B::float_reshape(primitive(slope), shape))])
    }
}
