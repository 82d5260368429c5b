use rayon::prelude::*;

use crate::{
    dispatch::{PIECE, TASK, vectorized},
    fresh::by_chunks,
    math::{erf, exp_below_88, sigmoid},
};

/// sqrt(2/pi)
const SQRT_2_OVER_PI: f32 = 0.797_884_6;
/// Weight of the cubic term.
const CUBIC: f32 = 0.044_715;

/// 1/sqrt(2 pi)
const FRAC_1_SQRT_2PI: f32 = 0.398_942_3;

/// Computes the exact GELU: `x/2 (1 + erf(x/sqrt 2))`.
pub fn gelu_erf(x: &[f32]) -> Vec<f32> {
    by_chunks(x.len(), PIECE, |i, y| forward_erf(&x[i * PIECE..][..y.len()], y))
}

/// Like [`gelu_erf`], in place.
pub fn gelu_erf_in_place(x: &mut [f32]) {
    x.par_chunks_mut(TASK).for_each(in_place_erf);
}

/// Multiplies `grad` by the derivative of [`gelu_erf`] at `x`, in place.
///
/// # Panics
/// If the slices differ in length.
pub fn gelu_erf_backward(x: &[f32], grad: &mut [f32]) {
    assert_eq!(x.len(), grad.len());
    x.par_chunks(TASK).zip(grad.par_chunks_mut(TASK)).for_each(|(x, grad)| backward_erf(x, grad));
}

/// Computes the tanh approximation of GELU, `x/2 (1 + tanh(u))` with `u = sqrt(2/pi) (x + 0.044715 x^3)`, as `x sigmoid(2u)`.
pub fn gelu_tanh(x: &[f32]) -> Vec<f32> {
    by_chunks(x.len(), PIECE, |i, y| forward(&x[i * PIECE..][..y.len()], y))
}

/// Like [`gelu_tanh`], in place.
pub fn gelu_tanh_in_place(x: &mut [f32]) {
    x.par_chunks_mut(TASK).for_each(in_place_tanh);
}

/// Multiplies `grad` by the derivative of [`gelu_tanh`] at `x`, in place.
///
/// # Panics
/// If the slices differ in length.
pub fn gelu_tanh_backward(x: &[f32], grad: &mut [f32]) {
    assert_eq!(x.len(), grad.len());
    x.par_chunks(TASK).zip(grad.par_chunks_mut(TASK)).for_each(|(x, grad)| backward(x, grad));
}

/// CDF of the standard normal distribution.
#[inline(always)]
fn normal_cdf<const FUSED: bool>(x: f32) -> f32 {
    0.5 + 0.5 * erf::<FUSED>(x * std::f32::consts::FRAC_1_SQRT_2)
}

#[inline(always)]
pub(crate) fn gelu_erf_of<const FUSED: bool>(x: f32) -> f32 {
    x * normal_cdf::<FUSED>(x)
}

#[inline(always)]
pub(crate) fn gelu_tanh_of<const FUSED: bool>(x: f32) -> f32 {
    x * sigmoid::<FUSED>(2.0 * SQRT_2_OVER_PI * x * (1.0 + CUBIC * x * x))
}

vectorized! {
    fn forward_erf<FUSED>(x: &[f32], y: &mut [f32]) {
        for (&x, y) in x.iter().zip(y) {
            *y = gelu_erf_of::<FUSED>(x);
        }
    }
}

vectorized! {
    fn in_place_erf<FUSED>(x: &mut [f32]) {
        for x in x {
            *x = gelu_erf_of::<FUSED>(*x);
        }
    }
}

vectorized! {
    fn backward_erf<FUSED>(x: &[f32], grad: &mut [f32]) {
        for (&x, grad) in x.iter().zip(grad) {
            // Beyond ±14 the derivative is 0 or 1; infinity times the density would be NaN. NaN propagates.
            let x = if x < -14.0 { -14.0 } else { x };
            let x = if x > 14.0 { 14.0 } else { x };
            let density = FRAC_1_SQRT_2PI * exp_below_88::<FUSED>(-0.5 * x * x);
            *grad *= normal_cdf::<FUSED>(x) + x * density;
        }
    }
}

