//! The correlation that implements all convolutions, divided among threads.

use rayon::prelude::*;
use std::{cell::Cell, mem::MaybeUninit};

#[cfg(target_arch = "x86_64")]
use super::pointwise::Pointwise;
use super::{
    correlation::{Correlation, Scratch, Task},
    finish::Finish,
    in_place::Rows,
    pack::OutputPixels,
    product::{product, product_of_column},
    winograd::Winograd,
};
use crate::{
    determinism::deterministic,
    matmul::{NR, has_avx512},
};

/// Maximum number of panel rows that are processed at once (KC), unless a single channel has more.
pub(super) const KC: usize = 384;
/// Panel rows that a task holds at once: 256 KiB.
const HELD: usize = 4096;
/// Factor of `HELD` with AVX-512 microkernels, which need not read panels from the first-level cache.
const WIDER: usize = 2;
/// Maximum number of columns of the last panel for which computing each column separately is faster than the whole panel.
const FEW: usize = 6;
/// Matrix rows that stay in the second-level cache while all panels of a task are processed (MC).
pub(super) const MC: usize = 48;

/// Algorithm of a correlation.
enum Algorithm {
    /// Winograd's minimal filtering, with a quarter of the products.
    Winograd(Winograd),
    /// Reads the window in place, with these packed blocks of the matrix.
    InPlace(Vec<Rows>),
    /// Copies the inputs of the output pixels into packed panels (im2col).
    Im2col,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

impl Correlation<'_> {
    /// Returns the results, `[batch, groups rows, output pixels]`.
    pub fn run(&self, x: &[f32], finish: &Finish<'_>) -> Vec<f32> {
        let len = self.batch * self.groups * self.rows * self.geometry.output_pixels();
        let mut out = Vec::with_capacity(len);
        if len > 0 {
            let written = self.run_in(x, finish, &mut out.spare_capacity_mut()[..len]);
            assert_eq!(written, len, "results of a convolution are missing");
        }
        // SAFETY: `tasks` assigns each output pixel of each row of each image to exactly one task, and the assertion above
        // shows that `len` results were written.
        unsafe { out.set_len(len) };
        out
    }

    /// Writes all results. Returns their number.
    fn run_in(&self, x: &[f32], finish: &Finish<'_>, out: &mut [MaybeUninit<f32>]) -> usize {
        #[cfg(target_arch = "x86_64")]
        if let Some(planes) = Pointwise::new(self) {
            return planes.run(self, x, finish, out);
        }
        let algorithm = self.algorithm();
        let tasks = self.tasks(&algorithm, out).into_par_iter().map(|mut task| {
            let mut scratch = SCRATCH.take();
            match &algorithm {
                Algorithm::Winograd(winograd) => winograd.run(self, x, finish, &mut task, &mut scratch),
                Algorithm::InPlace(blocks) => self.band(x, blocks, finish, &mut task, &mut scratch),
                Algorithm::Im2col => self.part(x, finish, &mut task, &mut scratch),
            }
            SCRATCH.set(scratch);
            task.written
        });
        tasks.sum()
    }

    fn algorithm(&self) -> Algorithm {
        match Winograd::new(self) {
            Some(winograd) => Algorithm::Winograd(winograd),
            None if self.direct() => Algorithm::InPlace(self.blocks()),
            None => Algorithm::Im2col,
        }
    }

    /// Returns the number of channels that are processed at once.
    fn block(&self) -> usize {
        let most = (KC / self.geometry.taps.len().max(1)).max(1);
        self.channels.div_ceil(self.channels.div_ceil(most).max(1)).max(1)
    }

    /// Returns the boundaries of the tasks' output pixels and of their shares of rows.
    fn cuts(&self, algorithm: &Algorithm) -> (Vec<usize>, Vec<usize>) {
        let (each, wanted) = (self.geometry.output_pixels(), rayon::current_num_threads().div_ceil(self.groups));
        let pixels = self.batch * each;
        match algorithm {
            Algorithm::Winograd(winograd) => return winograd.cuts(self, wanted),
            Algorithm::InPlace(_) => return (self.bands(wanted), vec![0, self.rows]),
            Algorithm::Im2col => {}
        }
        let panels = pixels.div_ceil(NR);
        let held = HELD * if has_avx512() { WIDER } else { 1 };
        let held = (held / (self.block() * self.geometry.taps.len()).max(1)).clamp(4, 32);
        // At least one task per thread, and a multiple of the number of threads.
        let few = panels.div_ceil(held);
        let many = few.next_multiple_of(wanted);
        let (columns, shares) = if panels / many < 4 { (few, wanted.min(self.rows)) } else { (many, 1) };
        let ends = (0..=columns).map(|i| (panels * i / columns * NR).min(pixels)).collect();
        (ends, (0..=shares).map(|i| self.rows * i / shares).collect())
    }

