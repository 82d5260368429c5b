use rayon::prelude::*;

use crate::{
    dispatch::vectorized,
    fresh::zeroed,
    math::{LANES, sum},
};

#[cfg(test)]
mod tests;

/// Minimum number of elements per image in a task, so that memory is accessed in long runs.
const PIECE: usize = 512;
/// Number of elements whose sums are accumulated in f32.
const CHUNK: usize = 4096;

/// Batch norm of images, `[batch, channels, plane]`, with an optional residual and ReLU.
#[derive(Clone, Copy, Debug)]
pub struct BatchNorm<'a> {
    /// Number of channels of an image.
    pub channels: usize,
    /// Number of elements of a channel of an image.
    pub plane: usize,
    /// Scale of each channel.
    pub weight: &'a [f32],
    /// If true, applies ReLU to the outputs.
    pub relu: bool,
}

impl BatchNorm<'_> {
    /// Computes `relu((x - mean) / sqrt(variance + eps) * weight + bias + residual)`. Also writes the mean and the biased
    /// variance of each channel over batch and plane.
    ///
    /// # Panics
    /// If the sizes do not match.
    pub fn forward(
        &self,
        x: &[f32],
        eps: f32,
        bias: &[f32],
        residual: Option<&[f32]>,
        mean: &mut [f32],
        variance: &mut [f32],
    ) -> Vec<f32> {
        self.check(x.len(), [bias.len(), mean.len(), variance.len()]);
        assert!(residual.is_none_or(|residual| residual.len() == x.len()), "a residual of another size");
        let block = self.block();
        let mut out = Vec::with_capacity(x.len());
        let places = self.parts(&mut out.spare_capacity_mut()[..x.len()], block);
        let parts = places.into_par_iter().zip(mean.par_chunks_mut(block)).zip(variance.par_chunks_mut(block));
        parts.enumerate().for_each(|(i, ((mut y, mean), variance))| {
            let first = i * block;
            assert!(y.iter().all(|y| y.len() == mean.len() * self.plane), "of each image the task's channels");
            let mut moments = vec![Moments::default(); mean.len()];
            for image in 0..y.len() {
                let x = &x[(image * self.channels + first) * self.plane..];
                for (moments, x) in moments.iter_mut().zip(x.chunks_exact(self.plane)) {
                    x.chunks(CHUNK).for_each(|x| moments.add(x));
                }
            }
            for (j, moments) in moments.iter().enumerate() {
                mean[j] = moments.mean as f32;
                variance[j] = moments.variance() as f32;
            }
            for (image, y) in y.iter_mut().enumerate() {
                for (j, y) in y.chunks_exact_mut(self.plane).enumerate() {
                    let at = (image * self.channels + first + j) * self.plane;
                    let residual = residual.map(|residual| &residual[at..at + self.plane]);
                    let scale = self.weight[first + j] * (1.0 / (variance[j] + eps).sqrt());
                    let factors = [mean[j], scale, bias[first + j]];
                    normalized(&x[at..at + self.plane], factors, residual, self.relu, zeroed(y));
                }
            }
        });
        // SAFETY: all `x.len()` elements are initialised. `parts` asserts that its parts cover the whole vector, one
        // per block of channels; each task asserts that it has the part of its channels in each image, and fills it.
        unsafe { out.set_len(x.len()) };
        out
    }

    /// Returns the gradient of `x` and writes those of weight and bias, from `grad`, the gradient of `y`. `grad` becomes the
    /// gradient of the residual. `y` is read only if `relu` is true.
    ///
    /// # Panics
    /// If the sizes do not match.
    #[allow(clippy::too_many_arguments)]
    pub fn backward(
        &self,
        x: &[f32],
        eps: f32,
        [mean, variance]: [&[f32]; 2],
        y: &[f32],
        grad: &mut [f32],
        dweight: &mut [f32],
        dbias: &mut [f32],
    ) -> Vec<f32> {
        self.check(x.len(), [mean.len(), variance.len(), dweight.len()]);
        assert!(dbias.len() == mean.len() && (!self.relu || y.len() == x.len()), "of another size");
        assert_eq!(grad.len(), x.len(), "a gradient of another size");
        let (block, plane) = (self.block(), self.plane);
        let sums = dweight.par_chunks_mut(block).zip(dbias.par_chunks_mut(block));
        let mut out = Vec::with_capacity(x.len());
        let places = self.parts(&mut out.spare_capacity_mut()[..x.len()], block);
        self.parts(grad, block).into_par_iter().zip(places).zip(sums).enumerate().for_each(
            |(i, ((mut grad, mut dx), (dweight, dbias)))| {
                let first = i * block;
                assert!(dx.len() == grad.len(), "of as many images");
                assert!(dx.iter().all(|dx| dx.len() == dbias.len() * plane), "of each image the task's channels");
                let inverse: Vec<f32> =
                    variance[first..first + dbias.len()].iter().map(|variance| 1.0 / (variance + eps).sqrt()).collect();
                let mut totals = vec![[0.0f64; 2]; dbias.len()];
                for (image, grad) in grad.iter_mut().enumerate() {
                    for (j, grad) in grad.chunks_exact_mut(plane).enumerate() {
                        let at = (image * self.channels + first + j) * plane;
                        for (k, grad) in grad.chunks_mut(CHUNK).enumerate() {
                            let from = at + k * CHUNK;
                            let y = self.relu.then(|| &y[from..from + grad.len()]);
                            let [total, along] = masked_sums(&x[from..from + grad.len()], mean[first + j], y, grad);
                            totals[j][0] += f64::from(total);
                            totals[j][1] += f64::from(along);
                        }
                    }
                }
                for (j, [total, along]) in totals.iter().enumerate() {
                    dbias[j] = *total as f32;
                    dweight[j] = (along * f64::from(inverse[j])) as f32;
                }
                let each = 1.0 / (grad.len() * plane).max(1) as f32;
                for image in 0..grad.len() {
                    for j in 0..dbias.len() {
                        let at = (image * self.channels + first + j) * plane;
                        let x = &x[at..at + plane];
                        // dx = scale * (grad - mean of grad - normal * mean of grad * normal)
                        let slope = inverse[j] * dweight[j] * each;
                        let factors = [mean[first + j], dbias[j] * each, slope, self.weight[first + j] * inverse[j]];
                        let dx = zeroed(&mut dx[image][j * plane..][..plane]);
                        backward(x, factors, &grad[image][j * plane..][..plane], dx);
                    }
                }
            },
        );
        // SAFETY: all elements are initialised, as in `forward`.
        unsafe { out.set_len(x.len()) };
        out
    }

    fn check(&self, x: usize, channels: [usize; 3]) {
        let Self { channels: c, plane, weight, .. } = *self;
        assert!(x == 0 || x.is_multiple_of(c * plane), "{x} elements in {c} channels of {plane}");
        assert!(weight.len() == c && channels.iter().all(|&len| len == c), "{channels:?}, not {c} channels");
    }

    /// Returns the number of channels of a task.
    fn block(&self) -> usize {
        PIECE.div_ceil(self.plane.max(1)).clamp(1, self.channels.div_ceil(rayon::current_num_threads()).max(1))
    }

    /// Returns the part of every image for each block of `block` channels.
    ///
    /// # Panics
    /// If the parts do not cover `x`.
    fn parts<'a, T>(&self, x: &'a mut [T], block: usize) -> Vec<Vec<&'a mut [T]>> {
        let len = x.len();
        let mut parts: Vec<Vec<&mut [T]>> = (0..self.channels.div_ceil(block)).map(|_| vec![]).collect();
        for image in x.chunks_exact_mut((self.channels * self.plane).max(1)) {
            for (parts, part) in parts.iter_mut().zip(image.chunks_mut(block * self.plane)) {
                parts.push(part);
            }
        }
        let all: usize = parts.iter().flatten().map(|part| part.len()).sum();
        assert_eq!(all, len, "the parts are not the whole");
        parts
    }
}

