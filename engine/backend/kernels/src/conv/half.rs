//! Convolutions of 16-bit floats. Sums and epilogue are computed in f32, and each result is rounded once. Some images at a time
//! are converted or multiplied, so that their numbers in f32 stay in the last-level cache.

use rayon::prelude::*;
use std::mem::MaybeUninit;

use super::{
    Conv2d, Epilogue, conv2d,
    finish::Finish,
    geometry::Im2colGeometry,
    input::{by_remainders, gathered},
    planes::Planes,
};
use crate::{
    determinism::deterministic,
    dispatch::{PIECE, vectorized},
    fresh::extend_by_chunks,
    half::{Bf16, Half, HalfFormat, narrow_part, product_bf16, widened},
    matmul::{
        Element, GEMV_ROWS, Matrix, Results, Runs, Sums, Target, multiplies_bf16, multiplies_tiles, multiply_runs,
    },
};

/// Maximum number of elements that are converted or copied at a time, unless there are few images or pixels: 4 MiB of f32.
const HELD: usize = 1 << 20;

/// Minimum number of pixels of a product, if there are as many: packing the weights should take little of the time.
const POSITIONS: usize = 1 << 10;

/// Panic message: [`Conv2d::is_product_of_pairs`] and the number of rows have been checked.
const FOUND: &str = "a kernel for many rows on this CPU";

/// Like [`conv2d`], for 16-bit floats. For bf16 on a CPU that multiplies pairs, subnormal elements count as 0 if the kernel has
/// one element, and on a CPU that multiplies tiles whatever the kernel.
///
/// # Panics
/// If the sizes do not match.
pub fn conv2d_half(
    format: HalfFormat,
    x: &[u16],
    weight: &[u16],
    conv: &Conv2d,
    epilogue: Epilogue<'_, u16>,
) -> Vec<u16> {
    conv.check(Some(x.len()), Some(weight.len()), None);
    epilogue.check(conv);
    if conv.is_product_of_pairs(format, conv.channels_out) {
        let weight = Matrix::new(weight, conv.channels_out, conv.depth());
        return correlate(weight, x, &conv.geometry(), conv, epilogue);
    }
    let [inputs, _, outputs] = Conv2d { batch: 1, ..*conv }.elements();
    let each = (HELD / (inputs + outputs).max(1)).max(1);
    let weight = widened(format, weight);
    let mut y = Vec::with_capacity(conv.batch * outputs);
    for (first, batch) in parts(conv.batch, each) {
        let x = widened(format, &x[first * inputs..][..batch * inputs]);
        let residual =
            epilogue.residual.map(|residual| widened(format, &residual[first * outputs..][..batch * outputs]));
        let Epilogue { scale, shift, relu, .. } = epilogue;
        let part = conv2d(
            &x,
            &weight,
            &Conv2d { batch, ..*conv },
            Epilogue { scale, shift, residual: residual.as_deref(), relu },
        );
        extend_by_chunks(&mut y, part.len(), PIECE, |i, y| narrow_part(format, &part[i * PIECE..][..y.len()], y));
    }
    y
}

/// Computes the gradient of the input of a convolution of bf16 from the weight and the gradient of the output. Returns `None` if
/// there is no kernel for these sizes on this CPU.
///
/// # Panics
/// If the sizes do not match.
pub fn conv2d_backward_input_bf16(weight: &[u16], grad: &[u16], conv: &Conv2d) -> Option<Vec<u16>> {
    conv.check(None, Some(weight.len()), Some(grad.len()));
    conv.has_gradients_of_pairs().then(|| {
        let backward = Conv2d { channels_in: conv.channels_out, channels_out: conv.channels_in, ..*conv };
        by_remainders(conv, |geometry, elements| match conv.kernel {
            [1, 1] => {
                let weight = Matrix::new(weight, conv.channels_out, conv.channels_in).transpose();
                correlate(weight, grad, &geometry, &backward, Epilogue::default())
            }
            _ => {
                let weight = gathered(weight, conv, elements);
                let weight = Matrix::new(&weight, conv.channels_in, conv.channels_out * elements.len());
                correlate(weight, grad, &geometry, &backward, Epilogue::default())
            }
        })
    })
}

