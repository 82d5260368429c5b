//! Geometry of im2col: the input elements of each output pixel.

use crate::{dispatch::vectorized, matmul::NR};

/// For each tap, output pixel `(y, x)` of a grid uses the element `(y * stride + dy, x * stride + dx)` of a plane; 0 outside
/// of the plane.
pub(super) struct Im2colGeometry {
    /// Rows and columns of the plane.
    pub plane: [usize; 2],
    /// Rows and columns of the grid.
    pub grid: [usize; 2],
    pub stride: [usize; 2],
    pub taps: Vec<[isize; 2]>,
    /// True if the grid is the plane itself.
    pub pointwise: bool,
    /// Minimum offset of the taps.
    pub low: [isize; 2],
    /// Residues of the offsets modulo the stride.
    pub residues: [Vec<usize>; 2],
    /// Maximum distance of a tap from the minimum offset, in strides.
    pub reach: [usize; 2],
}

/// Some grid rows of one image.
#[derive(Clone, Copy)]
pub(super) struct Band {
    pub image: usize,
    pub row: usize,
    pub rows: usize,
}

impl Im2colGeometry {
    pub fn new(plane: [usize; 2], grid: [usize; 2], stride: [usize; 2], taps: Vec<[isize; 2]>) -> Self {
        let pointwise = taps == [[0, 0]] && stride == [1, 1] && grid == plane;
        // Treated as one row, because the division into rows does not matter.
        let one_row = |[rows, columns]: [usize; 2]| if pointwise { [1, rows * columns] } else { [rows, columns] };
        let low = [0, 1].map(|i| taps.iter().map(|tap| tap[i]).min().unwrap_or(0));
        let steps = |i: usize| taps.iter().map(move |tap| (tap[i] - low[i]) as usize);
        let residues = [0, 1].map(|i| {
            let mut residues: Vec<usize> = steps(i).map(|step| step % stride[i]).collect();
            residues.sort_unstable();
            residues.dedup();
            residues
        });
        let reach = [0, 1].map(|i| steps(i).map(|step| step / stride[i]).max().unwrap_or(0));
        Self { plane: one_row(plane), grid: one_row(grid), stride, taps, pointwise, low, residues, reach }
    }

    /// Returns true if adjacent output pixels use adjacent elements.
    pub fn dense(&self) -> bool {
        self.stride == [1, 1]
    }

    /// Returns the number of output pixels of the grid.
    pub fn output_pixels(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Returns true if the output pixels of a line are adjacent in a window, and the gaps between lines are small.
    pub fn lines(&self) -> bool {
        !self.pointwise && self.residues.iter().all(|some| some.len() == 1) && self.grid[1] * 8 >= self.columns() * 7
    }

    /// Returns the number of columns of a window: those of the grid, and the further ones that taps reach.
    fn columns(&self) -> usize {
        self.grid[1] + self.reach[1]
    }

    /// Returns the distance from one grid row to the next in a window, in elements.
    pub fn pitch(&self) -> usize {
        if self.pointwise { self.plane[1] } else { self.residues[0].len() * self.residues[1].len() * self.columns() }
    }

    /// Returns the size of a channel in a window of `rows` grid rows, in elements.
    pub fn channel(&self, rows: usize) -> usize {
        if self.pointwise { self.plane[1] } else { (rows + self.reach[0]) * self.pitch() }
    }

    /// Returns the offset of each tap from the output pixel in a window.
    pub fn offsets(&self) -> Vec<usize> {
        if self.pointwise {
            return vec![0];
        }
        let offset = |tap| {
            let [[down, y], [right, x]] = self.steps(tap);
            down * self.pitch() + (y * self.residues[1].len() + x) * self.columns() + right
        };
        self.taps.iter().map(offset).collect()
    }

    /// Returns, for each axis, the distance of a tap from the minimum offset in strides, and the index of its residue.
    pub fn steps(&self, tap: &[isize; 2]) -> [[usize; 2]; 2] {
        [0, 1].map(|i| {
            let step = (tap[i] - self.low[i]) as usize;
            let residue = self.residues[i].partition_point(|&residue| residue < step % self.stride[i]);
            [step / self.stride[i], residue]
        })
    }

    /// Copies the elements of a channel that a band uses into a window:
    /// `[row of the grid][residue of rows][residue of columns][column of the grid]`. The window includes all padding, and
    /// adjacent output pixels are adjacent whatever the stride. Elements after the window may be overwritten.
    pub fn window(&self, band: Band, plane: &[f32], window: &mut [f32]) {
        fill_window(self, band, plane, window);
    }
}

vectorized! {
    fn fill_window<_FUSED>(geometry: &Im2colGeometry, band: Band, plane: &[f32], window: &mut [f32]) {
        let Im2colGeometry { plane: [height, width], stride, low, ref residues, reach, .. } = *geometry;
        let (columns, step) = (geometry.columns(), stride[1]);
        let mut at = 0;
        for row in band.row..band.row + band.rows + reach[0] {
            for down in &residues[0] {
                let y = (row * stride[0] + down) as isize + low[0];
                for right in &residues[1] {
                    let end = at + columns;
                    if y < 0 || y >= height as isize {
                        zeros(window, at, end);
                        at = end;
                        continue;
                    }
                    let first = *right as isize + low[1];
                    // Number of columns left of the plane, and number of columns not right of the plane.
                    let left = ((-first).max(0) as usize).div_ceil(step).min(columns);
                    let inside = ((width as isize - first).max(0) as usize).div_ceil(step).clamp(left, columns);
                    zeros(window, at, at + left);
                    if left < inside {
                        let from = y as usize * width + (first + (left * step) as isize) as usize;
                        copy_steps(plane, from, step, window, at + left, inside - left);
                    }
                    zeros(window, at + inside, end);
                    at = end;
                }
            }
        }
    }
}

/// Writes zeros from `from` to `to`. May write further elements.
#[inline(always)]
fn zeros(line: &mut [f32], mut from: usize, to: usize) {
    while from < to {
        *line[from..].first_chunk_mut::<NR>().expect("room behind the last line") = [0.0; NR];
        from += NR;
    }
}

/// Copies every `step`th element of the source from `from` on. May write further elements.
#[inline(always)]
fn copy_steps(source: &[f32], from: usize, step: usize, line: &mut [f32], at: usize, len: usize) {
    match step {
        1 => {
            for done in (0..len).step_by(NR) {
                copy(source, from + done, line, at + done);
            }
        }
        2 => {
            for done in (0..len).step_by(NR) {
                let line = &mut line[at + done..][..NR];
                if let Some(values) = source.get(from + 2 * done..from + 2 * done + 2 * NR) {
                    for i in 0..NR {
                        line[i] = values[2 * i];
                    }
                } else {
                    let values = source[from + 2 * done..].iter().step_by(2);
                    line.iter_mut().zip(values).for_each(|(line, value)| *line = *value);
                }
            }
        }
        _ => {
            let values = source[from..].iter().step_by(step);
            line[at..at + len].iter_mut().zip(values).for_each(|(line, value)| *line = *value);
        }
    }
}

/// Copies `NR` elements, or fewer at the end of the source. Excess elements are overwritten by the next copy. Uses arrays,
/// because copying a slice is a function call.
#[inline(always)]
pub(super) fn copy(source: &[f32], from: usize, to: &mut [f32], at: usize) {
    let to = to[at..].first_chunk_mut::<NR>().expect("room behind the last row");
    let source = &source[from..];
    if let Some(values) = source.first_chunk::<NR>() {
        *to = *values;
    } else {
        for (to, value) in to.iter_mut().zip(source) {
            *to = *value;
        }
    }
}
