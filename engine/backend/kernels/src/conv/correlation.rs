//! A correlation and its tasks.

use std::mem::MaybeUninit;

use super::geometry::Im2colGeometry;
use crate::matmul::PanelRows;

/// `out[image][row][pixel] = matrix[row] . im2col[pixel]` over all channels, for each group of rows and channels.
pub(super) struct Correlation<'a> {
    pub batch: usize,
    pub groups: usize,
    /// Channels of a group.
    pub channels: usize,
    /// Rows of a group.
    pub rows: usize,
    pub geometry: Im2colGeometry,
    /// Matrix, `[groups, rows, channels, taps]`.
    pub matrix: &'a [f32],
}

/// Buffers of a thread, reused because first-touch page faults of fresh memory would cost as much as the work.
#[derive(Default)]
pub(super) struct Scratch {
    pub window: Vec<f32>,
    pub panels: PanelRows,
    pub sums: PanelRows,
    pub column: Vec<f32>,
    pub offsets: Vec<usize>,
}

/// Some output pixels and rows of one group, with the slices for their results.
pub(super) struct Task<'a> {
    pub group: usize,
    pub rows: [usize; 2],
    pub pixels: [usize; 2],
    /// The task's slice of each row of each image.
    pub out: Vec<&'a mut [MaybeUninit<f32>]>,
    /// Number of results written.
    pub written: usize,
}