/// Computes the gradient of the weight of a convolution of bf16, in f32, from the input and the gradient of the output. Returns
/// `None` if there is no kernel for these sizes on this CPU.
///
/// # Panics
/// If the sizes do not match.
pub fn conv2d_backward_weight_bf16(x: &[u16], grad: &[u16], conv: &Conv2d) -> Option<Vec<f32>> {
    conv.check(Some(x.len()), None, Some(grad.len()));
    if !conv.has_gradients_of_pairs() {
        return None;
    }
    // The summed axis is that of the positions of all images.
    let geometry = conv.geometry();
    let planes = Planes::new(&geometry, conv.batch);
    let (grad, x) = (planes.spread(grad, conv.channels_out), planes.of(x, conv.channels_in));
    let grad = Matrix::new(&grad, conv.channels_out, planes.positions());
    let size = [conv.channels_out, conv.depth()];
    let mut dw = Vec::with_capacity(size[0] * size[1]);
    let sums = Sums::new(&mut dw.spare_capacity_mut()[..size[0] * size[1]], size, None);
    // SAFETY: `sums` is the exclusive borrow of the memory.
    let written = unsafe { multiply(grad, &x, &planes, conv.channels_in, true, &sums) };
    assert_eq!(written, size[0] * size[1], "a weight is missing");
    // SAFETY: all sums have been written.
    unsafe { dw.set_len(size[0] * size[1]) };
    Some(dw)
}

impl Conv2d {
    /// Returns true if this CPU multiplies pairs of the format, and the convolution is a product of matrices that it can read. The
    /// left-hand matrix has at least `rows` rows.
    fn is_product_of_pairs(&self, format: HalfFormat, rows: usize) -> bool {
        let Self { kernel, groups, .. } = *self;
        let pairs = multiplies_bf16() && kernel == [1, 1] && rows > GEMV_ROWS;
        let is_empty = self.elements().contains(&0);
        format == HalfFormat::Bf16 && groups == 1 && !is_empty && (pairs || multiplies_tiles())
    }

    /// Returns true if both gradients are products of pairs. One condition for both, so that neither is computed in vain.
    ///
    /// The weight's gradients in the gaps between images are 0, but times infinity or NaN they would give NaN. So deterministic mode
    /// allows no gaps.
    fn has_gradients_of_pairs(&self) -> bool {
        self.is_product_of_pairs(HalfFormat::Bf16, self.channels_in.min(self.channels_out))
            && !(deterministic() && Planes::new(&self.geometry(), self.batch).has_gaps())
    }
}

/// Returns the first image and the number of images of each part of a batch.
fn parts(batch: usize, each: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..batch).step_by(each).map(move |first| (first, each.min(batch - first)))
}

/// Correlates images with `weight`, `[rows, channels * taps]`, and applies the epilogue. `conv` has the batch and the channels.
fn correlate(
    weight: Matrix<'_, u16>,
    x: &[u16],
    geometry: &Im2colGeometry,
    conv: &Conv2d,
    epilogue: Epilogue<'_, u16>,
) -> Vec<u16> {
    let (channels_in, channels) = (conv.channels_in, conv.channels_out);
    let (size, pixels) = (channels_in * geometry.plane[0] * geometry.plane[1], geometry.output_pixels());
    let Epilogue { scale, shift, residual, relu } = epilogue;
    let finish = Finish::new(Epilogue { scale, shift, residual: None, relu }, channels);
    let each = match geometry.pointwise && pixels >= POSITIONS / 2 {
        // Read in place.
        true => 1,
        false => (HELD / size).max(POSITIONS.div_ceil(pixels)),
    };
    let (chunk, len) = (channels * pixels, conv.batch * channels * pixels);
    let mut y = Vec::with_capacity(len);
    let places = y.spare_capacity_mut()[..len].par_chunks_mut(each * chunk);
    let parts: Vec<(usize, usize)> = parts(conv.batch, each).collect();
    let written: usize = places
        .zip(parts)
        .map(|(y, (first, batch))| {
            let planes = Planes::new(geometry, batch);
            let x = planes.of(&x[first * size..][..batch * size], channels_in);
            let residual = residual.map(|residual| &residual[first * chunk..][..y.len()]);
            let images = Images { y: Target::new(y, pixels), planes: &planes, channels, finish: &finish, residual };
            // SAFETY: `images` is the exclusive borrow of the memory.
            unsafe { multiply(weight, &x, &planes, channels_in, false, &images) }
        })
        .sum();
    assert_eq!(written, len, "a pixel is missing");
    // SAFETY: all pixels have been written.
    unsafe { y.set_len(len) };
    y
}

