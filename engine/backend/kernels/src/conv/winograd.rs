//! Convolutions with 3 x 3 kernels and a quarter of the products, by Winograd's minimal filtering F(4 x 4, 3 x 3): Lavin and
//! Gray, "Fast Algorithms for Convolutional Neural Networks", <https://arxiv.org/abs/1509.09308>.
//!
//! A tile of 4 x 4 results depends on 6 x 6 elements. As polynomials, both these and the kernel are evaluated at 6 points in
//! each direction (the input and filter transforms). The convolution is then one product for each of the 36 values, summed
//! over the channels, and the output transform computes the results from the sums. The points are 0, ±5/8, ±3/2 and infinity.
//! They reduce the largest error of the usual points 0, ±1, ±2 to a sixth: 2.6e-6 of the largest result with 256 channels; a
//! direct convolution has 0.4e-6.

use super::{
    correlation::{Correlation, Scratch, Task},
    finish::Finish,
    geometry::Band,
    in_place::Rows,
    pack::grow,
};
use crate::{
    determinism::deterministic,
    dispatch::vectorized,
    matmul::{Filling, NR, PackedA, has_avx512},
};

/// Number of results of a tile in each direction.
const TILE: usize = 4;
/// Number of input elements of a tile in each direction.
const SEEN: usize = TILE + 2;
/// Number of values of a transformed input tile.
const VALUES: usize = SEEN * SEEN;
/// Minimum number of input and output channels for which the transforms pay off.
const CHANNELS: usize = 32;
/// Minimum number of tiles for which transforming the kernels pays off, and the number of kernels that require one more tile:
/// kernels whose values do not stay in a cache take longer.
const TILES: usize = 16;
const KERNELS: usize = 1 << 13;
/// Number of elements that a task holds: 2 MiB of transformed inputs and of sums.
const HELD: usize = 1 << 19;

/// Absolute values of the points that are neither 0 nor infinite, and their squares.
const A: f32 = 0.625;
const B: f32 = 1.5;
const AA: f32 = A * A;
const BB: f32 = B * B;

/// Transformed kernels, and the division of images into tiles.
pub(super) struct Winograd {
    /// Height and width of an image.
    plane: [usize; 2],
    /// Numbers of rows and columns of tiles.
    grid: [usize; 2],
    /// Row and column of the first input element of the first tile.
    low: [isize; 2],
    /// Packed rows of the matrix. The columns of each value follow those of the previous one.
    rows: Rows,
}

/// Returns the offset of the first tap if the taps form a 3 x 3 kernel, and the index of each kernel element in `taps`.
fn kernel(taps: &[[isize; 2]]) -> Option<([isize; 2], [usize; 9])> {
    let low = [0, 1].map(|i| taps.iter().map(|tap| tap[i]).min().unwrap_or(0));
    let mut order = [0; 9];
    for (i, order) in order.iter_mut().enumerate() {
        let tap = [low[0] + (i / 3) as isize, low[1] + (i % 3) as isize];
        *order = taps.iter().position(|other| *other == tap)?;
    }
    (taps.len() == 9).then_some((low, order))
}

impl Winograd {
    /// Transforms the kernels of a convolution; `None` if it is too small or its kernel is not 3 x 3. The choice does not
    /// depend on the number of threads, because the results differ slightly from those of other algorithms. It does depend on
    /// the batch. An infinity or NaN affects a whole tile.
    pub fn new(correlation: &Correlation<'_>) -> Option<Self> {
        let Correlation { batch, groups, channels, rows, ref geometry, matrix } = *correlation;
        let grid = geometry.grid.map(|size| size.div_ceil(TILE));
        let few = channels.min(rows) < CHANNELS || batch * grid[0] * grid[1] < TILES.max(channels * rows / KERNELS);
        if groups > 1 || few || !geometry.dense() || deterministic() {
            return None;
        }
        let (low, order) = kernel(&geometry.taps)?;
        let rows = if has_avx512() {
            Rows::Avx512(strips(matrix, rows, channels, order))
        } else {
            Rows::Portable(strips(matrix, rows, channels, order))
        };
        Some(Self { plane: geometry.plane, grid, low, rows })
    }

    /// Returns the number of window columns for each remainder of a column modulo the tile size.
    fn columns(&self) -> usize {
        self.grid[1] + 1
    }

