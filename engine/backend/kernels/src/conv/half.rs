//! Convolutions of 16-bit floats. Sums and epilogue are computed in f32, and each result is rounded once. Some images at a time
//! are converted or multiplied, so that their numbers in f32 stay in the last-level cache.

use std::borrow::Cow;

use super::{
    Conv2d, Epilogue, conv2d,
    finish::{Finish, finish},
};
use crate::{
    dispatch::PIECE,
    fresh::{by_chunks, extend_by_chunks},
    half::{HalfFormat, narrow_part, product_bf16, widen_part, widened},
    matmul::{GEMV_ROWS, Matrix, multiplies_bf16},
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
    if conv.is_product_of_pairs(format) && conv.channels_out > GEMV_ROWS {
        return pointwise(Matrix::new(weight, conv.channels_out, conv.channels_in), x, conv, epilogue);
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
    if !conv.has_gradients_of_pairs() {
        return None;
    }
    let weight = Matrix::new(weight, conv.channels_out, conv.channels_in).transpose();
    let backward = Conv2d { channels_in: conv.channels_out, channels_out: conv.channels_in, ..*conv };
    Some(pointwise(weight, grad, &backward, Epilogue::default()))
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
    // The summed axis is that of the pixels of all images.
    let columns = conv.batch * conv.height * conv.width;
    let [a, b] =
        [(grad, conv.channels_out), (x, conv.channels_in)].map(|(of, channels)| by_channel(of, conv, channels));
    product_bf16(
        Matrix::new(&a, conv.channels_out, columns),
        Matrix::new(&b, conv.channels_in, columns).transpose(),
        None,
    )
}

/// Returns images as `[channels, batch, pixels]`.
fn by_channel<'a>(x: &'a [u16], conv: &Conv2d, channels: usize) -> Cow<'a, [u16]> {
    if conv.batch == 1 {
        return Cow::Borrowed(x);
    }
    let pixels = x.len() / (conv.batch * channels);
    Cow::Owned(by_chunks(x.len(), pixels, |i, out| {
        let (channel, image) = (i / conv.batch, i % conv.batch);
        out.copy_from_slice(&x[(image * channels + channel) * pixels..][..pixels]);
    }))
}

impl Conv2d {
    /// Returns true if the convolution is a matrix product for each image, and this CPU multiplies pairs of the format.
    fn is_product_of_pairs(&self, format: HalfFormat) -> bool {
        let Self { kernel, padding, groups, .. } = *self;
        let is_product = kernel == [1, 1] && padding == [0, 0] && groups == 1;
        let is_empty = self.elements().contains(&0);
        is_product && !is_empty && format == HalfFormat::Bf16 && multiplies_bf16()
    }

    /// Returns true if both gradients are products of pairs. One condition for both, so that neither is computed in vain.
    fn has_gradients_of_pairs(&self) -> bool {
        let has_many_rows = self.channels_in.min(self.channels_out) > GEMV_ROWS;
        self.is_product_of_pairs(HalfFormat::Bf16) && self.stride == [1, 1] && has_many_rows
    }
}

/// Returns the first image and the number of images of each part of a batch.
fn parts(batch: usize, elements: usize) -> impl Iterator<Item = (usize, usize)> {
    let each = (HELD / elements.max(1)).max(1);
    (0..batch).step_by(each).map(move |first| (first, each.min(batch - first)))
}

/// Multiplies `weight`, `[channels_out, channels_in]`, with the channels of each pixel, and applies the epilogue.
fn pointwise(weight: Matrix<'_, u16>, x: &[u16], conv: &Conv2d, epilogue: Epilogue<'_, u16>) -> Vec<u16> {
    let (channels_in, channels) = (conv.channels_in, conv.channels_out);
    let [rows, columns] = conv.output();
    let pixels = rows * columns;
    let Epilogue { scale, shift, residual, relu } = epilogue;
    let finish = Finish::new(Epilogue { scale, shift, residual: None, relu }, channels);
    let mut y = Vec::with_capacity(conv.batch * channels * pixels);
    for (first, batch) in parts(conv.batch, channels * pixels) {
        let size = channels_in * conv.height * conv.width;
        let x = strided(&x[first * size..][..batch * size], conv);
        let x = by_channel(&x, &Conv2d { batch, ..*conv }, channels_in);
        let sums = product_bf16(weight, Matrix::new(&x, channels_in, batch * pixels), None).expect(FOUND);
        extend_by_chunks(&mut y, batch * channels * pixels, pixels, |plane, y| {
            let (image, channel) = (plane / channels, plane % channels);
            let sums = &sums[(channel * batch + image) * pixels..][..pixels];
            let residual = residual.map(|residual| &residual[(first * channels + plane) * pixels..][..pixels]);
            rounded(&finish, channel, sums, residual, y);
        });
    }
    y
}

/// Returns the pixels at which the kernel of one element is applied.
fn strided<'a>(x: &'a [u16], conv: &Conv2d) -> Cow<'a, [u16]> {
    let Conv2d { height, width, stride: [down, right], .. } = *conv;
    if [down, right] == [1, 1] {
        return Cow::Borrowed(x);
    }
    let [rows, columns] = conv.output();
    let planes = x.len() / (height * width);
    Cow::Owned(by_chunks(planes * rows * columns, rows * columns, |plane, out| {
        for (row, out) in out.chunks_exact_mut(columns).enumerate() {
            let line = &x[(plane * height + row * down) * width..][..width];
            out.iter_mut().zip(line.iter().step_by(right)).for_each(|(out, x)| *out = *x);
        }
    }))
}

/// Applies the epilogue to sums of one channel, and rounds the results to bf16.
fn rounded(of_channel: &Finish<'_>, channel: usize, sums: &[f32], residual: Option<&[u16]>, y: &mut [u16]) {
    let (mut wide, mut wide_residual) = ([0.0; PIECE], [0.0; PIECE]);
    for (i, y) in y.chunks_mut(PIECE).enumerate() {
        let (start, len) = (i * PIECE, y.len());
        let (wide, wide_residual) = (&mut wide[..len], &mut wide_residual[..len]);
        let residual = residual.map(|residual| {
            widen_part(HalfFormat::Bf16, &residual[start..][..len], wide_residual);
            &*wide_residual
        });
        finish(&sums[start..][..len], [len, len], of_channel.factors(channel), residual, of_channel.relu, wide);
        narrow_part(HalfFormat::Bf16, wide, y);
    }
}
