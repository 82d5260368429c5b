//! Convolutions of 16-bit floats. Sums and epilogue are computed in f32, and each result is rounded once. Some images at a time
//! are converted or multiplied, so that their numbers in f32 stay in the last-level cache.

use super::{
    Conv2d, Epilogue, conv2d,
    finish::{Finish, finish},
    geometry::Im2colGeometry,
    input::{by_remainders, gathered},
    planes::Planes,
};
use crate::{
    determinism::deterministic,
    dispatch::PIECE,
    fresh::extend_by_chunks,
    half::{HalfFormat, narrow_part, product_bf16, widen_part, widened},
    matmul::{GEMV_ROWS, Matrix, Runs, multiplies_bf16, multiplies_tiles, tile_product_of_runs},
};

/// Maximum number of elements of f32 that are held at a time, unless a single image has more: 4 MiB.
const HELD: usize = 1 << 20;

/// Panic message: [`Conv2d::is_product_of_pairs`] and the number of rows have been checked.
const FOUND: &str = "a kernel for many rows on this CPU";

/// Like [`conv2d`], for 16-bit floats. For bf16 on a CPU that multiplies pairs, subnormal elements count as 0 if the kernel has
/// one element.
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
    let weight = widened(format, weight);
    let mut y = Vec::with_capacity(conv.batch * outputs);
    for (first, batch) in parts(conv.batch, inputs + outputs) {
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
    Some(multiplied(grad, &x, &planes, conv.channels_in, true))
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
fn parts(batch: usize, elements: usize) -> impl Iterator<Item = (usize, usize)> {
    let each = (HELD / elements.max(1)).max(1);
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
    let mut y = Vec::with_capacity(conv.batch * channels * pixels);
    for (first, batch) in parts(conv.batch, channels * pixels) {
        let planes = Planes::new(geometry, batch);
        let x = planes.of(&x[first * size..][..batch * size], channels_in);
        let sums = multiplied(weight, &x, &planes, channels_in, false);
        extend_by_chunks(&mut y, batch * channels * pixels, pixels, |plane, y| {
            let (image, channel) = (plane / channels, plane % channels);
            let sums = &sums[channel * planes.positions() + planes.image(image)..];
            let residual = residual.map(|residual| &residual[(first * channels + plane) * pixels..][..pixels]);
            rounded(&finish, channel, sums, [geometry.grid[1], planes.line()], residual, y);
        });
    }
    y
}

/// Multiplies a matrix with the column matrix of planes, or with its transpose.
fn multiplied(a: Matrix<'_, u16>, x: &[u16], planes: &Planes<'_>, channels: usize, transposed: bool) -> Vec<f32> {
    let (starts, len) = (planes.starts(channels), planes.positions());
    let runs = Runs { data: x, starts: &starts, len };
    let by_pairs = || {
        // A kernel of one element, so the runs are the planes.
        let b = Matrix::new(x, starts.len(), len);
        product_bf16(a, if transposed { b.transpose() } else { b }, None)
    };
    tile_product_of_runs(a, runs, transposed).or_else(by_pairs).expect(FOUND)
}

/// Applies the epilogue to sums of one channel, and rounds the results to bf16. Only the first `lines[0]` of each `lines[1]` sums
/// are used.
fn rounded(
    of_channel: &Finish<'_>,
    channel: usize,
    sums: &[f32],
    lines: [usize; 2],
    residual: Option<&[u16]>,
    y: &mut [u16],
) {
    let (mut wide, mut wide_residual) = ([0.0; PIECE], [0.0; PIECE]);
    let [columns, pitch] = if lines[0] == lines[1] { [y.len(); 2] } else { lines };
    // Whole lines, or parts of a long line.
    let count = (PIECE / columns.max(1)).max(1);
    for (i, y) in y.chunks_mut(count * columns.max(1)).enumerate() {
        for (j, y) in y.chunks_mut(PIECE).enumerate() {
            let (sums, start) = (&sums[i * count * pitch + j * PIECE..], i * count * columns + j * PIECE);
            let (wide, wide_residual) = (&mut wide[..y.len()], &mut wide_residual[..y.len()]);
            let residual = residual.map(|residual| {
                widen_part(HalfFormat::Bf16, &residual[start..][..y.len()], wide_residual);
                &*wide_residual
            });
            finish(sums, [columns, pitch], of_channel.factors(channel), residual, of_channel.relu, wide);
            narrow_part(HalfFormat::Bf16, wide, y);
        }
    }
}
