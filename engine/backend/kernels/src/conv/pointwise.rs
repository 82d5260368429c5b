//! Pointwise (1 x 1) convolutions, as matrix products that read the images without packing.

use std::arch::x86_64::{
    __m512, _mm512_add_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_max_ps, _mm512_set1_ps, _mm512_setzero_ps,
    _mm512_storeu_ps,
};
use std::mem::MaybeUninit;

use rayon::prelude::*;

use super::{correlation::Correlation, finish::Finish};
use crate::{
    dispatch::prefetch,
    matmul::{MR_AVX512, Matrix, NR, PackedA, Start, Target, avx512_microkernel, by_height, has_avx512},
};

/// Minimum number of pixels of a plane, so that recomputing the overlap of the last panels costs little.
const PIXELS: usize = 128;
/// Maximum number of elements of the matrix, which is read for each pair of panels.
const MATRIX: usize = 1 << 19;
/// Maximum number of channels, so that a pair of panels stays in the second-level cache.
const CHANNELS: usize = 2048;
/// Number of pixels whose results are computed together.
const PAIR: usize = 2 * NR;

/// Packed rows of each group, in the order in which the microkernels read them.
pub(super) struct Pointwise(Vec<PackedA<MR_AVX512>>);

impl Pointwise {
    /// Packs the matrix of a convolution; `None` if another algorithm is better.
    pub fn new(correlation: &Correlation<'_>) -> Option<Self> {
        let Correlation { groups, channels, rows, ref geometry, matrix, .. } = *correlation;
        let fits = channels * rows <= MATRIX && channels <= CHANNELS;
        // Narrow microkernels read panels too often for rows that are far apart in memory.
        if !(has_avx512() && geometry.pointwise && geometry.output_pixels() >= PIXELS && fits) {
            return None;
        }
        let strips = |group: usize| {
            let mut strips = PackedA::default();
            strips.pack_matrix(Matrix::new(&matrix[group * rows * channels..][..rows * channels], rows, channels));
            strips
        };
        Some(Self((0..groups).map(strips).collect()))
    }

    /// Writes all results. Returns their number.
    pub fn run(
        &self,
        correlation: &Correlation<'_>,
        x: &[f32],
        finish: &Finish<'_>,
        out: &mut [MaybeUninit<f32>],
    ) -> usize {
        let Correlation { batch, groups, channels, rows, ref geometry, .. } = *correlation;
        let (each, threads) = (geometry.output_pixels(), rayon::current_num_threads());
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
            let pixel = |part: usize| (pairs * part / parts * PAIR).min(each);
            let piece = Piece {
                strips: &self.0[plane % groups],
                rows: [cuts[share], cuts[share + 1]],
                pixels: [pixel(part), pixel(part + 1)],
                x: &x[plane * channels * each..][..channels * each],
                each,
                first: plane * rows,
                channel: plane % groups * rows,
                finish,
            };
            // SAFETY: `new` returns `Pointwise` only if the CPU has AVX-512. Any two tasks differ in their plane, in their
            // strips of it, or in their pixels.
            unsafe { piece.run(&target) }
        });
        tasks.sum()
    }
}

/// Some rows and pixels of a group of one image.
struct Piece<'a> {
    strips: &'a PackedA<MR_AVX512>,
    rows: [usize; 2],
    pixels: [usize; 2],
    /// Input planes of the group.
    x: &'a [f32],
    /// Number of pixels of a plane.
    each: usize,
    /// Output plane of the group's first row.
    first: usize,
    /// Output channel of the group's first row.
    channel: usize,
    finish: &'a Finish<'a>,
}

