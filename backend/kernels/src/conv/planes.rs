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

    /// Writes all results, and returns their number.
    pub fn run(
        &self,
        correlation: &Correlation<'_>,
        x: &[f32],
        finish: &Finish<'_>,
        out: &mut [MaybeUninit<f32>],
    ) -> usize {
        let Correlation { batch, groups, channels, rows, ref sampling, .. } = *correlation;
        let (each, threads) = (sampling.places(), rayon::current_num_threads());
        assert!(
            x.len() == batch * groups * channels * each && out.len() == batch * groups * rows * each,
            "other sizes"
        );
        let (planes, pairs) = (batch * groups, each.div_ceil(PAIR));
        let parts = (2 * threads).div_ceil(planes).min(pairs / 4);
        let cuts = self.0[0].cuts(threads.div_ceil(planes * parts));
        let target = Target::new(out, each);
        let tasks = (0..planes * parts * (cuts.len() - 1)).into_par_iter().map(|task| {
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
            // SAFETY: there are `Planes` only where `wide` says that the CPU has AVX-512. Tasks differ in their plane, or in
            // the strips that they have of it, or in their places.
            unsafe { piece.run(&target) }
        });
        tasks.sum()
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
    /// Writes the results, and returns their number.
    ///
    /// # Panics
    /// If the rows are not those of whole strips, or the places less than a pair: the last one would reach into those of
    /// another task.
    ///
    /// # Safety
    /// The CPU has AVX-512, and no other thread uses these rows and places of the target.
    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn run(&self, target: &Target<'_>) -> usize {
        let Self { strips, rows, places: [from, to], x, each, first, channel, finish } = *self;
        assert!(from <= to && to - from >= PAIR && to <= each, "places {from} to {to} of {each}");
        assert!(strips.begin_and_end(rows), "rows {rows:?} are not whole strips");
        // Of the first row of the plane's results. There are as many as `rows[1]`, each of which has `each` places.
        let target = target.from(first, 0).first(rows[1], each);
        for place in (from..to).step_by(PAIR) {
            let pair = to - place > WIDTH;
            // What the last panels have in common with those before is computed again.
            let place = place.min(to - if pair { PAIR } else { WIDTH });
            for (row, height, a) in strips.within(rows) {
                let at = row * each + place;
                let b = |k: usize, p: usize| {
                    let places = &x[k * each + place + p * WIDTH..];
                    // The next pair's: the processor does not guess what lies so far apart.
                    prefetch(places.as_ptr().wrapping_add(PAIR));
                    places.first_chunk().expect("room up to the end of the last plane")
                };
                by_height!(pair, height, {
                    // SAFETY: the strip's `M` rows end before `rows[1]`, and `P` panels of places from this one on before
                    // `to`, as the assertions above show. The caller says that they are nobody else's.
                    unsafe { wide_tile::<M, P>(a, b, target.add(at), each, P * WIDTH, Start::Zero) }
                });
                if finish.nothing() {
                    continue;
                }
                for i in 0..height {
                    for at in (at + i * each..).step_by(WIDTH).take(if pair { 2 } else { 1 }) {
                        // SAFETY: what the tile has just written.
                        unsafe {
                            let (place, at) = (target.add(at), first * each + at);
                            _mm512_storeu_ps(place, finish.lanes(channel + row + i, at, _mm512_loadu_ps(place)));
                        }
                    }
                }
            }
        }
        (rows[1] - rows[0]) * (to - from)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::Epilogue;

    #[test]
    fn rejects_places_of_less_than_a_pair() {
        if !wide() {
            return;
        }
        let mut strips = Strips::default();
        strips.pack_matrix(Matrix::new(&[2.0; 14], 14, 1));
        let (x, finish) = ([1.0; 128], Finish::new(Epilogue::default(), 14));
        let run = |places: [usize; 2], rows: [usize; 2]| {
            let piece =
                Piece { strips: &strips, rows, places, x: &x, each: 128, first: 0, channel: 0, finish: &finish };
            let mut out = vec![0.0; 14 * 128];
            let run = std::panic::AssertUnwindSafe(|| {
                // SAFETY: the CPU has AVX-512, and nobody else has the vector.
                unsafe { piece.run(&Target::of(&mut out, 128)) }
            });
            std::panic::catch_unwind(run).ok().map(|written| (written, out.iter().filter(|out| **out == 2.0).count()))
        };
        assert_eq!(run([96, 128], [0, 14]), Some((448, 448)));
        assert_eq!(run([32, 101], [7, 14]), Some((483, 483)));
        assert_eq!(run([112, 128], [0, 14]), None);
        assert_eq!(run([32, 63], [0, 14]), None);
        assert_eq!(run([96, 129], [0, 14]), None);
        // 14 rows are strips of 7.
        assert_eq!(run([96, 128], [0, 12]), None);
    }
}
