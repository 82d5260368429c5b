//! Images of bf16 as planes in which each row of the column matrix (im2col) is a run of adjacent elements.

use std::borrow::Cow;

use super::geometry::Im2colGeometry;
use crate::fresh::by_chunks;

/// Layout of planes. There is a plane for each channel and each pair of residues modulo the stride. It holds the elements with
/// these residues of all images, with zeros around each image. So the output pixels of all images, and the gaps between them,
/// are at the same positions of each plane, and a tap is a distance from them.
///
/// Images and lines share zeros where the right and lower border of one can be the left and upper border of the next.
pub(super) struct Planes<'a> {
    geometry: &'a Im2colGeometry,
    batch: usize,
    /// Distance from one image to the next, in lines, and from one line to the next.
    pitch: [usize; 2],
}

impl<'a> Planes<'a> {
    pub fn new(geometry: &'a Im2colGeometry, batch: usize) -> Self {
        let pitch = [0, 1].map(|i| {
            let (grid, window) = (geometry.grid[i], geometry.grid[i] + geometry.reach[i]);
            let phases = geometry.residues[i].iter().map(|&residue| inside(geometry, i, residue));
            let (zeros, end) = phases.fold((usize::MAX, 0), |(zeros, end), [from, to]| (zeros.min(from), end.max(to)));
            window.min(grid.max(end).max(window.saturating_sub(zeros)))
        });
        Self { geometry, batch, pitch }
    }

    /// Returns the number of positions of a plane.
    pub fn positions(&self) -> usize {
        self.batch * self.pitch[0] * self.pitch[1]
    }

    /// Calls a function for the values of the output pixels among values of a channel from a position on: with the image, the
    /// index of the first pixel, and the values of adjacent pixels. Moves values, to remove those in the gaps.
    #[inline(always)]
    pub fn for_pixels(&self, position: usize, values: &mut [f32], mut f: impl FnMut(usize, usize, &[f32])) {
        let ([rows, columns], [lines, pitch]) = (self.geometry.grid, self.pitch);
        let mut done = 0;
        while done < values.len() {
            let (image, at) = ((position + done) / (lines * pitch), (position + done) % (lines * pitch));
            // The rest of the image.
            let values = &mut values[done..];
            let len = values.len().min(lines * pitch - at);
            done += len;
            let (first, column) = (at / pitch, at % pitch);
            let pixel = first * columns + column.min(columns);
            let mut kept = 0;
            if pitch == columns {
                kept = len.min((rows * columns).saturating_sub(at));
            } else {
                let (mut from, mut column) = (0, column);
                for _ in first..rows {
                    if from >= len {
                        break;
                    }
                    let some = columns.saturating_sub(column).min(len - from);
                    values.copy_within(from..from + some, kept);
                    kept += some;
                    from += pitch - column;
                    column = 0;
                }
            }
            if kept > 0 {
                f(image, pixel, &values[..kept]);
            }
        }
    }

    /// Returns true if there are positions without an output pixel.
    pub fn has_gaps(&self) -> bool {
        self.pitch != self.geometry.grid
    }

    /// Returns the first element of each row of the column matrix: for each channel and tap.
    pub fn starts(&self, channels: usize) -> Vec<usize> {
        let [down, right] = [0, 1].map(|i| self.geometry.residues[i].len());
        let channel = |channel: usize| {
            self.geometry.taps.iter().map(move |tap| {
                let [[lines, y], [columns, x]] = self.geometry.steps(tap);
                ((channel * down + y) * right + x) * self.positions() + lines * self.pitch[1] + columns
            })
        };
        (0..channels).flat_map(channel).collect()
    }

    /// Copies images into planes.
    pub fn of<'b>(&self, x: &'b [u16], channels: usize) -> Cow<'b, [u16]> {
        let Im2colGeometry { plane: [height, width], stride, low, residues, reach, pointwise, .. } = self.geometry;
        if *pointwise && self.batch == 1 {
            return Cow::Borrowed(x);
        }
        let [lines, pitch] = self.pitch;
        let ([down, right], image) = (residues.each_ref().map(Vec::len), lines * pitch);
        let planes = channels * down * right * self.batch;
        // The last run ends behind the last plane.
        let behind = reach[0] * pitch + reach[1];
        let sides = residues.each_ref().map(Vec::as_slice);
        Cow::Owned(by_chunks(planes * image + behind, image, |i, out| {
            let (plane, batch) = (i / self.batch, i % self.batch);
            let (channel, y, x_at) = (plane / right / down, plane / right % down, plane % right);
            if i >= planes {
                return;
            }
            let source = &x[(batch * channels + channel) * height * width..][..height * width];
            let [[from, to], [left, end]] = [(0, y), (1, x_at)].map(|(i, at)| inside(self.geometry, i, sides[i][at]));
            if left >= end.min(pitch) {
                return;
            }
            for line in from..to.min(lines) {
                let row = ((line * stride[0] + sides[0][y]) as isize + low[0]) as usize;
                let first = ((left * stride[1] + sides[1][x_at]) as isize + low[1]) as usize;
                let out = &mut out[line * pitch + left..line * pitch + end.min(pitch)];
                every(&source[row * width..][..*width], first, stride[1], out);
            }
        }))
    }

    /// Copies images of output pixels to the positions of the pixels, with zeros in the gaps.
    pub fn spread<'b>(&self, grad: &'b [u16], channels: usize) -> Cow<'b, [u16]> {
        if self.batch == 1 && !self.has_gaps() {
            return Cow::Borrowed(grad);
        }
        let ([rows, columns], image) = (self.geometry.grid, self.pitch[0] * self.pitch[1]);
        Cow::Owned(by_chunks(channels * self.positions(), image, |i, out| {
            let (channel, image) = (i / self.batch, i % self.batch);
            let source = &grad[(image * channels + channel) * rows * columns..][..rows * columns];
            for (out, line) in out.chunks_mut(self.pitch[1]).zip(source.chunks_exact(columns)) {
                out[..columns].copy_from_slice(line);
            }
        }))
    }
}

/// Returns the first line (axis 0) or column (axis 1) of a plane that is inside of the image, and the end.
fn inside(geometry: &Im2colGeometry, axis: usize, residue: usize) -> [usize; 2] {
    let (first, stride) = (residue as isize + geometry.low[axis], geometry.stride[axis]);
    let from = ((-first).max(0) as usize).div_ceil(stride);
    let to = ((geometry.plane[axis] as isize - first).max(0) as usize).div_ceil(stride);
    [from, to.max(from)]
}

/// Copies every `step`th element of a row from `first` on.
fn every(row: &[u16], first: usize, step: usize, out: &mut [u16]) {
    match step {
        1 => out.copy_from_slice(&row[first..][..out.len()]),
        _ => out.iter_mut().zip(row[first..].iter().step_by(step)).for_each(|(out, x)| *out = *x),
    }
}