/// Running mean and variance, merged from those of chunks (T. F. Chan and others, "Updating formulae and a pairwise algorithm
/// for computing sample variances", 1982).
#[derive(Clone, Default)]
struct Moments {
    count: f64,
    mean: f64,
    /// Sum of the squared deviations from the mean.
    squares: f64,
}

impl Moments {
    fn add(&mut self, x: &[f32]) {
        let [total, mean, squares] = chunk_moments(x).map(f64::from);
        let count = x.len() as f64;
        // Rounding error of the mean.
        let rest = total / count - mean;
        let (mean, squares) = (mean + rest, squares - count * rest * rest);
        let all = self.count + count;
        let apart = mean - self.mean;
        self.mean += apart * (count / all);
        self.squares += squares + apart * apart * (self.count * count / all);
        self.count = all;
    }

    /// Returns the biased variance; NaN if there are no elements.
    fn variance(&self) -> f64 {
        self.squares / self.count
    }
}

vectorized! {
    /// Returns the sum, the rounded mean, and the sum of the squared deviations from the rounded mean.
    fn chunk_moments<_FUSED>(x: &[f32]) -> [f32; 3] {
        let total = sum(x, |x| x);
        let mean = total / x.len() as f32;
        [total, mean, sum(x, |x| (x - mean) * (x - mean))]
    }
}