    /// Returns the image index of each element of the window of some rows of tiles: `[row][remainder of columns][columns]`,
    /// so that adjacent tiles use adjacent elements. Indices outside of the image are beyond its end.
    fn window(&self, band: Band) -> Vec<usize> {
        let [height, width] = self.plane;
        let mut window = Vec::with_capacity((band.rows * TILE + 2) * TILE * self.columns());
        for row in band.row * TILE..(band.row + band.rows) * TILE + 2 {
            let y = row.checked_add_signed(self.low[0]).filter(|&y| y < height);
            for remainder in 0..TILE {
                let x = |column: usize| (column * TILE + remainder).checked_add_signed(self.low[1]);
                let pixel = |column| Some(y? * width + x(column).filter(|&x| x < width)?);
                window.extend((0..self.columns()).map(|column| pixel(column).unwrap_or(usize::MAX)));
            }
        }
        window
    }

    /// Returns the window offset of each input element of a tile, relative to the first one.
    fn taps(&self) -> [usize; VALUES] {
        let columns = self.columns();
        std::array::from_fn(|i| {
            let (y, x) = (i / SEEN, i % SEEN);
            (y * TILE + x % TILE) * columns + x / TILE
        })
    }

    /// Returns the boundaries of the tasks' output pixels and of their shares of rows.
    pub fn cuts(&self, correlation: &Correlation<'_>, wanted: usize) -> (Vec<usize>, Vec<usize>) {
        let (units, columns) = (correlation.batch * self.grid[0], self.grid[1]);
        let most = (HELD / (VALUES * (correlation.channels + correlation.rows))).max(2 * NR);
        let lanes = |rows: usize| (rows * columns).next_multiple_of(NR);
        // The number of rows of tiles that leaves the fewest panel columns unused.
        let unused = |rows: usize| (lanes(rows) - rows * columns) as f64 / lanes(rows) as f64;
        let held = (1..=units).take_while(|&rows| rows == 1 || lanes(rows) <= most);
        let held = held.reduce(|best, rows| if unused(rows) <= unused(best) { rows } else { best }).unwrap_or(1);
        let few = units.div_ceil(held);
        let tasks = if few < wanted { few } else { few.next_multiple_of(wanted).min(units) };
        let [rows, width] = correlation.geometry.grid;
        let pixel = |unit: usize| (unit / self.grid[0] * rows + unit % self.grid[0] * TILE) * width;
        let ends = (0..=tasks).map(|i| pixel(units * i / tasks)).collect();
        (ends, self.rows.cuts(wanted.div_ceil(tasks)))
    }

    /// Computes the results of a task.
    pub fn run(
        &self,
        correlation: &Correlation<'_>,
        x: &[f32],
        finish: &Finish<'_>,
        task: &mut Task<'_>,
        scratch: &mut Scratch,
    ) {
        let Scratch { window, panels, sums, column: line, offsets } = scratch;
        let ([from, to], [first, last]) = (task.pixels, task.rows);
        let (each, [height, width]) = (correlation.geometry.output_pixels(), correlation.geometry.grid);
        let (channels, columns) = (correlation.channels, self.grid[1]);
        let unit = |pixel: usize| pixel / each * self.grid[0] + (pixel % each / width).div_ceil(TILE);
        let bands = bands([unit(from), unit(to)], self.grid[0]);
        let count = ((unit(to) - unit(from)) * columns).div_ceil(NR);
        // One more panel between the values, so that those of one column map to different cache sets.
        let (seen, summed) = (channels * count + 1, (last - first) * count + 1);
        panels.grow(VALUES * seen);
        sums.grow(VALUES * summed + TILE * TILE * count);
        let (plane, taps) = (self.plane[0] * self.plane[1], self.taps());
        let windows: Vec<_> = bands.iter().map(|&band| self.window(band)).collect();
        let longest = windows.iter().map(Vec::len).max().unwrap_or(0);
        grow(window, longest + NR, 0.0);
        for channel in 0..channels {
            let mut at = channel * count * NR;
            for (band, pixels) in bands.iter().zip(&windows) {
                let plane = &x[(band.image * channels + channel) * plane..][..plane];
                for (to, &pixel) in window.iter_mut().zip(pixels) {
                    *to = plane.get(pixel).copied().unwrap_or(0.0);
                }
                see(window, &taps, [band.rows, columns], panels.as_flattened_mut(), seen * NR, at);
                at += band.rows * columns;
            }
        }
        offsets.clear();
        offsets.extend((0..channels).map(|channel| channel * count * NR));
        for value in 0..VALUES {
            let panels = panels[value * seen..][..seen].as_flattened();
            let sums = &mut sums[value * summed..];
            self.rows.multiply([first, last], value * channels, panels, offsets, count, sums);
        }
        let pixels = (to - from).div_ceil(NR);
        grow(line, (pixels + TILE + 1) * NR, 0.0);
        let (sums, tiles) = sums.split_at_mut(VALUES * summed);
        for row in 0..last - first {
            result(&sums[row * count..], summed, count, tiles);
            let (mut tile, mut at) = (0, 0);
            for band in &bands {
                for y in band.row..band.row + band.rows {
                    let lines = TILE.min(height - y * TILE);
                    interleave(tiles.as_flattened(), count * NR, tile, columns, [lines, width], &mut line[at..]);
                    tile += columns;
                    at += lines * width;
                }
            }
            let line = line.as_chunks().0;
            correlation.finish(finish, task, row, &line[..pixels]);
        }
    }
}

