use rayon::prelude::*;

use crate::{
    dispatch::{TASK, vectorized},
    half::{Bf16, F16, Half, HalfFormat, widen_part},
};

/// Number of elements of a gradient that are converted from 16 bits at a time. They stay in the first-level cache.
const PART: usize = 1024;

/// Hyperparameters and bias corrections of an AdamW step (Loshchilov and Hutter, 2019), shared by all elements.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamStep {
    /// Decay rate of the first moment, and the weight of the gradient in it.
    pub b1: [f32; 2],
    /// Decay rate of the second moment, and the weight of the squared gradient in it.
    pub b2: [f32; 2],
    /// Added to the square root of the second moment for numerical stability.
    pub eps: f32,
    /// Added to the second moment under the square root.
    pub eps_root: f32,
    /// Bias corrections: the divisors of the two moments.
    pub correction: [f32; 2],
    /// Learning rate.
    pub rate: f32,
    /// Decoupled weight decay: `rate * decay` times the parameter is subtracted from it.
    pub decay: f32,
}

impl AdamStep {
    /// Applies one step in place. Each value is read and written once.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn apply(&self, params: &mut [f32], grads: &[f32], mu: &mut [f32], nu: &mut [f32]) {
        let len = params.len();
        assert!(grads.len() == len && mu.len() == len && nu.len() == len, "slices of different lengths");
        let tasks = params.par_chunks_mut(TASK).zip(grads.par_chunks(TASK));
        tasks
            .zip(mu.par_chunks_mut(TASK).zip(nu.par_chunks_mut(TASK)))
            .for_each(|((params, grads), (mu, nu))| step(*self, params, grads, mu, nu));
    }

    /// Like [`apply`](Self::apply), for parameters of 16 bits: computes in f32 and rounds the new parameters once.
    ///
    /// # Panics
    /// If the slices differ in length.
    pub fn apply_to_16_bits(
        &self,
        format: HalfFormat,
        params: &mut [u16],
        grads: Gradients<'_>,
        mu: &mut [f32],
        nu: &mut [f32],
    ) {
        let len = params.len();
        assert!(grads.len() == len && mu.len() == len && nu.len() == len, "slices of different lengths");
        let tasks = params.par_chunks_mut(TASK).zip(mu.par_chunks_mut(TASK)).zip(nu.par_chunks_mut(TASK));
        tasks.enumerate().for_each(|(task, ((params, mu), nu))| {
            let mut wide_grads = [0.0; PART];
            let parts = params.chunks_mut(PART).zip(mu.chunks_mut(PART)).zip(nu.chunks_mut(PART));
            for (part, ((params, mu), nu)) in parts.enumerate() {
                let (start, len) = (task * TASK + part * PART, params.len());
                let wide_grads = &mut wide_grads[..len];
                let grads = match grads {
                    Gradients::F32(grads) => &grads[start..][..len],
                    Gradients::Half(format, grads) => {
                        widen_part(format, &grads[start..][..len], wide_grads);
                        wide_grads
                    }
                };
                match format {
                    HalfFormat::F16 => step_of_16_bits::<F16>(*self, params, grads, mu, nu),
                    HalfFormat::Bf16 => step_of_16_bits::<Bf16>(*self, params, grads, mu, nu),
                }
            }
        });
    }

    /// Returns the step of one element: it takes the parameter, its gradient and both moments, and returns the new parameter.
    #[inline(always)]
    fn of_element(self) -> impl Fn(f32, f32, &mut f32, &mut f32) -> f32 {
        let ([b1, grad_weight], [b2, square_weight]) = (self.b1, self.b2);
        let (rate, inverse_correction) = (self.rate / self.correction[0], 1.0 / self.correction[1]);
        // Not computed as `1 - rate * decay`: with a small rate, rounding would lose or exaggerate the decay.
        let decay = self.rate * self.decay;
        move |p, g, mu, nu| {
            *mu = b1 * *mu + grad_weight * g;
            *nu = b2 * *nu + square_weight * (g * g);
            let root = (*nu * inverse_correction + self.eps_root).sqrt() + self.eps;
            p - (rate * *mu / root + decay * p)
        }
    }
}

/// Gradient of parameters of 16 bits.
#[derive(Clone, Copy, Debug)]
pub enum Gradients<'a> {
    /// In f32.
    F32(&'a [f32]),
    /// In 16 bits.
    Half(HalfFormat, &'a [u16]),
}

impl Gradients<'_> {
    fn len(&self) -> usize {
        match self {
            Self::F32(grads) => grads.len(),
            Self::Half(_, grads) => grads.len(),
        }
    }
}

vectorized! {
    fn step<_FUSED>(adam: AdamStep, params: &mut [f32], grads: &[f32], mu: &mut [f32], nu: &mut [f32]) {
        let step = adam.of_element();
        for (((p, &g), mu), nu) in params.iter_mut().zip(grads).zip(mu).zip(nu) {
            *p = step(*p, g, mu, nu);
        }
    }
}

vectorized! {
    fn step_of_16_bits<_FUSED, E: Half>(
        adam: AdamStep, params: &mut [u16], grads: &[f32], mu: &mut [f32], nu: &mut [f32],
    ) {
        let step = adam.of_element();
        for (((p, &g), mu), nu) in params.iter_mut().zip(grads).zip(mu).zip(nu) {
            *p = E::rounded(step(E::number(*p), g, mu, nu));
        }
    }
}