impl Piece<'_> {
    /// Writes the results. Returns their number.
    ///
    /// # Panics
    /// If the rows are not whole strips, or there are fewer pixels than a pair: the last pair would overlap with another
    /// task.
    ///
    /// # Safety
    /// The CPU must have AVX-512, and no other thread may access these rows and pixels of the target.
    #[target_feature(enable = "avx512f,avx2,fma")]
    unsafe fn run(&self, target: &Target<'_>) -> usize {
        let Self { strips, rows, pixels: [from, to], x, each, first, channel, finish } = *self;
        assert!(from <= to && to - from >= PAIR && to <= each, "pixels {from} to {to} of {each}");
        assert!(strips.begin_and_end(rows), "rows {rows:?} are not whole strips");
        // Starts at the first row of the plane's results. `first` checks that there are `rows[1]` rows of `each` pixels.
        let target = target.from(first, 0).first(rows[1], each);
        for pixel in (from..to).step_by(PAIR) {
            let pair = to - pixel > NR;
            // The overlap of the last panels with the previous ones is recomputed.
            let pixel = pixel.min(to - if pair { PAIR } else { NR });
            for (row, height, a) in strips.within(rows) {
                let at = row * each + pixel;
                let b = |k: usize, p: usize| {
                    let pixels = &x[k * each + pixel + p * NR..];
                    // Prefetches the next pair, which is too far away for the hardware prefetcher.
                    prefetch(pixels.as_ptr().wrapping_add(PAIR));
                    pixels.first_chunk().expect("room up to the end of the last plane")
                };
                by_height!(pair, height, {
                    // SAFETY: the assertions above show that the strip's `M` rows end before `rows[1]`, and that `P` panels
                    // from this pixel on end before `to`. The caller guarantees that no other thread accesses them.
                    unsafe { avx512_microkernel::<M, P>(a, b, target.add(at), each, P * NR, Start::Zero) }
                });
                if finish.nothing() {
                    continue;
                }
                for i in 0..height {
                    for at in (at + i * each..).step_by(NR).take(if pair { 2 } else { 1 }) {
                        // SAFETY: `pixel` points to `NR` results that the microkernel has just written.
                        unsafe {
                            let (pixel, at) = (target.add(at), first * each + at);
                            _mm512_storeu_ps(pixel, finish.lanes(channel + row + i, at, _mm512_loadu_ps(pixel)));
                        }
                    }
                }
            }
        }
        (rows[1] - rows[0]) * (to - from)
    }
}

impl Finish<'_> {
    /// Applies the epilogue to consecutive sums of a channel. The first sum is at index `at` of the output.
    #[target_feature(enable = "avx512f,avx2,fma")]
    #[inline]
    fn lanes(&self, channel: usize, at: usize, mut sum: __m512) -> __m512 {
        if let Some((scale, shift)) = self.factors(channel) {
            sum = _mm512_fmadd_ps(_mm512_set1_ps(scale), sum, _mm512_set1_ps(shift));
        }
        if let Some(residual) = self.residual {
            let residual: &[f32; NR] = residual[at..].first_chunk().expect("as many as there are results");
            // SAFETY: `residual` is an array of 16 elements.
            sum = _mm512_add_ps(sum, unsafe { _mm512_loadu_ps(residual.as_ptr()) });
        }
        // `_mm512_max_ps` returns its second operand if either operand is NaN, so that NaN propagates.
        if self.relu { _mm512_max_ps(_mm512_setzero_ps(), sum) } else { sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conv::Epilogue;

    #[test]
    fn rejects_places_of_less_than_a_pair() {
        if !has_avx512() {
            return;
        }
        let mut strips = PackedA::default();
        strips.pack_matrix(Matrix::new(&[2.0; 14], 14, 1));
        let (x, finish) = ([1.0; 128], Finish::new(Epilogue::default(), 14));
        let run = |pixels: [usize; 2], rows: [usize; 2]| {
            let piece =
                Piece { strips: &strips, rows, pixels, x: &x, each: 128, first: 0, channel: 0, finish: &finish };
            let mut out = vec![0.0; 14 * 128];
            let run = std::panic::AssertUnwindSafe(|| {
                // SAFETY: the CPU has AVX-512, and `out` is borrowed exclusively.
                unsafe { piece.run(&Target::of(&mut out, 128)) }
            });
            std::panic::catch_unwind(run).ok().map(|written| (written, out.iter().filter(|out| **out == 2.0).count()))
        };
        assert_eq!(run([96, 128], [0, 14]), Some((448, 448)));
        assert_eq!(run([32, 101], [7, 14]), Some((483, 483)));
        assert_eq!(run([112, 128], [0, 14]), None);
        assert_eq!(run([32, 63], [0, 14]), None);
        assert_eq!(run([96, 129], [0, 14]), None);
        // 14 rows form strips of 7.
        assert_eq!(run([96, 128], [0, 12]), None);
    }
}