vectorized! {
    fn forward<FUSED>(x: &[f32], y: &mut [f32]) {
        for (&x, y) in x.iter().zip(y) {
            *y = gelu_tanh_of::<FUSED>(x);
        }
    }
}

vectorized! {
    fn in_place_tanh<FUSED>(x: &mut [f32]) {
        for x in x {
            *x = gelu_tanh_of::<FUSED>(*x);
        }
    }
}

vectorized! {
    fn backward<FUSED>(x: &[f32], grad: &mut [f32]) {
        for (&x, grad) in x.iter().zip(grad) {
            // Beyond ±12 the derivative is 0 or 1; larger values would overflow. NaN propagates.
            let x = if x < -12.0 { -12.0 } else { x };
            let x = if x > 12.0 { 12.0 } else { x };
            let square = x * x;
            let s = sigmoid::<FUSED>(2.0 * SQRT_2_OVER_PI * x * (1.0 + CUBIC * square));
            let slope = 2.0 * SQRT_2_OVER_PI * (1.0 + 3.0 * CUBIC * square);
            *grad *= s + x * s * (1.0 - s) * slope;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(x: f64) -> (f64, f64) {
        let k = (2.0 / std::f64::consts::PI).sqrt();
        let t = (k * (x + 0.044715 * x.powi(3))).tanh();
        (0.5 * x * (1.0 + t), 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * k * (1.0 + 3.0 * 0.044715 * x * x))
    }

    fn exact_erf(x: f64) -> (f64, f64) {
        let cdf = 0.5 * (1.0 + libm::erf(x / 2f64.sqrt()));
        (x * cdf, cdf + x * (-0.5 * x * x).exp() / (2.0 * std::f64::consts::PI).sqrt())
    }

    type Form = (fn(&[f32]) -> Vec<f32>, fn(&[f32], &mut [f32]), fn(f64) -> (f64, f64));
    const FORMS: [Form; 2] = [(gelu_tanh, gelu_tanh_backward, exact), (gelu_erf, gelu_erf_backward, exact_erf)];

    #[test]
    fn values_and_slopes() {
        for (len, (forward, backward, exact)) in
            [0, 1, 7, 8, 17, 40_001].into_iter().flat_map(|len| FORMS.map(|form| (len, form)))
        {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 - len as f32 / 2.0) * 24.0 / len.max(1) as f32).collect();
            let (y, mut slope) = (forward(&x), vec![1.0; len]);
            backward(&x, &mut slope);
            for i in 0..len {
                let (value, gradient) = exact(f64::from(x[i]));
                assert!((f64::from(y[i]) - value).abs() < 1e-6 * (1.0 + value.abs()), "{}", x[i]);
                assert!((f64::from(slope[i]) - gradient).abs() < 2e-6, "{}: {} {gradient}", x[i], slope[i]);
            }
        }
    }

    #[test]
    fn in_place_is_the_same() {
        let x: Vec<f32> = (0..40_001).map(|i| (i as f32 - 20_000.0) * 3e-4).collect();
        let mut z = x.clone();
        gelu_erf_in_place(&mut z);
        assert_eq!(gelu_erf(&x), z);
        z.copy_from_slice(&x);
        gelu_tanh_in_place(&mut z);
        assert_eq!(gelu_tanh(&x), z);
    }

    #[test]
    fn extremes() {
        let x = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e30, -1e30];
        for (forward, backward, _) in FORMS {
            let (y, mut slope) = (forward(&x), [1.0; 5]);
            backward(&x, &mut slope);
            assert!(y[0] == f32::INFINITY && y[2].is_nan() && y[3] == 1e30);
            assert!(slope[0] == 1.0 && slope[2].is_nan() && slope[3] == 1.0 && slope[4] == 0.0 && y[4] == 0.0);
        }
    }
}