vectorized! {
    fn normalized<_FUSED>(
        x: &[f32], factors: [f32; 3], residual: Option<&[f32]>, relu: bool, y: &mut [f32],
    ) {
        let [mean, scale, bias] = factors;
        // The comparisons are false for NaN, so that NaN propagates.
        match (residual, relu) {
            (None, false) => y.iter_mut().zip(x).for_each(|(y, x)| *y = (x - mean) * scale + bias),
            (None, true) => y.iter_mut().zip(x).for_each(|(y, x)| {
                let value = (x - mean) * scale + bias;
                *y = if value < 0.0 { 0.0 } else { value };
            }),
            (Some(residual), false) => y.iter_mut().zip(x).zip(residual).for_each(|((y, x), residual)| {
                *y = (x - mean) * scale + bias + residual;
            }),
            (Some(residual), true) => y.iter_mut().zip(x).zip(residual).for_each(|((y, x), residual)| {
                let value = (x - mean) * scale + bias + residual;
                *y = if value < 0.0 { 0.0 } else { value };
            }),
        }
    }
}

vectorized! {
    /// Sets the gradient to 0 where `y` is not positive. Returns its sum and the sum of its products with `x - mean`.
    fn masked_sums<_FUSED>(x: &[f32], mean: f32, y: Option<&[f32]>, grad: &mut [f32]) -> [f32; 2] {
        if let Some(y) = y {
            grad.iter_mut().zip(y).for_each(|(grad, y)| *grad = if *y <= 0.0 { 0.0 } else { *grad });
        }
        let mut lanes = [[0.0f32; LANES]; 2];
        let ((xs, x_rest), (grads, grad_rest)) = (x.as_chunks::<LANES>(), grad.as_chunks::<LANES>());
        for (x, grad) in xs.iter().zip(grads) {
            for i in 0..LANES {
                lanes[0][i] += grad[i];
                lanes[1][i] += grad[i] * (x[i] - mean);
            }
        }
        let mut totals = [0.0; 2];
        for (total, lanes) in totals.iter_mut().zip(lanes) {
            for lane in lanes {
                *total += lane;
            }
        }
        for (x, grad) in x_rest.iter().zip(grad_rest) {
            totals[0] += grad;
            totals[1] += grad * (x - mean);
        }
        totals
    }
}

vectorized! {
    fn backward<_FUSED>(x: &[f32], factors: [f32; 4], grad: &[f32], dx: &mut [f32]) {
        let [mean, total, slope, scale] = factors;
        dx.iter_mut().zip(x).zip(grad).for_each(|((dx, x), grad)| *dx = scale * (grad - total - (x - mean) * slope));
    }
}
