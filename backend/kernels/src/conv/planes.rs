//! Convolutions whose kernels are single elements, as products of matrices of which one is the images as they are.

use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_max_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
};
use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::{correlate::Correlation, finish::Finish};
use crate::{
    dispatch::prefetch,
    matmul::{Matrix, Start, Strips, TALL, Target, WIDTH, by_height, wide, wide_tile},
};

/// Places of a plane from which on it costs little that the last panels have some in common.
const PLACES: usize = 128;
/// Elements of a matrix that is read for each pair of panels.
const MATRIX: usize = 1 << 19;
/// Channels of which a pair of panels stays in the second-level cache.
const CHANNELS: usize = 2048;
/// Places whose results are computed together.
const PAIR: usize = 2 * WIDTH;

/// The rows of each group in the order in which tiles read them.
pub(super) struct Planes(Vec<Strips<TALL>>);

impl Planes {
    /// Of a convolution for which this is the best way.
    pub fn new(correlation: &Correlation<'_>) -> Option<Self> {
        let Correlation { groups, channels, rows, ref sampling, matrix, .. } = *correlation;
        let fits = channels * rows <= MATRIX && channels <= CHANNELS;
        // Narrow tiles read panels too often for these to lie apart.
        if !(wide() && sampling.plain && sampling.places() >= PLACES && fits) {
            return None;
        }
        let strips = |group: usize| {
            let mut strips = Strips::default();
            strips.pack_matrix(Matrix::new(&matrix[group * rows * channels..][..rows * channels], rows, channels));
            strips
        };
        Some(Self((0..groups).map(strips).collect()))
    }

    /// Writes all results.
    pub fn run(&self, correlation: &Correlation<'_>, x: &[f32], finish: &Finish<'_>, out: &mut [MaybeUninit<f32>]) {
        let Correlation { batch, groups, channels, rows, ref sampling, .. } = *correlation;
        let (each, threads) = (sampling.places(), rayon::current_num_threads());
        assert!(
            x.len() == batch * groups * channels * each && out.len() == batch * groups * rows * each,
            "other sizes"
        );
        let (planes, pairs) = (batch * groups, each.div_ceil(PAIR));
        let parts = (2 * threads).div_ceil(planes).min(pairs / 4);
        let cuts = self.0[0].cuts(threads.div_ceil(planes * parts));
        let target = Target { data: out.as_mut_ptr().cast(), columns: each };
        (0..planes * parts * (cuts.len() - 1)).into_par_iter().for_each(|task| {
            let (share, part, plane) = (task / parts / planes, task % parts, task / parts % planes);
            let place = |part: usize| (pairs * part / parts * PAIR).min(each);
            let piece = Piece {
                strips: &self.0[plane % groups],
                rows: [cuts[share], cuts[share + 1]],
                places: [place(part), place(part + 1)],
                x: &x[plane * channels * each..][..channels * each],
                each,
                first: plane * rows,
                channel: plane % groups * rows,
                finish,
            };
            // SAFETY: `wide` said that the CPU can; no other task has these rows' places.
            unsafe {
                piece.run(target);
            }
        });
    }
}

/// Some rows and places of a group of one image.
struct Piece<'a> {
    strips: &'a Strips<TALL>,
    rows: [usize; 2],
    places: [usize; 2],
    /// The planes of the group.
    x: &'a [f32],
    /// Places of a plane.
    each: usize,
    /// The plane of the output that belongs to the first row.
    first: usize,
    /// The channel that does.
    channel: usize,
    finish: &'a Finish<'a>,
}

impl Piece<'_> {
    /// # Safety
    /// The CPU has AVX-512, and nobody else writes these places.
    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn run(&self, target: Target) {
        let Self { strips, rows, places: [from, to], x, each, first, channel, finish } = *self;
        for place in (from..to).step_by(PAIR) {
            let pair = to - place > WIDTH;
            // What the last panels have in common with those before is computed again.
            let place = place.min(to - if pair { PAIR } else { WIDTH });
            for (row, height, a) in strips.within(rows) {
                let at = (first + row) * each + place;
                let b = |k: usize, p: usize| {
                    let places = &x[k * each + place + p * WIDTH..];
                    // The next pair's: the processor does not guess what lies so far apart.
                    prefetch(places.as_ptr().wrapping_add(PAIR));
                    places.first_chunk().expect("room up to the end of the last plane")
                };
                by_height!(pair, height, {
                    // SAFETY: the caller says that the places are nobody else's.
                    unsafe { wide_tile::<M, P>(a, b, target.data.add(at), each, usize::MAX, Start::Zero) }
                });
                if finish.nothing() {
                    continue;
                }
                for i in 0..height {
                    for at in (at + i * each..).step_by(WIDTH).take(if pair { 2 } else { 1 }) {
                        // SAFETY: as above; all of it has been written.
                        unsafe {
                            let place = target.data.add(at);
                            _mm512_storeu_ps(place, finish.lanes(channel + row + i, at, _mm512_loadu_ps(place)));
                        }
                    }
                }
            }
        }
    }
}

impl Finish<'_> {
    /// What is done with neighbouring sums of a channel, the first of which is at some place of the output.
    #[target_feature(enable = "avx512f,avx2,fma")]
    #[inline]
    fn lanes(&self, channel: usize, at: usize, mut sum: __m512) -> __m512 {
        if let Some((scale, shift)) = self.factors(channel) {
            sum = _mm512_fmadd_ps(_mm512_set1_ps(scale), sum, _mm512_set1_ps(shift));
        }
        if let Some(residual) = self.residual {
            let residual: &[f32; WIDTH] = residual[at..].first_chunk().expect("as many as there are results");
            // SAFETY: an array of 16 numbers is read.
            sum = _mm512_add_ps(sum, unsafe { _mm512_loadu_ps(residual.as_ptr()) });
        }
        // Of something and NaN it is the second.
        if self.relu { _mm512_max_ps(_mm512_setzero_ps(), sum) } else { sum }
    }
}
