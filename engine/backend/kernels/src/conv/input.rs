use rayon::prelude::*;

use super::{Conv2d, Epilogue, Finish, correlation::Correlation, geometry::Im2colGeometry, transpose::transpose};
use crate::fresh::by_chunks;

/// Number of matrix rows that are gathered from the weights at once: the number of elements of a cache line.
const LINES: usize = 16;

/// Returns the gradient of a convolution with respect to its input, from that of its output.
///
/// # Panics
/// If the sizes do not match.
pub fn conv2d_backward_input(weight: &[f32], grad: &[f32], conv: &Conv2d) -> Vec<f32> {
    conv.check(None, Some(weight.len()), Some(grad.len()));
    by_remainders(conv, |geometry, elements| {
        let (channels, rows) = (conv.channels_out / conv.groups, conv.channels_in / conv.groups);
        let matrix = if conv.kernel == [1, 1] && conv.groups == 1 {
            let depth = channels;
            by_chunks(rows * depth, LINES * depth, |chunk, lines| {
                transpose(&weight[chunk * LINES..], rows, [channels, lines.len() / depth], lines, depth, false);
            })
        } else {
            gathered(weight, conv, elements)
        };
        let correlation =
            Correlation { batch: conv.batch, groups: conv.groups, channels, rows, geometry, matrix: &matrix };
        correlation.run(grad, &Finish::new(Epilogue::default(), conv.channels_in))
    })
}

/// Returns the gradient of the input. `correlate` correlates the gradient of the output with the given elements of the kernel,
/// one for each tap.
///
/// Input pixels whose coordinates have the same remainders modulo the stride use the same kernel elements. For each pair of
/// remainders, the gradient is a convolution of the output's gradient with a part of the kernel.
pub(super) fn by_remainders<T: Copy + Default + Send + Sync>(
    conv: &Conv2d,
    correlate: impl Fn(Im2colGeometry, &[usize]) -> Vec<T>,
) -> Vec<T> {
    let inputs = conv.elements()[0];
    // Pixels that no kernel element reaches stay 0.
    let of_remainders = |first| {
        let (geometry, elements) = remainders(conv, first)?;
        Some(correlate(geometry, &elements))
    };
    if conv.stride == [1, 1] {
        return of_remainders([0, 0]).unwrap_or_else(|| vec![T::default(); inputs]);
    }
    let (plane, [down, right]) = (conv.height * conv.width, conv.stride);
    let mut out = vec![T::default(); inputs];
    if plane == 0 {
        return out;
    }
    for first in (0..down).flat_map(|y| (0..right).map(move |x| [y, x])) {
        let [rows, columns] = grid(conv, first);
        if rows * columns == 0 {
            continue;
        }
        let Some(part) = of_remainders(first) else { continue };
        out.par_chunks_mut(plane).enumerate().for_each(|(i, out)| {
            let part = &part[i * rows * columns..][..rows * columns];
            for row in 0..rows {
                let out = out[(first[0] + row * down) * conv.width..][..conv.width].iter_mut().skip(first[1]);
                let values = part[row * columns..][..columns].iter();
                out.step_by(right).zip(values).for_each(|(out, value)| *out = *value);
            }
        });
    }
    out
}

/// Returns the numbers of rows and columns of the input pixels with these remainders.
fn grid(conv: &Conv2d, first: [usize; 2]) -> [usize; 2] {
    [0, 1].map(|i| [conv.height, conv.width][i].saturating_sub(first[i]).div_ceil(conv.stride[i]))
}

/// Returns the geometry of the gradient of these pixels, and the kernel element of each tap; `None` if no kernel element
/// reaches them.
fn remainders(conv: &Conv2d, first: [usize; 2]) -> Option<(Im2colGeometry, Vec<usize>)> {
    let Conv2d { kernel, stride, padding, dilation, .. } = *conv;
    // Output pixel from which a kernel element reaches the first input pixel; `None` if there is none.
    let pixel = |i: usize, at: usize| {
        let from = (first[i] + padding[i]) as isize - (at * dilation[i]) as isize;
        (from % stride[i] as isize == 0).then(|| from / stride[i] as isize)
    };
    let (mut taps, mut elements) = (vec![], vec![]);
    for element in 0..kernel[0] * kernel[1] {
        if let (Some(y), Some(x)) = (pixel(0, element / kernel[1]), pixel(1, element % kernel[1])) {
            taps.push([y, x]);
            elements.push(element);
        }
    }
    let geometry = |taps| Im2colGeometry::new(conv.output(), grid(conv, first), [1, 1], taps);
    (!taps.is_empty()).then(|| (geometry(taps), elements))
}

/// Returns some kernel elements as a matrix with a row for each input channel, `[groups, channels_in, channels_out, elements]`
/// with the channels of a group.
pub(super) fn gathered<T: Copy + Default + Send + Sync>(weight: &[T], conv: &Conv2d, elements: &[usize]) -> Vec<T> {
    let (channels, rows) = (conv.channels_out / conv.groups, conv.channels_in / conv.groups);
    let (each, depth) = (conv.kernel[0] * conv.kernel[1], channels * elements.len());
    // Several rows at once, because the elements that they gather are adjacent in memory.
    by_chunks(conv.groups * rows * depth, LINES * depth, |chunk, lines| {
        let first =
            |line: usize| ((chunk * LINES + line) / rows * channels * rows + (chunk * LINES + line) % rows) * each;
        let firsts: [usize; LINES] = std::array::from_fn(first);
        for channel in 0..channels {
            for (line, first) in lines.chunks_exact_mut(depth).zip(firsts) {
                let kernel = &weight[first + channel * rows * each..][..each];
                let line = &mut line[channel * elements.len()..][..elements.len()];
                line.iter_mut().zip(elements).for_each(|(to, &element)| *to = kernel[element]);
            }
        }
    })
}
