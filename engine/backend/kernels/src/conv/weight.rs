use rayon::prelude::*;
use std::cell::Cell;

use super::{
    Conv2d,
    geometry::{Band, Im2colGeometry},
    pack::{OutputPixels, grow},
    product::product,
    transpose::transpose,
};
use crate::{
    determinism::deterministic,
    matmul::{Layout, NR, PanelRows, pack},
};

/// Number of output pixels that are processed at once.
const KC: usize = 384;
/// Minimum number of pixels of a plane for which reading parts of it in place is worthwhile.
const PLANE: usize = 128;
/// Rows that stay in the second-level cache while all panels are processed.
const MC: usize = 48;
/// Maximum number of shares, and minimum number of output pixels per share, in deterministic mode.
const SHARES: usize = 8;
const SHARE: usize = 8 * KC;

#[derive(Default)]
struct Scratch {
    window: Vec<f32>,
    rows: Vec<f32>,
    panels: PanelRows,
    starts: Vec<usize>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

/// Writes the gradient of a convolution with respect to its weights to `out`, from the gradient of its output.
///
/// The gradient is the product of the im2col matrix, with a row per weight of a channel, and the gradients of the output
/// pixels, with a column per output channel.
///
/// # Panics
/// If the sizes do not match.
pub fn conv2d_backward_weight(x: &[f32], grad: &[f32], conv: &Conv2d, out: &mut [f32]) {
    conv.check(Some(x.len()), Some(out.len()), Some(grad.len()));
    if out.is_empty() {
        return;
    }
    let (geometry, threads) = (conv.geometry(), rayon::current_num_threads());
    let (taps, pixels) = (geometry.taps.len(), conv.batch * geometry.output_pixels());
    let (channels, columns) = (conv.channels_in / conv.groups, conv.channels_out / conv.groups);
    let panels = columns.div_ceil(NR);
    // Each thread takes some channels. If there are too few, threads take some output pixels, and the results are summed in
    // the order of the pixels: the sums depend only on the shares of pixels.
    let wanted = threads.div_ceil(conv.groups);
    let by_channel = channels * taps >= 256 * wanted;
    let (parts, shares) = if deterministic() {
        let shares = if channels * taps >= 256 * SHARES { 1 } else { (pixels / SHARE).clamp(1, SHARES) };
        (wanted.div_ceil(shares).min(channels), shares)
    } else if by_channel {
        (wanted, 1)
    } else {
        (1, wanted.min(pixels.div_ceil(KC)).max(1))
    };
    let edges: Vec<usize> = (0..=parts).map(|i| channels * i / parts).collect();
    let lines = in_lines(&geometry);
    let units = if lines { conv.batch * geometry.grid[0] } else { pixels };
    let ends: Vec<usize> = (0..=shares).map(|i| units * i / shares).collect();
    let mut sums: Vec<PanelRows> = (0..conv.groups * parts * shares).map(|_| PanelRows::new()).collect();
    sums.par_iter_mut().enumerate().for_each(|(task, sums)| {
        let (share, part, group) = (task % shares, task / shares % parts, task / shares / parts);
        let mut scratch = SCRATCH.take();
        let task = Task {
            conv,
            geometry: &geometry,
            lines,
            group,
            channels: [edges[part], edges[part + 1]],
            share: [ends[share], ends[share + 1]],
        };
        *sums = task.run(x, grad, &mut scratch);
        SCRATCH.set(scratch);
    });
    // As many output channels at a time as a panel holds.
    let depth = channels * taps;
    let tasks: Vec<(usize, &mut [f32])> =
        out.chunks_exact_mut(columns * depth).flat_map(|group| group.chunks_mut(NR * depth)).enumerate().collect();
    tasks.into_par_iter().for_each(|(task, out)| {
        let (group, panel) = (task / panels, task % panels);
        for part in 0..parts {
            for share in 0..shares {
                let sums = &sums[(group * parts + part) * shares + share];
                let sizes = [sums.len() / panels, out.len() / depth];
                // A part without channels has no sums.
                let columns = sums.as_flattened().get(panel * NR..).unwrap_or_default();
                transpose(columns, panels * NR, sizes, &mut out[edges[part] * taps..], depth, share > 0);
            }
        }
    });
}

/// Returns true if windows are read in place, including the elements between the lines. The gradients are 0 there, but times
/// infinity or NaN they would give NaN.
fn in_lines(geometry: &Im2colGeometry) -> bool {
    geometry.lines() && !deterministic()
}

/// Some lines or output pixels, and some channels of one group.
struct Task<'a> {
    conv: &'a Conv2d,
    geometry: &'a Im2colGeometry,
    /// If true, shares consist of lines; see [`in_lines`].
    lines: bool,
    group: usize,
    channels: [usize; 2],
    share: [usize; 2],
}

