//! GELU in both variants, with exact gradients. Burn's default differentiates the tanh approximation whichever variant the
//! forward pass used.

use burn::tensor::{Scalar, Shape, ops::FloatTensor};

use super::{Backend, BatchAxis, Differentiation, Outcome, Residuals, Rules, Shapes, Values, Wanted};

/// 1/sqrt(2)
const FRAC_1_SQRT_2: f64 = std::f64::consts::FRAC_1_SQRT_2;
/// 1/sqrt(2 pi)
const FRAC_1_SQRT_2PI: f64 = 0.398_942_280_401_432_7;
/// sqrt(2/pi)
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
/// Weight of the cubic term in the tanh form.
const CUBIC: f64 = 0.044_715;

/// Variant of GELU, as `approximate` in PyTorch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum GeluApproximation {
    /// Exact, with the error function.
    #[default]
    None,
    /// The approximation `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`; `gelu_new` in transformers.
    Tanh,
}

/// Gaussian error linear unit, `x * Phi(x)` with the normal CDF `Phi` (Hendrycks and Gimpel, 2016).
///
/// # Shapes
/// - input and output of any shape
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Gelu {
    /// Exact, or by its tanh approximation.
    pub approximate: GeluApproximation,
}

impl Rules for Gelu {
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
        Outcome::new([match self.approximate {
            GeluApproximation::None => B::float_mul(x.clone(), normal_cdf::<B>(x)),
            GeluApproximation::Tanh => {
                let (tanh, _) = inner_tanh::<B>(x.clone());
                B::float_mul(scale::<B>(x, 0.5), shift::<B>(tanh, 1.0))
            }
        }])
    }

    fn compose_vjp<B: Backend>(&self, mut residuals: Values<B>, mut grads: Values<B>, _wanted: &Wanted) -> Values<B> {
        let x = residuals.take_float(0);
        let slope = match self.approximate {
            GeluApproximation::None => exact_slope::<B>(x),
            GeluApproximation::Tanh => tanh_slope::<B>(x),
        };
        Values::floats([B::float_mul(grads.take_float(0), slope)])
    }
}

pub(super) fn scale<B: Backend>(x: FloatTensor<B>, factor: f64) -> FloatTensor<B> {
    B::float_mul_scalar(x, Scalar::from(factor))
}

pub(super) fn shift<B: Backend>(x: FloatTensor<B>, term: f64) -> FloatTensor<B> {
    B::float_add_scalar(x, Scalar::from(term))
}

/// `(1 + erf(x/sqrt 2)) / 2`, the normal CDF.
fn normal_cdf<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    scale::<B>(shift::<B>(B::float_erf(scale::<B>(x, FRAC_1_SQRT_2)), 1.0), 0.5)
}

/// `Phi(x) + x phi(x)`
fn exact_slope<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let square = B::float_mul(x.clone(), x.clone());
    let density = scale::<B>(B::float_exp(scale::<B>(square, -0.5)), FRAC_1_SQRT_2PI);
    B::float_add(normal_cdf::<B>(x.clone()), B::float_mul(x, density))
}

/// `tanh(sqrt(2/pi) (x + 0.044715 x^3))`, and x squared.
fn inner_tanh<B: Backend>(x: FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
    let square = B::float_mul(x.clone(), x.clone());
    let factor = shift::<B>(scale::<B>(square.clone(), SQRT_2_OVER_PI * CUBIC), SQRT_2_OVER_PI);
    (B::float_tanh(B::float_mul(x, factor)), square)
}

fn tanh_slope<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let (tanh, square) = inner_tanh::<B>(x.clone());
    let inner_slope = shift::<B>(scale::<B>(square, 3.0 * CUBIC * SQRT_2_OVER_PI), SQRT_2_OVER_PI);
    // 1 - tanh^2
    let sech2 = shift::<B>(scale::<B>(B::float_mul(tanh.clone(), tanh.clone()), -1.0), 1.0);
    let curve = B::float_mul(scale::<B>(x, 0.5), B::float_mul(sech2, inner_slope));
    B::float_add(scale::<B>(shift::<B>(tanh, 1.0), 0.5), curve)
}
