use rayon::prelude::*;

use super::{Conv2d, Epilogue, Finish, correlation::Correlation, geometry::Im2colGeometry, transpose::transpose};

/// Number of matrix rows that are gathered from the weights at once: the number of elements of a cache line.
const LINES: usize = 16;

/// Returns the gradient of a convolution with respect to its input, from that of its output.
///
/// Input pixels whose coordinates have the same remainders modulo the stride use the same kernel elements. For each pair of
/// remainders, the gradient is a convolution of the output's gradient with a part of the kernel.
///
/// # Panics
/// If the sizes do not match.
pub fn conv2d_backward_input(weight: &[f32], grad: &[f32], conv: &Conv2d) -> Vec<f32> {
    conv.check(None, Some(weight.len()), Some(grad.len()));
    let inputs = conv.elements()[0];
    if conv.stride == [1, 1] {
        return remainders(weight, grad, conv, [0, 0]).unwrap_or_else(|| vec![0.0; inputs]);
    }
    let (plane, [down, right]) = (conv.height * conv.width, conv.stride);
    let mut out = vec![0.0; inputs];
    if plane == 0 {
        return out;
    }
    for first in (0..down).flat_map(|y| (0..right).map(move |x| [y, x])) {
        let [rows, columns] = grid(conv, first);
        // Pixels that no kernel element reaches stay 0.
        let Some(part) = remainders(weight, grad, conv, first) else { continue };
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

/// Returns the gradient of these pixels; `None` if no kernel element reaches them.
fn remainders(weight: &[f32], grad: &[f32], conv: &Conv2d, first: [usize; 2]) -> Option<Vec<f32>> {
    let Conv2d { kernel, stride, padding, dilation, groups, .. } = *conv;
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
    if taps.is_empty() {
        return None;
    }
    let (channels, rows, each) = (conv.channels_out / groups, conv.channels_in / groups, kernel[0] * kernel[1]);
    let mut matrix = vec![0.0; groups * rows * channels * taps.len()];
    let depth = channels * taps.len();
    // Several rows at once, because the elements that they gather are adjacent in memory.
    matrix.par_chunks_mut((LINES * depth).max(1)).enumerate().for_each(|(chunk, lines)| {
        if each == 1 && groups == 1 {
            return transpose(&weight[chunk * LINES..], rows, [channels, lines.len() / depth], lines, depth, false);
        }
        let first =
            |line: usize| ((chunk * LINES + line) / rows * channels * rows + (chunk * LINES + line) % rows) * each;
        let firsts: [usize; LINES] = std::array::from_fn(first);
        for channel in 0..channels {
            for (line, first) in lines.chunks_exact_mut(depth).zip(firsts) {
                let kernel = &weight[first + channel * rows * each..][..each];
                let line = &mut line[channel * elements.len()..][..elements.len()];
                line.iter_mut().zip(&elements).for_each(|(to, &element)| *to = kernel[element]);
            }
        }
    });
    let geometry = Im2colGeometry::new(conv.output(), grid(conv, first), [1, 1], taps);
    let correlation = Correlation { batch: conv.batch, groups, channels, rows, geometry, matrix: &matrix };
    Some(correlation.run(grad, &Finish::new(Epilogue::default(), conv.channels_in)))
}