/// Returns the rows of tiles `from..to`, image by image.
fn bands([mut from, to]: [usize; 2], rows: usize) -> Vec<Band> {
    let mut bands = vec![];
    while from < to {
        let row = from % rows;
        let band = Band { image: from / rows, row, rows: (rows - row).min(to - from) };
        from += band.rows;
        bands.push(band);
    }
    bands
}

/// Number of channels of kernels that are transformed at once: few enough for the first-level cache.
const BLOCK: usize = 8;

/// Returns the transformed kernels, packed. The columns of each strip are channels. `order` maps each kernel element to its
/// tap.
fn strips<const H: usize>(matrix: &[f32], rows: usize, channels: usize, order: [usize; 9]) -> PackedA<H> {
    let depth = channels * 9;
    let fill = |row: usize, height: usize, strip: &mut Filling<'_, H>| {
        let mut kernels = [[0.0; H]; 9 * BLOCK];
        let mut values = [[0.0; H]; VALUES * BLOCK];
        for channel in (0..channels).step_by(BLOCK) {
            let width = BLOCK.min(channels - channel);
            for i in 0..height {
                let row = matrix[(row + i) * depth + channel * 9..][..width * 9].as_chunks::<9>().0;
                for (at, kernel) in row.iter().enumerate() {
                    for (tap, &from) in order.iter().enumerate() {
                        kernels[tap * BLOCK + at][i] = kernel[from];
                    }
                }
            }
            evaluate(kernels.as_flattened(), BLOCK * H, values.as_flattened_mut());
            for (value, columns) in values.chunks_exact(BLOCK).enumerate() {
                strip.push(value, &columns[..width]);
            }
        }
    };
    PackedA::written(rows, [VALUES, channels], fill)
}

vectorized! {
    /// Transforms kernels. Their elements, and the values, are `step` apart. `step` must be a multiple of the columns of a
    /// panel.
    fn evaluate<_FUSED>(kernels: &[f32], step: usize, values: &mut [f32]) {
        for from in (0..step).step_by(NR) {
            let kernel = |y, x| *kernels[(y * 3 + x) * step + from..].first_chunk().expect("whole panels");
            in_both(kernel, kernel_at_points, |y, x, value| {
                *values[(y * SEEN + x) * step + from..].first_chunk_mut().expect("whole panels") = value;
            });
        }
    }
}

/// Values of one column, or of adjacent tiles.
type Lanes = [f32; NR];

/// Applies a one-dimensional transform in both directions: first to the columns, then to the lines of the result. `from` and
/// `to` take a line and a column.
// The loops index both directions alike, and neither `from_fn` nor `map` is always inlined.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn in_both<const I: usize, const O: usize>(
    from: impl Fn(usize, usize) -> Lanes,
    along: impl Fn([Lanes; I]) -> [Lanes; O],
    mut to: impl FnMut(usize, usize, Lanes),
) {
    let mut half = [[[0.0; NR]; I]; O];
    for x in 0..I {
        let mut column = [[0.0; NR]; I];
        for y in 0..I {
            column[y] = from(y, x);
        }
        let column = along(column);
        for y in 0..O {
            half[y][x] = column[y];
        }
    }
    for y in 0..O {
        let line = along(half[y]);
        for x in 0..O {
            to(y, x, line[x]);
        }
    }
}

/// Filter transform in one direction: evaluates a polynomial with three coefficients at the points, divided by the
/// denominators of the interpolation.
#[inline(always)]
fn kernel_at_points(g: [Lanes; 3]) -> [Lanes; SEEN] {
    const ZERO: f32 = 1.0 / (AA * BB);
    const BY_A: f32 = 1.0 / (2.0 * AA * (AA - BB));
    const BY_B: f32 = 1.0 / (2.0 * BB * (BB - AA));
    let mut points = [[0.0; NR]; SEEN];
    for i in 0..NR {
        let (even_a, odd_a) = (BY_A * (g[0][i] + AA * g[2][i]), BY_A * A * g[1][i]);
        let (even_b, odd_b) = (BY_B * (g[0][i] + BB * g[2][i]), BY_B * B * g[1][i]);
        points[0][i] = ZERO * g[0][i];
        points[1][i] = even_a + odd_a;
        points[2][i] = even_a - odd_a;
        points[3][i] = even_b + odd_b;
        points[4][i] = even_b - odd_b;
        points[5][i] = g[2][i];
    }
    points
}

