use rayon::prelude::*;

use crate::{
    dispatch::{PIECE, TASK, vectorized},
    fresh::by_chunks,
    math::{exp_below_88, exp_m1},
};

/// Scale of both branches.
const SCALE: f32 = 1.050_701;
/// Negative inputs approach `-SCALE * ALPHA`.
const ALPHA: f32 = 1.673_263_2;

/// Computes the scaled exponential linear unit: `scale x` for positive x and `scale alpha (e^x - 1)` otherwise (Klambauer et
/// al., 2017).
pub fn selu(x: &[f32]) -> Vec<f32> {
    by_chunks(x.len(), PIECE, |i, y| forward(&x[i * PIECE..][..y.len()], y))
}

/// Like [`selu`], in place.
pub fn selu_in_place(x: &mut [f32]) {
    x.par_chunks_mut(TASK).for_each(in_place);
}

/// Multiplies `grad` by the derivative of [`selu`] at `x`, in place.
///
/// # Panics
/// If the slices differ in length.
pub fn selu_backward(x: &[f32], grad: &mut [f32]) {
    assert_eq!(x.len(), grad.len());
    x.par_chunks(TASK).zip(grad.par_chunks_mut(TASK)).for_each(|(x, grad)| backward(x, grad));
}

#[inline(always)]
pub(crate) fn selu_of<const FUSED: bool>(x: f32) -> f32 {
    if x > 0.0 { SCALE * x } else { SCALE * ALPHA * exp_m1::<FUSED>(x) }
}

vectorized! {
    fn forward<FUSED>(x: &[f32], y: &mut [f32]) {
        for (&x, y) in x.iter().zip(y) {
            *y = selu_of::<FUSED>(x);
        }
    }
}

vectorized! {
    fn in_place<FUSED>(x: &mut [f32]) {
        for x in x {
            *x = selu_of::<FUSED>(*x);
        }
    }
}

vectorized! {
    fn backward<FUSED>(x: &[f32], grad: &mut [f32]) {
        for (&x, grad) in x.iter().zip(grad) {
            let below = SCALE * ALPHA * exp_below_88::<FUSED>(x);
            *grad *= if x > 0.0 { SCALE } else { below };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_slopes() {
        let (scale, alpha) = (1.050_700_987_355_480_5, 1.673_263_242_354_377_2);
        for len in [0, 1, 7, 8, 17, 40_001] {
            let x: Vec<f32> = (0..len).map(|i| (i as f32 - len as f32 / 2.0) * 24.0 / len.max(1) as f32).collect();
            let (y, mut slope, mut in_place) = (selu(&x), vec![1.0; len], x.clone());
            selu_in_place(&mut in_place);
            assert_eq!(in_place, y);
            selu_backward(&x, &mut slope);
            for i in 0..len {
                let wide = f64::from(x[i]);
                let value = scale * if wide > 0.0 { wide } else { alpha * wide.exp_m1() };
                let gradient = scale * if wide > 0.0 { 1.0 } else { alpha * wide.exp() };
                assert!((f64::from(y[i]) - value).abs() < 3e-6 * value.abs().min(1.0) + 1e-9 || wide > 1.0, "{wide}");
                assert!((f64::from(y[i]) - value).abs() < 1e-6 * value.abs().max(1.0), "{wide}");
                assert!((f64::from(slope[i]) - gradient).abs() < 1e-6, "{wide}");
            }
        }
    }

    #[test]
    fn extremes() {
        let x = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.0];
        let (y, mut slope) = (selu(&x), [1.0; 4]);
        selu_backward(&x, &mut slope);
        assert!(y[0] == f32::INFINITY && (y[1] + SCALE * ALPHA).abs() < 1e-6 && y[2].is_nan() && y[3] == 0.0);
        assert!(slope[0] == SCALE && slope[1] == 0.0 && slope[2].is_nan());
    }
}
