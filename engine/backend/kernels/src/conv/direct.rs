//! Convolutions of few channels, which read the images without packing.

use super::{
    correlate::{KC, MC},
    correlation::{Correlation, Scratch, Task},
    finish::Finish,
    geometry::Band,
    in_place::Rows,
    pack::grow,
};
use crate::matmul::NR;

/// Maximum number of rows for which the images are read in place.
const ROWS: usize = 64;
/// Maximum number of grid rows that are processed at once in this case.
const BAND: usize = 16;

impl Correlation<'_> {
    /// Returns true if the output pixels of a line read the window in place. With few rows, copying inputs into panels takes
    /// longer than the wasted products between the lines.
    pub fn direct(&self) -> bool {
        self.geometry.lines() && self.rows <= ROWS && self.channels * self.geometry.taps.len() <= 2 * KC
    }

    /// Computes a band of rows of the grid of one image.
    pub fn band(&self, x: &[f32], rows: &[Rows], finish: &Finish<'_>, task: &mut Task<'_>, scratch: &mut Scratch) {
        let Scratch { window, sums, offsets, .. } = scratch;
        let (each, columns) = (self.geometry.output_pixels(), self.geometry.grid[1]);
        let [from, to] = task.pixels;
        let band = Band { image: from / each, row: from % each / columns, rows: (to - from) / columns };
        let (pitch, channel) = (self.geometry.pitch(), self.geometry.channel(band.rows));
        let count = (band.rows * pitch).div_ceil(NR);
        let plane = self.geometry.plane[0] * self.geometry.plane[1];
        // With some slack, because the last panel extends beyond the last line.
        grow(window, self.channels * channel + 2 * NR + pitch, 0.0);
        let first = (band.image * self.groups + task.group) * self.channels;
        let taps = self.geometry.offsets();
        offsets.clear();
        for c in 0..self.channels {
            self.geometry.window(band, &x[(first + c) * plane..][..plane], &mut window[c * channel..]);
            offsets.extend(taps.iter().map(|tap| c * channel + tap));
        }
        let rows = &rows[task.group * self.rows.div_ceil(MC)..];
        sums.grow(MC.min(self.rows) * count);
        for (row, rows) in (0..self.rows).step_by(MC).zip(rows) {
            let height = MC.min(self.rows - row);
            rows.multiply([0, height], 0, window, offsets, count, sums);
            for (i, sums) in sums.chunks_exact(count).take(height).enumerate() {
                let channel = task.group * self.rows + row + i;
                let at = (band.image * self.groups * self.rows + channel) * each + from % each;
                finish.apply(sums.as_flattened(), [columns, pitch], channel, at, task.out[row + i]);
                task.written += task.out[row + i].len();
            }
        }
    }

    /// Returns the packed matrix: the blocks of rows of each group in turn.
    pub fn blocks(&self) -> Vec<Rows> {
        let stride = self.channels * self.geometry.taps.len();
        let first = |group: usize| (0..self.rows).step_by(MC).map(move |row| (group, row));
        let block = |(group, row): (usize, usize)| {
            let height = MC.min(self.rows - row);
            Rows::new(&self.matrix[(group * self.rows + row) * stride..][..height * stride], height, stride)
        };
        (0..self.groups).flat_map(first).map(block).collect()
    }

    /// Returns the boundaries of the bands of lines: enough bands per image to occupy `wanted` threads.
    pub fn bands(&self, wanted: usize) -> Vec<usize> {
        let [rows, columns] = self.geometry.grid;
        // Not so few lines per band that most lines are read for several bands.
        let bands = (wanted * 2).div_ceil(self.batch).max(rows.div_ceil(BAND)).min(rows.div_ceil(4));
        let line = |i: usize| (i / bands * rows + i % bands * rows / bands) * columns;
        (0..=self.batch * bands).map(line).collect()
    }
}
