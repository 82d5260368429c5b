use rayon::prelude::*;

use crate::{
    dispatch::{TASK, vectorized},
    fresh::by_chunks_with,
    math::{exp_below_88, sigmoid},
};

/// Computes `gate = silu(gate) * up`, where `silu(x) = x / (1 + e^-x)`: the activation of a SwiGLU layer (Shazeer, "GLU
/// Variants Improve Transformer", 2020).
///
/// # Panics
/// If the slices differ in length.
pub fn silu_mul(gate: &mut [f32], up: &[f32]) {
    assert_eq!(gate.len(), up.len());
    if gate.len() <= TASK {
        return forward(gate, up);
    }
    gate.par_chunks_mut(TASK).zip(up.par_chunks(TASK)).for_each(|(gate, up)| forward(gate, up));
}

/// Returns the gradient of [`silu_mul`] with respect to `gate`, from its inputs and the gradient of its output. Replaces
/// `grad` by the gradient with respect to `up`.
///
/// # Panics
/// If the slices differ in length.
pub fn silu_mul_backward(gate: &[f32], up: &[f32], grad: &mut [f32]) -> Vec<f32> {
    let len = gate.len();
    assert!(up.len() == len && grad.len() == len);
    let others = gate.par_chunks(TASK).zip(up.par_chunks(TASK)).zip(grad.par_chunks_mut(TASK));
    by_chunks_with(len, TASK, others, |_, d_gate, ((gate, up), grad)| backward(gate, up, grad, d_gate))
}

vectorized! {
    fn forward<FUSED>(gate: &mut [f32], up: &[f32]) {
        for (gate, &up) in gate.iter_mut().zip(up) {
            *gate = *gate / (1.0 + exp_below_88::<FUSED>(-*gate)) * up;
        }
    }
}

vectorized! {
    fn backward<FUSED>(gate: &[f32], up: &[f32], grad: &mut [f32], d_gate: &mut [f32]) {
        let n = gate.len();
        let (up, grad, d_gate) = (&up[..n], &mut grad[..n], &mut d_gate[..n]);
        for i in 0..n {
            let s = sigmoid::<FUSED>(gate[i]);
            // Beyond ±88 the derivative is 0 or 1; infinity times 0 would be NaN. NaN propagates.
            let x = if gate[i] < -88.0 { -88.0 } else { gate[i] };
            let x = if x > 88.0 { 88.0 } else { x };
            d_gate[i] = grad[i] * up[i] * s * (1.0 + x * (1.0 - s));
            grad[i] *= gate[i] * s;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_slopes() {
        for len in [0, 1, 7, 8, 17, 40_001] {
            let gate: Vec<f32> = (0..len).map(|i| (i as f32 - len as f32 / 2.0) * 60.0 / len.max(1) as f32).collect();
            let up: Vec<f32> = (0..len).map(|i| ((i * 7919) % 113) as f32 / 10.0 - 4.0).collect();
            let grad: Vec<f32> = (0..len).map(|i| ((i * 104_729) % 97) as f32 / 10.0 - 5.0).collect();
            let (mut y, mut d_up) = (gate.clone(), grad.clone());
            silu_mul(&mut y, &up);
            let d_gate = silu_mul_backward(&gate, &up, &mut d_up);
            for i in 0..len {
                let [x, up, grad] = [&gate, &up, &grad].map(|values| f64::from(values[i]));
                let s = 1.0 / (1.0 + (-x).exp());
                let close = |found: f32, expected: f64| {
                    assert!(
                        (f64::from(found) - expected).abs() < 1e-6 * (1.0 + expected.abs()),
                        "{x}: {found} {expected}"
                    );
                };
                close(y[i], x * s * up);
                close(d_up[i], grad * x * s);
                close(d_gate[i], grad * up * s * (1.0 + x * (1.0 - s)));
            }
        }
    }

    #[test]
    fn extremes() {
        let gate = [f32::INFINITY, f32::NAN, 1e30, -1e30, -100.0];
        let (mut y, mut d_up) = (gate, [1.0f32; 5]);
        silu_mul(&mut y, &[2.0; 5]);
        let d_gate = silu_mul_backward(&gate, &[2.0; 5], &mut d_up);
        assert!(y[0] == f32::INFINITY && y[1].is_nan() && y[2] == 2e30 && y[3] == 0.0 && y[4] == 0.0);
        assert!(d_gate[0] == 2.0 && d_gate[1].is_nan() && d_gate[2..] == [2.0, 0.0, 0.0]);
        assert!(d_up[0] == f32::INFINITY && d_up[1].is_nan() && d_up[2..] == [1e30, 0.0, 0.0]);
    }
}