    fn tasks<'a>(&self, algorithm: &Algorithm, out: &'a mut [MaybeUninit<f32>]) -> Vec<Task<'a>> {
        let each = self.geometry.output_pixels();
        let (ends, edges) = self.cuts(algorithm);
        let (columns, parts) = (ends.len() - 1, edges.len() - 1);
        let mut tasks = Vec::with_capacity(self.groups * parts * columns);
        for group in 0..self.groups {
            for edge in edges.windows(2) {
                for end in ends.windows(2) {
                    let (rows, pixels) = ([edge[0], edge[1]], [end[0], end[1]]);
                    tasks.push(Task { group, rows, pixels, out: vec![], written: 0 });
                }
            }
        }
        for (at, mut plane) in out.chunks_exact_mut(each).enumerate() {
            let (image, channel) = (at / (self.groups * self.rows), at % (self.groups * self.rows));
            let part = edges.partition_point(|&edge| edge <= channel % self.rows) - 1;
            let first = (channel / self.rows * parts + part) * columns;
            let mut from = image * each;
            let mut column = ends.partition_point(|&end| end <= from) - 1;
            while !plane.is_empty() {
                let len = plane.len().min(ends[column + 1] - from);
                let (head, rest) = plane.split_at_mut(len);
                tasks[first + column].out.push(head);
                (plane, from, column) = (rest, from + len, column + 1);
            }
        }
        tasks
    }

    fn part(&self, x: &[f32], finish: &Finish<'_>, task: &mut Task<'_>, scratch: &mut Scratch) {
        let Scratch { window, panels, sums, column, offsets } = scratch;
        let (taps, [first, last]) = (self.geometry.taps.len(), task.rows);
        let (rows, stride) = (last - first, self.channels * taps);
        let matrix = &self.matrix[(task.group * self.rows + first) * stride..][..rows * stride];
        let [from, to] = task.pixels;
        let pixels = OutputPixels::new(&self.geometry, self.groups * self.channels, from, to - from, NR);
        let count = pixels.count();
        // If the last panel has few columns, each is computed separately, with another summation order. The affected output
        // pixels depend on the batch.
        let few = match (to - from) % NR {
            few if few <= FEW && !deterministic() => few,
            _ => 0,
        };
        let whole = count - few.min(1);
        let block = self.block();
        // The sums of a block of rows can be discarded unless they are accumulated over several blocks of channels.
        let held = if block < self.channels { rows } else { rows.min(MC) };
        sums.grow(held * count);
        offsets.clear();
        offsets.extend((0..rows.min(MC)).map(|row| row * stride));
        // At least one block, because results exist even without channels.
        for channel in (0..self.channels.max(1)).step_by(block) {
            let channels = block.min(self.channels - channel);
            pixels.pack(x, [task.group * self.channels + channel, channels], window, panels);
            for row in (0..rows).step_by(MC) {
                let height = MC.min(rows - row);
                let a = &matrix[row * stride + channel * taps..];
                let sums = &mut sums[if held == rows { row } else { 0 } * count..][..height * count];
                let pitch = pixels.pitch(channels);
                let depth = channels * taps;
                product(a, &offsets[..height], panels, pitch, depth, whole, sums, count, channel > 0);
                for at in 0..few {
                    column.clear();
                    column.extend(panels[whole * pitch..][..depth].iter().map(|row| row[at]));
                    product_of_column(a, stride, height, column, &mut sums[whole..], count, at, channel > 0);
                }
                if channel + channels >= self.channels {
                    self.finish(finish, task, row, sums);
                }
            }
        }
    }

    /// Writes the results of a block of rows from `row` on.
    pub fn finish(&self, finish: &Finish<'_>, task: &mut Task<'_>, row: usize, sums: &[[f32; NR]]) {
        let (each, [first, last]) = (self.geometry.output_pixels(), task.rows);
        let (rows, count) = (last - first, (task.pixels[1] - task.pixels[0]).div_ceil(NR));
        for (i, out) in task.out.chunks_exact_mut(rows).enumerate() {
            // The task may contain only the end of its first image.
            let image = task.pixels[0] / each + i;
            let from = (image * each).max(task.pixels[0]);
            for (j, sums) in sums.chunks_exact(count).enumerate() {
                let channel = task.group * self.rows + first + row + j;
                let at = (image * self.groups * self.rows + channel) * each + from - image * each;
                let out = &mut *out[row + j];
                let sums = &sums.as_flattened()[from - task.pixels[0]..][..out.len()];
                finish.apply(sums, [out.len(); 2], channel, at, out);
                task.written += out.len();
            }
        }
    }
}
