//! Packing of the inputs of output pixels into panels of columns (im2col).

use super::geometry::{Band, Im2colGeometry, copy};
use crate::{
    dispatch::{prefetch, vectorized},
    matmul::{NR, PanelRows},
};

/// Consecutive output pixels of one grid row in one panel.
struct Run {
    /// Panel column of the first pixel.
    column: usize,
    /// Source index of the first channel for a tap with offset 0.
    at: usize,
    len: usize,
}

/// Some output pixels of all images, one grid after another, and the source of their inputs: windows, or the images
/// themselves for a pointwise convolution.
pub(super) struct OutputPixels<'a> {
    geometry: &'a Im2colGeometry,
    /// Number of channels of an image.
    channels: usize,
    /// Bands of the grids that contain the output pixels.
    bands: Vec<Band>,
    runs: Vec<Run>,
    /// First run of each panel, and the end.
    panels: Vec<usize>,
    /// Distance from one channel to the next in the windows of all bands, in elements.
    window: usize,
    offsets: Vec<usize>,
}

impl<'a> OutputPixels<'a> {
    /// Takes `count` output pixels from `first` on, of images with `channels` channels, in panels of `width`.
    pub fn new(geometry: &'a Im2colGeometry, channels: usize, first: usize, count: usize, width: usize) -> Self {
        let (each, columns) = (geometry.output_pixels(), geometry.grid[1]);
        let offsets = geometry.offsets();
        let mut pixels = Self { geometry, channels, bands: vec![], runs: vec![], panels: vec![0], window: 0, offsets };
        let (mut at, end, mut base) = (first, first + count, 0);
        while at < end {
            let (image, pixel) = (at / each, at % each);
            let (row, column) = (pixel / columns, pixel % columns);
            if pixels.bands.last().is_none_or(|band| band.image != image) {
                let rows = ((end - image * each).min(each) - 1) / columns - row + 1;
                base = if geometry.pointwise { image * channels * each } else { pixels.window };
                pixels.bands.push(Band { image, row, rows });
                pixels.window += geometry.channel(rows);
            }
            let from = if geometry.pointwise { 0 } else { pixels.bands[pixels.bands.len() - 1].row };
            let in_panel = (at - first) % width;
            let len = (columns - column).min(width - in_panel).min(end - at);
            pixels.runs.push(Run { column: in_panel, at: base + (row - from) * geometry.pitch() + column, len });
            at += len;
            if (at - first).is_multiple_of(width) || at == end {
                pixels.panels.push(pixels.runs.len());
            }
        }
        pixels
    }

    /// Returns the number of panels.
    pub fn count(&self) -> usize {
        self.panels.len() - 1
    }

    /// Returns the distance from one panel to the next, in rows: one more than a panel has, because a copy may write beyond
    /// the end.
    pub fn pitch(&self, channels: usize) -> usize {
        channels * self.offsets.len() + 1
    }

    /// Packs some channels into panels. The rows of each panel are the taps of each channel.
    pub fn pack(&self, x: &[f32], channels: [usize; 2], window: &mut Vec<f32>, panels: &mut PanelRows) {
        let (source, step) = self.source(x, channels, window);
        panels.grow(self.pitch(channels[1]) * self.count());
        pack(self, source, step, channels[1], panels);
    }

    /// Writes some channels as rows, one per tap of each channel.
    pub fn rows(&self, x: &[f32], channels: [usize; 2], window: &mut Vec<f32>, rows: &mut Vec<f32>) {
        let (source, step) = self.source(x, channels, window);
        let len: usize = self.runs.iter().map(|run| run.len).sum();
        grow(rows, channels[1] * self.offsets.len() * len + NR, 0.0);
        lay(self, source, step, channels[1], rows, len);
    }

    /// Returns the source of some channels, and the distance from one channel to the next, in elements.
    fn source<'b>(&self, x: &'b [f32], [first, channels]: [usize; 2], window: &'b mut Vec<f32>) -> (&'b [f32], usize) {
        let plane = self.geometry.plane[0] * self.geometry.plane[1];
        if self.geometry.pointwise {
            return (&x[first * plane..], plane);
        }
        grow(window, self.window * channels + NR, 0.0);
        for c in 0..channels {
            let mut at = c * self.window;
            for band in &self.bands {
                let from = (band.image * self.channels + first + c) * plane;
                self.geometry.window(*band, &x[from..from + plane], &mut window[at..]);
                at += self.geometry.channel(band.rows);
            }
        }
        (window, self.window)
    }
}

/// Extends the buffer to at least `len` elements.
pub(super) fn grow<T: Clone>(buffer: &mut Vec<T>, len: usize, value: T) {
    if buffer.len() < len {
        buffer.resize(len, value);
    }
}

vectorized! {
    fn pack<_FUSED>(
        pixels: &OutputPixels<'_>, source: &[f32], channel: usize, channels: usize, panels: &mut [[f32; NR]],
    ) {
        let (pitch, taps) = (pixels.pitch(channels) * NR, pixels.offsets.len());
        let panels = panels.as_flattened_mut();
        for c in 0..channels {
            for panel in 0..pixels.count() {
                let runs = &pixels.runs[pixels.panels[panel]..pixels.panels[panel + 1]];
                let mut to = panel * pitch + c * taps * NR;
                for offset in &pixels.offsets {
                    for run in runs {
                        let from = c * channel + run.at + offset;
                        // The next channel is too far away for the hardware prefetcher.
                        prefetch(source.as_ptr().wrapping_add(from + channel));
                        copy(source, from, panels, to + run.column);
                    }
                    to += NR;
                }
            }
        }
    }
}

vectorized! {
    fn lay<_FUSED>(
        pixels: &OutputPixels<'_>, source: &[f32], channel: usize, channels: usize, rows: &mut [f32], len: usize,
    ) {
        for c in 0..channels {
            for (tap, offset) in pixels.offsets.iter().enumerate() {
                let mut to = (c * pixels.offsets.len() + tap) * len;
                for run in &pixels.runs {
                    let from = c * channel + run.at + offset;
                    let mut done = 0;
                    while done < run.len {
                        copy(source, from + done, rows, to + done);
                        done += NR;
                    }
                    to += run.len;
                }
            }
        }
    }
}