impl Task<'_> {
    /// Returns the gradients of each weight of a channel for all output channels, in panels.
    fn run(&self, x: &[f32], grad: &[f32], scratch: &mut Scratch) -> PanelRows {
        let panels = (self.conv.channels_out / self.conv.groups).div_ceil(NR);
        let rows = (self.channels[1] - self.channels[0]) * self.geometry.taps.len() * panels;
        let mut sums = PanelRows::zeroed(rows);
        if self.lines {
            self.add_lines(x, grad, scratch, &mut sums);
        } else if self.geometry.pointwise && self.geometry.output_pixels() >= PLANE {
            self.add_planes(x, grad, scratch, &mut sums);
        } else {
            self.add_places(x, grad, scratch, &mut sums);
        }
        sums
    }

    /// Adds the gradients, reading the planes in place (pointwise convolutions).
    fn add_planes(&self, x: &[f32], grad: &[f32], scratch: &mut Scratch, sums: &mut [[f32; NR]]) {
        let Scratch { panels, starts, .. } = scratch;
        let (conv, [first, last], each) = (self.conv, self.channels, self.geometry.output_pixels());
        let (count, channels) = ((conv.channels_out / conv.groups).div_ceil(NR), conv.channels_in / conv.groups);
        starts.clear();
        starts.extend((0..MC).map(|channel| channel * each));
        let mut from = self.share[0];
        while from < self.share[1] {
            let (image, pixel) = (from / each, from % each);
            // The rest of the plane, in parts as even as possible.
            let left = (each - pixel).min(self.share[1] - from);
            let depth = left.div_ceil(left.div_ceil(KC + KC / 8));
            panels.grow(depth * count);
            self.transpose(grad, image, pixel, depth, panels, depth);
            for channel in (first..last).step_by(MC) {
                let (some, plane) =
                    (MC.min(last - channel), image * conv.channels_in + self.group * channels + channel);
                let sums = &mut sums[(channel - first) * count..][..some * count];
                product(&x[plane * each + pixel..], &starts[..some], panels, depth, depth, count, sums, count, true);
            }
            from += depth;
        }
    }

    /// Adds the gradients, with the windows copied into contiguous rows.
    fn add_places(&self, x: &[f32], grad: &[f32], scratch: &mut Scratch, sums: &mut [[f32; NR]]) {
        let Scratch { window, rows, panels, starts } = scratch;
        let (conv, taps, [first, last]) = (self.conv, self.geometry.taps.len(), self.channels);
        let (count, each) = ((conv.channels_out / conv.groups).div_ceil(NR), self.geometry.output_pixels());
        let block = (MC / taps).max(1);
        for from in (self.share[0]..self.share[1]).step_by(KC) {
            let depth = KC.min(self.share[1] - from);
            panels.grow(depth * count);
            let mut done = 0;
            while done < depth {
                let (image, pixel) = ((from + done) / each, (from + done) % each);
                let len = (each - pixel).min(depth - done);
                self.transpose(grad, image, pixel, len, &mut panels[done..], depth);
                done += len;
            }
            let pixels = OutputPixels::new(self.geometry, conv.channels_in, from, depth, usize::MAX);
            starts.clear();
            starts.extend((0..block * taps).map(|row| row * depth));
            for channel in (first..last).step_by(block) {
                let some = block.min(last - channel);
                pixels.rows(x, [self.group * (conv.channels_in / conv.groups) + channel, some], window, rows);
                let sums = &mut sums[(channel - first) * taps * count..][..some * taps * count];
                product(rows, &starts[..some * taps], panels, depth, depth, count, sums, count, true);
            }
        }
    }

    /// Adds the gradients, reading the windows in place, including the elements between the lines, where the gradients are 0.
    fn add_lines(&self, x: &[f32], grad: &[f32], scratch: &mut Scratch, sums: &mut [[f32; NR]]) {
        let Scratch { window, panels, starts, .. } = scratch;
        let (conv, geometry, [first, last]) = (self.conv, self.geometry, self.channels);
        let count = (conv.channels_out / conv.groups).div_ceil(NR);
        let ([lines, columns], pitch, offsets) = (geometry.grid, geometry.pitch(), geometry.offsets());
        let (block, taps) = ((MC / offsets.len()).max(1), offsets.len());
        let plane = geometry.plane[0] * geometry.plane[1];
        let mut line = self.share[0];
        while line < self.share[1] {
            let (image, row) = (line / lines, line % lines);
            let rows = (KC / pitch).max(1).min(lines - row).min(self.share[1] - line);
            // Up to the last pixel of the last line: later elements do not belong to this window.
            let (band, depth) = (Band { image, row, rows }, (rows - 1) * pitch + columns);
            panels.grow(depth * count);
            for i in 0..rows {
                let panels = &mut panels[i * pitch..];
                self.transpose(grad, image, (row + i) * columns, columns, panels, depth);
                if i + 1 < rows {
                    for panel in panels.chunks_mut(depth).take(count) {
                        panel[columns..pitch].fill([0.0; NR]);
                    }
                }
            }
            let channel = geometry.channel(rows);
            grow(window, block * channel + 2 * NR + pitch, 0.0);
            starts.clear();
            starts.extend((0..block).flat_map(|c| offsets.iter().map(move |offset| c * channel + offset)));
            for from in (first..last).step_by(block) {
                let some = block.min(last - from);
                for c in 0..some {
                    let at = image * conv.channels_in + self.group * (conv.channels_in / conv.groups) + from + c;
                    geometry.window(band, &x[at * plane..][..plane], &mut window[c * channel..]);
                }
                let sums = &mut sums[(from - first) * taps * count..][..some * taps * count];
                product(window, &starts[..some * taps], panels, depth, depth, count, sums, count, true);
            }
            line += rows;
        }
    }

    /// Packs the gradients of output pixels of one image, with a row per pixel and a column per channel, into panels that are
    /// `pitch` apart.
    fn transpose(&self, grad: &[f32], image: usize, pixel: usize, len: usize, panels: &mut [[f32; NR]], pitch: usize) {
        let (each, groups) = (self.geometry.output_pixels(), self.conv.groups);
        let columns = self.conv.channels_out / groups;
        for (panel, column) in (0..columns).step_by(NR).enumerate() {
            let first = (image * groups + self.group) * columns + column;
            let panel = &mut panels[panel * pitch..][..len];
            let rows = Layout { stride: each, transposed: true };
            pack(&grad[first * each + pixel..], rows, 0, 0, columns - column, panel);
        }
    }
}
