//! Which elements of an image each place of the output sees.

/// Each place `(y, x)` of a grid sees, for each tap, the element `(y * stride + dy, x * stride + dx)` of a plane, and 0
/// outside of it.
pub(super) struct Sampling {
    /// Rows and columns of the plane.
    pub plane: [usize; 2],
    /// Rows and columns of the grid.
    pub grid: [usize; 2],
    stride: [usize; 2],
    pub taps: Vec<[isize; 2]>,
    /// What is seen is the plane itself.
    pub plain: bool,
    /// The least offset of a tap.
    low: [isize; 2],
    /// Offsets modulo the stride, as far as there are any.
    residues: [Vec<usize>; 2],
    /// The most strides by which a tap is further than the least one.
    reach: [usize; 2],
}

/// Rows of the grid in one image.
#[derive(Clone, Copy)]
pub(super) struct Band {
    pub image: usize,
    pub row: usize,
    pub rows: usize,
}

impl Sampling {
    pub fn new(plane: [usize; 2], grid: [usize; 2], stride: [usize; 2], taps: Vec<[isize; 2]>) -> Self {
        let plain = taps == [[0, 0]] && stride == [1, 1] && grid == plane;
        // Then rows do not matter.
        let one_row = |[rows, columns]: [usize; 2]| if plain { [1, rows * columns] } else { [rows, columns] };
        let low = [0, 1].map(|i| taps.iter().map(|tap| tap[i]).min().unwrap_or(0));
        let steps = |i: usize| taps.iter().map(move |tap| (tap[i] - low[i]) as usize);
        let residues = [0, 1].map(|i| {
            let mut residues: Vec<usize> = steps(i).map(|step| step % stride[i]).collect();
            residues.sort_unstable();
            residues.dedup();
            residues
        });
        let reach = [0, 1].map(|i| steps(i).map(|step| step / stride[i]).max().unwrap_or(0));
        Self { plane: one_row(plane), grid: one_row(grid), stride, taps, plain, low, residues, reach }
    }

    /// Places of the grid.
    pub fn places(&self) -> usize {
        self.grid[0] * self.grid[1]
    }

    /// Columns of a window: those of the grid and those that further taps reach.
    fn columns(&self) -> usize {
        self.grid[1] + self.reach[1]
    }

    /// Elements from one row of the grid to the next in a window.
    pub fn pitch(&self) -> usize {
        if self.plain { self.plane[1] } else { self.residues[0].len() * self.residues[1].len() * self.columns() }
    }

    /// Elements of a channel in a window of so many rows of the grid.
    pub fn channel(&self, rows: usize) -> usize {
        if self.plain { self.plane[1] } else { (rows + self.reach[0]) * self.pitch() }
    }

    /// How much further than the place itself each tap lies in a window.
    pub fn offsets(&self) -> Vec<usize> {
        if self.plain {
            return vec![0];
        }
        let part = |tap: &[isize; 2], i: usize| {
            let step = (tap[i] - self.low[i]) as usize;
            let residue = self.residues[i].partition_point(|&residue| residue < step % self.stride[i]);
            (step / self.stride[i], residue)
        };
        let offset = |tap| {
            let ((down, y), (right, x)) = (part(tap, 0), part(tap, 1));
            down * self.pitch() + (y * self.residues[1].len() + x) * self.columns() + right
        };
        self.taps.iter().map(offset).collect()
    }

    /// Copies what a band sees of a channel, so that no place lies outside and neighbouring places are neighbours
    /// whatever the stride: `[row of the grid][residue of rows][residue of columns][column of the grid]`.
    pub fn window(&self, band: Band, plane: &[f32], window: &mut [f32]) {
        let [height, width] = self.plane;
        let columns = self.columns();
        let mut lines = window.chunks_exact_mut(columns.max(1));
        for row in band.row..band.row + band.rows + self.reach[0] {
            for down in &self.residues[0] {
                let y = (row * self.stride[0] + down) as isize + self.low[0];
                for right in &self.residues[1] {
                    let line = lines.next().expect("a line for each residue");
                    if y < 0 || y >= height as isize {
                        line.fill(0.0);
                        continue;
                    }
                    let (first, step) = (*right as isize + self.low[1], self.stride[1]);
                    // Columns of the line that lie left of the plane, and those not right of it.
                    let left = ((-first).max(0) as usize).div_ceil(step).min(columns);
                    let inside = ((width as isize - first).max(0) as usize).div_ceil(step).clamp(left, columns);
                    line[..left].fill(0.0);
                    line[inside..].fill(0.0);
                    if left < inside {
                        let from = (first + (left * step) as isize) as usize;
                        let source = &plane[y as usize * width + from..(y as usize + 1) * width];
                        copy_steps(source, step, &mut line[left..inside]);
                    }
                }
            }
        }
    }
}

/// Every `step`th element.
fn copy_steps(source: &[f32], step: usize, line: &mut [f32]) {
    match step {
        1 => line.copy_from_slice(&source[..line.len()]),
        2 => {
            let (last, line) = line.split_last_mut().expect("a line that is not empty");
            for (line, pair) in line.iter_mut().zip(source.as_chunks::<2>().0) {
                *line = pair[0];
            }
            *last = source[2 * line.len()];
        }
        _ => line.iter_mut().zip(source.iter().step_by(step)).for_each(|(line, &value)| *line = value),
    }
}