/// Multiplies a matrix with the column matrix of planes, or with its transpose. Returns the number of elements written.
///
/// # Safety
/// No other thread may access the memory of the results.
unsafe fn multiply(
    a: Matrix<'_, u16>,
    x: &[u16],
    planes: &Planes<'_>,
    channels: usize,
    transposed: bool,
    results: &impl Results,
) -> usize {
    let (starts, len) = (planes.starts(channels), planes.positions());
    // SAFETY: the caller's promise.
    if let Some(written) = unsafe { multiply_runs(a, Runs { data: x, starts: &starts, len }, transposed, results) } {
        return written;
    }
    // A kernel of one element, so the runs are the planes.
    let b = Matrix::new(x, starts.len(), len);
    let mut sums = product_bf16(a, if transposed { b.transpose() } else { b }, None).expect(FOUND);
    let [rows, columns] = results.size();
    assert_eq!(sums.len(), rows * columns, "a product of another size");
    let row = |(row, sums)| {
        // SAFETY: each task has another row.
        unsafe { results.write(row, 0, sums) }
    };
    sums.par_chunks_mut(columns).enumerate().map(row).sum()
}

/// Results of a convolution, `[batch, channels, pixels]` in bf16, with an epilogue. The product has a row for each channel and a
/// column for each position of the planes.
struct Images<'a> {
    y: Target<'a, u16>,
    planes: &'a Planes<'a>,
    channels: usize,
    finish: &'a Finish<'a>,
    residual: Option<&'a [u16]>,
}

impl Results for Images<'_> {
    fn size(&self) -> [usize; 2] {
        [self.channels, self.planes.positions()]
    }

    #[inline(always)]
    unsafe fn write(&self, channel: usize, position: usize, sums: &mut [f32]) -> usize {
        let pixels = self.y.stride();
        let (factors, relu, mut written) = (self.finish.factors(channel), self.finish.relu, 0);
        self.planes.for_pixels(position, sums, |image, pixel, sums| {
            let plane = image * self.channels + channel;
            let residual = self.residual.map(|residual| &residual[plane * pixels + pixel..][..sums.len()]);
            let to = self.y.from(plane, pixel).first(1, sums.len());
            // SAFETY: `first` has checked that the memory has these elements, which no other thread accesses.
            let to = unsafe { std::slice::from_raw_parts_mut(to.cast::<MaybeUninit<u16>>(), sums.len()) };
            round(sums, factors, residual, relu, to);
            written += to.len();
        });
        written
    }
}

vectorized! {
    /// Applies the epilogue to sums of one channel, and rounds the results to bf16.
    fn round<_FUSED>(
        sums: &[f32], factors: Option<(f32, f32)>, residual: Option<&[u16]>, relu: bool, y: &mut [MaybeUninit<u16>],
    ) {
        #[inline(always)]
        fn each(sums: &[f32], y: &mut [MaybeUninit<u16>], finished: impl Fn(usize, f32) -> f32, relu: bool) {
            for (i, (y, sum)) in y.iter_mut().zip(sums).enumerate() {
                let value = finished(i, *sum);
                // The comparison is false for NaN, so that NaN propagates.
                y.write(Bf16::rounded(if relu && value < 0.0 { 0.0 } else { value }));
            }
        }
        let (scale, shift) = factors.unwrap_or((1.0, 0.0));
        match (factors.is_some(), residual) {
            (false, None) => each(sums, y, |_, sum| sum, relu),
            (true, None) => each(sums, y, |_, sum| scale * sum + shift, relu),
            (_, Some(residual)) => {
                assert_eq!(residual.len(), sums.len(), "a residual of another size");
                each(sums, y, |i, sum| scale * sum + shift + Bf16::number(residual[i]), relu);
            }
        }
    }
}
