use rayon::prelude::*;

use crate::{
    dispatch::{rows_per_task, vectorized},
    fresh::by_chunks_with,
};

/// Sizes of a two-dimensional pooling of planes.
#[derive(Clone, Copy, Debug)]
pub struct Pool2d {
    /// Height and width of a plane.
    pub size: [usize; 2],
    /// Height and width of a window.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Rows and columns of padding on each side of a plane, which do not affect the results.
    pub padding: [usize; 2],
}

impl Pool2d {
    /// Returns the height and width of the output of a plane.
    pub fn output(&self) -> [usize; 2] {
        [0, 1].map(|i| {
            let size = self.size[i] + 2 * self.padding[i];
            if size < self.kernel[i] { 0 } else { (size - self.kernel[i]) / self.stride[i] + 1 }
        })
    }

    /// Returns the numbers of elements of a plane and of its output.
    fn elements(&self) -> [usize; 2] {
        assert!(self.stride.iter().all(|&step| step > 0), "a stride of 0: {self:?}");
        assert!((0..2).all(|i| self.padding[i] * 2 <= self.kernel[i]), "windows without elements: {self:?}");
        let [rows, columns] = self.output();
        [self.size[0] * self.size[1], rows * columns]
    }

    /// Returns the part of a window that is within the plane.
    #[inline(always)]
    fn window(&self, i: usize, at: usize) -> [usize; 2] {
        let first = at * self.stride[i];
        [first.saturating_sub(self.padding[i]), (first + self.kernel[i] - self.padding[i]).min(self.size[i])]
    }

    /// Returns the maximum of each window, for consecutive planes.
    ///
    /// # Panics
    /// If the sizes do not match, or the padding is more than half of the kernel.
    pub fn max(&self, x: &[f32]) -> Vec<f32> {
        let [plane, out] = self.elements();
        let len = x.len() / plane.max(1) * out;
        let Some([plane, out]) = self.check(x.len(), len) else { return vec![] };
        let some = rows_per_task(plane);
        by_chunks_with(len, some * out, x.par_chunks(some * plane), |_, y, x| {
            let mut line = vec![0.0; self.size[1]];
            x.chunks(plane).zip(y.chunks_mut(out)).for_each(|(x, y)| largest(self, x, y, &mut line));
        })
    }

    /// Returns the gradient of [`max`](Self::max), from its output. The first of equal maxima, in row-major order, gets the
    /// gradient.
    ///
    /// # Panics
    /// If the sizes do not match, or the padding is more than half of the kernel.
    pub fn max_backward(&self, x: &[f32], y: &[f32], grad: &[f32]) -> Vec<f32> {
        assert_eq!(grad.len(), y.len(), "a gradient of another size: {self:?}");
        let Some([plane, out]) = self.check(x.len(), y.len()) else { return vec![0.0; x.len()] };
        let some = rows_per_task(plane);
        let others = x.par_chunks(some * plane).zip(y.par_chunks(some * out).zip(grad.par_chunks(some * out)));
        by_chunks_with(x.len(), some * plane, others, |_, dx, (x, (y, grad))| {
            let planes = x.chunks(plane).zip(dx.chunks_mut(plane));
            for ((x, dx), (y, grad)) in planes.zip(y.chunks(out).zip(grad.chunks(out))) {
                self.pass_on(x, y, grad, dx);
            }
        })
    }

    /// Returns the numbers of elements of a plane and of its output; `None` if the output is empty.
    fn check(&self, x: usize, y: usize) -> Option<[usize; 2]> {
        let [plane, out] = self.elements();
        assert!(x * out == y * plane && (y > 0 || x * out == 0), "{x} and {y} elements: {self:?}");
        (y > 0).then_some([plane, out])
    }

    fn pass_on(&self, x: &[f32], y: &[f32], grad: &[f32], dx: &mut [f32]) {
        let (width, [_, columns]) = (self.size[1], self.output());
        for (row, (y, grad)) in y.chunks_exact(columns).zip(grad.chunks_exact(columns)).enumerate() {
            let [top, bottom] = self.window(0, row);
            for (column, (y, grad)) in y.iter().zip(grad).enumerate() {
                let [left, right] = self.window(1, column);
                let mut places = (top..bottom).flat_map(|row| row * width + left..row * width + right);
                // NaN is not equal to itself.
                if let Some(place) = places.find(|&place| x[place] == *y || x[place].is_nan()) {
                    dx[place] += grad;
                }
            }
        }
    }
}

/// Returns true if a value replaces the current maximum. NaN replaces any value, and is replaced only by NaN.
#[inline(always)]
fn larger(value: f32, than: f32) -> bool {
    value > than || value.is_nan()
}