/// Input transform in one direction: the transpose of interpolation.
#[inline(always)]
fn seen_at_points(d: [Lanes; SEEN]) -> [Lanes; SEEN] {
    let mut points = [[0.0; NR]; SEEN];
    for i in 0..NR {
        let (even_a, odd_a) = (d[4][i] - BB * d[2][i], A * (d[3][i] - BB * d[1][i]));
        let (even_b, odd_b) = (d[4][i] - AA * d[2][i], B * (d[3][i] - AA * d[1][i]));
        points[0][i] = d[4][i] - (AA + BB) * d[2][i] + AA * BB * d[0][i];
        points[1][i] = even_a + odd_a;
        points[2][i] = even_a - odd_a;
        points[3][i] = even_b + odd_b;
        points[4][i] = even_b - odd_b;
        points[5][i] = d[5][i] - (AA + BB) * d[3][i] + AA * BB * d[1][i];
    }
    points
}

/// Output transform in one direction: the transpose of evaluation at the points.
#[inline(always)]
fn results_of(m: [Lanes; SEEN]) -> [Lanes; TILE] {
    let mut y = [[0.0; NR]; TILE];
    for i in 0..NR {
        let (even_a, odd_a) = (m[1][i] + m[2][i], A * (m[1][i] - m[2][i]));
        let (even_b, odd_b) = (m[3][i] + m[4][i], B * (m[3][i] - m[4][i]));
        y[0][i] = m[0][i] + even_a + even_b;
        y[1][i] = odd_a + odd_b;
        y[2][i] = AA * even_a + BB * even_b;
        y[3][i] = AA * odd_a + BB * odd_b + m[5][i];
    }
    y
}

vectorized! {
    /// Input transform of the tiles of some rows of a window. Writes the values of the first tile from `at` on, `step` apart,
    /// followed by those of the other tiles. Elements after them may be overwritten.
    fn see<_FUSED>(
        window: &[f32], taps: &[usize; VALUES], grid: [usize; 2], values: &mut [f32], step: usize, at: usize,
    ) {
        let [rows, columns] = grid;
        let pitch = TILE * TILE * (columns + 1);
        for row in 0..rows {
            for column in (0..columns).step_by(NR) {
                let window = &window[row * pitch + column..];
                let values = &mut values[at + row * columns + column..];
                // The roles of lines and columns are exchanged: `in_both` requests the columns first.
                let seen = |x, y| *window[taps[y * SEEN + x]..].first_chunk().expect("room behind the last tile");
                in_both(seen, seen_at_points, |x, y, value| {
                    let to = values[(y * SEEN + x) * step..].first_chunk_mut();
                    *to.expect("room behind the last tile") = value;
                });
            }
        }
    }
}

vectorized! {
    /// Output transform of `count` panels of sums of each value, `step` apart. Writes `[TILE, TILE, count]`.
    fn result<_FUSED>(sums: &[[f32; NR]], step: usize, count: usize, tiles: &mut [[f32; NR]]) {
        for panel in 0..count {
            let value = |y, x| sums[(y * SEEN + x) * step + panel];
            in_both(value, results_of, |y, x, result| tiles[(y * TILE + x) * count + panel] = result);
        }
    }
}

vectorized! {
    /// Writes a row of tiles as `lines[0]` lines of width `lines[1]`, from the results of the tiles from `tile` on, `step`
    /// apart. Elements after the last line may be overwritten.
    fn interleave<_FUSED>(tiles: &[f32], step: usize, tile: usize, columns: usize, lines: [usize; 2], out: &mut [f32]) {
        let [lines, width] = lines;
        for y in 0..lines {
            for column in (0..columns).step_by(NR) {
                let mut from: [&[f32]; TILE] = [&[]; TILE];
                for x in 0..TILE {
                    from[x] = &tiles[(y * TILE + x) * step + tile + column..];
                }
                let out = &mut out[y * width + column * TILE..];
                let len = NR.min(columns - column);
                let out = &mut out.as_chunks_mut::<TILE>().0[..len];
                for i in 0..len {
                    for x in 0..TILE {
                        out[i][x] = from[x][i];
                    }
                }
            }
        }
    }
}
