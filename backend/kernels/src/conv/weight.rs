use rayon::prelude::*;
use std::cell::Cell;

use super::{
    Conv2d,
    pack::{Places, grow},
    product::product,
    sampling::Sampling,
};
use crate::{dispatch::vectorized, matmul::WIDTH};

/// Places that are walked at once.
const DEPTH: usize = 384;
/// Rows that stay in the second-level cache while all panels pass.
const BLOCK: usize = 48;

#[derive(Default)]
struct Scratch {
    window: Vec<f32>,
    rows: Vec<f32>,
    panels: Vec<[f32; WIDTH]>,
}

thread_local! {
    static SCRATCH: Cell<Scratch> = Cell::default();
}

/// The gradient of a convolution with respect to its weights, in `out`, given that of its outputs.
///
/// It is the product of what all places see, a row for each weight of a channel, and the gradients of the places, a column
/// for each channel of the output.
///
/// # Panics
/// If the sizes do not fit each other.
pub fn conv2d_backward_weight(x: &[f32], grad: &[f32], conv: &Conv2d, out: &mut [f32]) {
    conv.check(Some(x.len()), Some(out.len()), Some(grad.len()));
    if out.is_empty() {
        return;
    }
    let (sampling, threads) = (conv.sampling(), rayon::current_num_threads());
    let (taps, places) = (sampling.taps.len(), conv.batch * sampling.places());
    let (channels, columns) = (conv.channels_in / conv.groups, conv.channels_out / conv.groups);
    let panels = columns.div_ceil(WIDTH);
    // Threads take channels of their own, or where these are too few, places of their own, and then the results are
    // added up in the order of the places.
    let wanted = threads.div_ceil(conv.groups);
    let by_channel = channels * taps >= 256 * wanted;
    let parts = if by_channel { wanted } else { 1 };
    let shares = if by_channel { 1 } else { wanted.min(places.div_ceil(DEPTH)).max(1) };
    let edges: Vec<usize> = (0..=parts).map(|i| channels * i / parts).collect();
    let ends: Vec<usize> = (0..=shares).map(|i| places * i / shares).collect();
    let mut sums: Vec<Vec<[f32; WIDTH]>> = vec![vec![]; conv.groups * parts * shares];
    sums.par_iter_mut().enumerate().for_each(|(task, sums)| {
        let (share, part, group) = (task % shares, task / shares % parts, task / shares / parts);
        let mut scratch = SCRATCH.take();
        let task = Task {
            conv,
            sampling: &sampling,
            group,
            channels: [edges[part], edges[part + 1]],
            places: [ends[share], ends[share + 1]],
        };
        *sums = task.run(x, grad, &mut scratch);
        SCRATCH.set(scratch);
    });
    // Some channels of the output at a time: what a panel holds.
    let depth = channels * taps;
    let tasks: Vec<(usize, &mut [f32])> =
        out.chunks_exact_mut(columns * depth).flat_map(|group| group.chunks_mut(WIDTH * depth)).enumerate().collect();
    tasks.into_par_iter().for_each(|(task, out)| {
        let (group, panel) = (task / panels, task % panels);
        for part in 0..parts {
            for share in 0..shares {
                let sums = &sums[(group * parts + part) * shares + share];
                turn(sums, panel, panels, edges[part] * taps, depth, share > 0, out);
            }
        }
    });
}

/// Some places and channels of one group.
struct Task<'a> {
    conv: &'a Conv2d,
    sampling: &'a Sampling,
    group: usize,
    channels: [usize; 2],
    places: [usize; 2],
}

impl Task<'_> {
    /// For each weight of a channel its gradient for all channels of the output, in panels side by side.
    fn run(&self, x: &[f32], grad: &[f32], scratch: &mut Scratch) -> Vec<[f32; WIDTH]> {
        let Scratch { window, rows, panels } = scratch;
        let (conv, taps, [first, last]) = (self.conv, self.sampling.taps.len(), self.channels);
        let columns = conv.channels_out / conv.groups;
        let count = columns.div_ceil(WIDTH);
        let channels = conv.channels_in / conv.groups;
        let block = (BLOCK / taps).max(1);
        let mut sums = vec![[0.0; WIDTH]; (last - first) * taps * count];
        for from in (self.places[0]..self.places[1]).step_by(DEPTH) {
            let depth = DEPTH.min(self.places[1] - from);
            grow(panels, depth * count, [0.0; WIDTH]);
            for (panel, panels) in panels.chunks_exact_mut(depth).take(count).enumerate() {
                self.turn(grad, from, panel * WIDTH, panels);
            }
            let places = Places::new(self.sampling, conv.channels_in, from, depth, usize::MAX);
            for channel in (first..last).step_by(block) {
                let some = block.min(last - channel);
                places.rows(x, [self.group * channels + channel, some], window, rows);
                let sums = &mut sums[(channel - first) * taps * count..][..some * taps * count];
                product(rows, depth, some * taps, panels, depth, depth, count, sums, count, true);
            }
        }
        sums
    }

    /// The gradients of places from one on, a row for each place and a column for each of some channels.
    fn turn(&self, grad: &[f32], from: usize, column: usize, panel: &mut [[f32; WIDTH]]) {
        let (each, groups) = (self.sampling.places(), self.conv.groups);
        let columns = self.conv.channels_out / groups;
        let width = WIDTH.min(columns - column);
        let mut done = 0;
        while done < panel.len() {
            let (image, place) = ((from + done) / each, (from + done) % each);
            let len = (each - place).min(panel.len() - done);
            let first = (image * groups + self.group) * columns + column;
            turn_rows(&grad[first * each + place..], each, width, &mut panel[done..done + len]);
            done += len;
        }
    }
}

vectorized! {
    /// The first `width` rows of `x`, `stride` apart, as columns.
    fn turn_rows<_FUSED>(x: &[f32], stride: usize, width: usize, columns: &mut [[f32; WIDTH]]) {
        let len = columns.len();
        if width < WIDTH {
            columns.fill([0.0; WIDTH]);
            for j in 0..width {
                for (column, value) in columns.iter_mut().zip(&x[j * stride..][..len]) {
                    column[j] = *value;
                }
            }
            return;
        }
        let mut rows: [&[f32]; WIDTH] = [&[]; WIDTH];
        for j in 0..WIDTH {
            rows[j] = &x[j * stride..][..len];
        }
        for k in 0..len {
            for j in 0..WIDTH {
                columns[k][j] = rows[j][k];
            }
        }
    }
}

/// One panel of `sums`, of which `panels` lie side by side, with rows for columns: its rows are those from one on.
fn turn(sums: &[[f32; WIDTH]], panel: usize, panels: usize, first: usize, depth: usize, add: bool, out: &mut [f32]) {
    for (row, sums) in sums.chunks_exact(panels).enumerate() {
        for (out, sum) in out.chunks_exact_mut(depth).zip(&sums[panel]) {
            let out = &mut out[first + row];
            *out = if add { *out + sum } else { *sum };
        }
    }
}