vectorized! {
    /// Computes the maximum of each column of the windows of a row, in `line`, then of each window.
    fn largest<_FUSED>(pool: &Pool2d, x: &[f32], y: &mut [f32], line: &mut [f32]) {
        let (width, [_, columns]) = (pool.size[1], pool.output());
        let [kernel, stride, padding] = [pool.kernel[1], pool.stride[1], pool.padding[1]];
        // Windows that are entirely within the line.
        let first = padding.div_ceil(stride).min(columns);
        let last = if width + padding < kernel { 0 } else { (width + padding - kernel) / stride + 1 }.clamp(first, columns);
        for (row, y) in y.chunks_exact_mut(columns).enumerate() {
            let [from, to] = pool.window(0, row);
            line.copy_from_slice(&x[from * width..][..width]);
            for row in from + 1..to {
                for (line, &x) in line.iter_mut().zip(&x[row * width..][..width]) {
                    *line = if larger(x, *line) { x } else { *line };
                }
            }
            for column in (0..first).chain(last..columns) {
                let [from, to] = pool.window(1, column);
                y[column] = line[from];
                for &value in &line[from + 1..to] {
                    y[column] = if larger(value, y[column]) { value } else { y[column] };
                }
            }
            let y = &mut y[first..last];
            // Without such windows, the first of them would start beyond the line.
            if y.is_empty() {
                continue;
            }
            let line = &line[first * stride - padding..];
            for at in 0..kernel {
                let line = &line[at..][..(y.len() - 1) * stride + 1];
                for (i, y) in y.iter_mut().enumerate() {
                    let value = line[i * stride];
                    *y = if at == 0 || larger(value, *y) { value } else { *y };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_and_gradients() {
        let pools = [
            ([1, 1], [1, 1], [1, 1], [0, 0]),
            ([112, 112], [3, 3], [2, 2], [1, 1]),
            ([5, 9], [2, 2], [2, 2], [0, 0]),
            ([7, 6], [3, 2], [1, 3], [1, 1]),
            ([4, 4], [4, 5], [3, 1], [2, 2]),
            ([2, 1], [4, 3], [2, 1], [2, 1]),
        ];
        // Each side separately, with all strides and paddings that a small window can have.
        let sides = (1..6).flat_map(|size| (1..6).map(move |kernel| (size, kernel)));
        let sides = sides.flat_map(|(size, kernel)| (1..7).map(move |stride| (size, kernel, stride)));
        let sides = sides.flat_map(|(size, kernel, stride)| {
            (0..=kernel / 2)
                .filter(move |padding| size + 2 * padding >= kernel)
                .map(move |padding| (size, kernel, stride, padding))
        });
        let sides: Vec<_> = sides.collect();
        let swept = sides.iter().enumerate().map(|(i, &(size, kernel, stride, padding))| {
            let (other_size, other_kernel, other_stride, other_padding) = sides[i * 31 % sides.len()];
            ([other_size, size], [other_kernel, kernel], [other_stride, stride], [other_padding, padding])
        });
        for (size, kernel, stride, padding) in pools.into_iter().chain(swept) {
            let pool = Pool2d { size, kernel, stride, padding };
            let ([plane, out], planes) = (pool.elements(), 5);
            // Many equal elements, as after a ReLU, and one NaN.
            let mut x: Vec<f32> = (0..planes * plane).map(|i| ((i * 7919 % 1013) as f32 - 600.0).max(0.0)).collect();
            x[3 * plane / 2] = f32::NAN;
            let y = pool.max(&x);
            assert_eq!(y.len(), planes * out);
            let grad: Vec<f32> = (0..planes * out).map(|i| i as f32).collect();
            let (dx, mut expected) = (pool.max_backward(&x, &y, &grad), vec![0.0; x.len()]);
            for (i, y) in y.iter().enumerate() {
                let (row, column) = (i % out / pool.output()[1], i % pool.output()[1]);
                let mut best = (f32::NEG_INFINITY, 0);
                for (ky, kx) in (0..kernel[0]).flat_map(|ky| (0..kernel[1]).map(move |kx| (ky, kx))) {
                    let (y, x_at) = (row * stride[0] + ky, column * stride[1] + kx);
                    if y < padding[0] || x_at < padding[1] || y - padding[0] >= size[0] || x_at - padding[1] >= size[1]
                    {
                        continue;
                    }
                    let at = (y - padding[0]) * size[1] + x_at - padding[1];
                    let value = x[i / out * plane + at];
                    if value > best.0 || value.is_nan() && !best.0.is_nan() {
                        best = (value, at);
                    }
                }
                assert!(y.to_bits() == best.0.to_bits(), "{pool:?}, {i}");
                expected[i / out * plane + best.1] += grad[i];
            }
            assert_eq!(dx, expected);
        }
    }
}