/// Returns the sum of the squares of all elements. The summation order does not depend on the number of threads.
pub fn sum_of_squares(x: &[f32]) -> f32 {
    let parts: Vec<f64> = x.par_chunks(TASK).map(|x| f64::from(squares(x))).collect();
    parts.into_iter().sum::<f64>() as f32
}

vectorized! {
    fn squares<_FUSED>(x: &[f32]) -> f32 {
        crate::math::sum(x, |x| x * x)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::half::{narrowed, widened};

    #[test]
    fn steps_match_the_formula() {
        let adam = AdamStep {
            b1: [0.9, 0.1],
            b2: [0.999, 0.001],
            eps: 1e-8,
            eps_root: 1e-6,
            correction: [0.19, 0.001_999],
            rate: 0.01,
            decay: 0.1,
        };
        for len in [0, 1, 7, 16, 33, 40_003] {
            let numbers =
                |step: usize| -> Vec<f32> { (0..len).map(|i| ((i * step) % 97) as f32 / 50.0 - 0.9).collect() };
            let (mut p, g, mut mu, mut nu) = (numbers(7), numbers(13), numbers(29), numbers(31));
            nu.iter_mut().for_each(|nu| *nu = nu.abs());
            let before = (p.clone(), mu.clone(), nu.clone());
            adam.apply(&mut p, &g, &mut mu, &mut nu);
            for i in 0..len {
                let [g, p0, mu0, nu0] = [g[i], before.0[i], before.1[i], before.2[i]].map(f64::from);
                let (m, v) = (0.9 * mu0 + 0.1 * g, 0.999 * nu0 + 0.001 * g * g);
                let update = (m / 0.19) / ((v / 0.001_999 + 1e-6).sqrt() + 1e-8) + 0.1 * p0;
                let close = |x: f32, exact: f64| (f64::from(x) - exact).abs() <= 1e-6 * (0.1 + exact.abs());
                assert!(close(mu[i], m) && close(nu[i], v) && close(p[i], p0 - 0.01 * update), "{i} of {len}");
            }
        }
    }

    /// Parameters of 16 bits get the rounded results of f32, with gradients of either.
    #[test]
    fn steps_of_16_bits() {
        let adam = AdamStep {
            b1: [0.9, 0.1],
            b2: [0.999, 0.001],
            eps: 1e-8,
            eps_root: 0.0,
            correction: [0.1, 0.001],
            rate: 0.02,
            decay: 0.1,
        };
        for (format, len) in
            [(HalfFormat::F16, 1), (HalfFormat::F16, PART + 1), (HalfFormat::Bf16, TASK + 3 * PART + 7)]
        {
            let numbers =
                |step: usize| -> Vec<f32> { (0..len).map(|i| ((i * step) % 97) as f32 / 50.0 - 0.9).collect() };
            let [params, grads] = [7, 13].map(|step| narrowed(format, &numbers(step)));
            let moments = || (numbers(29), numbers(31).iter().map(|nu| nu.abs()).collect::<Vec<_>>());
            let (mut expected, wide_grads) = (widened(format, &params), widened(format, &grads));
            let (mut expected_mu, mut expected_nu) = moments();
            adam.apply(&mut expected, &wide_grads, &mut expected_mu, &mut expected_nu);
            for grads in [Gradients::Half(format, &grads), Gradients::F32(&wide_grads)] {
                let (mut params, (mut mu, mut nu)) = (params.clone(), moments());
                adam.apply_to_16_bits(format, &mut params, grads, &mut mu, &mut nu);
                assert!(
                    params == narrowed(format, &expected) && mu == expected_mu && nu == expected_nu,
                    "{format:?} {len}"
                );
            }
        }
    }

    /// The decay is far below the last digit of the values. Combined with larger updates, the values decay correctly on
    /// average.
    #[test]
    fn small_rates_decay_too() {
        for (rate, decay) in [(1e-4, 1e-4), (3e-6, 0.01), (1e-5, 0.01), (1e-3, 1e-4)] {
            let adam = AdamStep {
                b1: [0.0, 1.0],
                b2: [1.0, 0.0],
                eps: 1e-8,
                eps_root: 0.0,
                correction: [1.0, 1.0],
                rate,
                decay,
            };
            let numbers = |step: u64| (0..1 << 20).map(move |i: u64| (i * step % 1_000_003) as f32 / 1_000_003.0);
            let before: Vec<f32> = numbers(7919).map(|x| 1.0 + x).collect();
            let grads: Vec<f32> = numbers(104_729).map(|x| x + 0.1).collect();
            let (mut p, mut mu, mut nu) = (before.clone(), vec![0.0; before.len()], vec![4.0; before.len()]);
            adam.apply(&mut p, &grads, &mut mu, &mut nu);
            let (mut decayed, mut expected) = (0.0, 0.0);
            for ((p, before), g) in p.iter().zip(&before).zip(&grads) {
                let [p, before, g, rate] = [*p, *before, *g, rate].map(f64::from);
                decayed += before - rate * g / (2.0 + 1e-8) - p;
                expected += rate * f64::from(decay) * before;
            }
            assert!((decayed / expected - 1.0).abs() < 0.05, "{rate}, {decay}: {decayed} of {expected}");
        }
    }

    #[test]
    fn squares_of_every_length() {
        for len in [0, 1, 17, 16_384, 50_001] {
            let x: Vec<f32> = (0..len).map(|i| (i % 5) as f32 - 2.0).collect();
            let exact: f64 = x.iter().map(|&x| f64::from(x * x)).sum();
            assert_eq!(f64::from(sum_of_squares(&x)), exact);
        }
        assert!(sum_of_squares(&[1.0, f32::NAN]).is_nan());
    }
}
