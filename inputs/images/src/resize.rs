//! Resizing with the same bits as Pillow: an antialiased filter in the horizontal direction, rounding to 8 bits, then
//! the vertical direction (or the reverse order), in fixed-point arithmetic.
//!
//! Faster crates use 16-bit weights and another order, which gives differences of up to eight levels at sharp edges.

use std::collections::VecDeque;

#[cfg(target_arch = "x86_64")]
use grove_kernels::CpuCapability;
use image::RgbImage;

use crate::convention::ResampleCompat;
use crate::filter::Filter;
use crate::taps::{Taps, nearest};

/// Resizes an image with antialiasing: equal to Pillow's `Image.resize`, and within one level of torchvision with
/// `antialias=True`. A side of zero gives an empty image.
pub fn resize(image: &RgbImage, width: u32, height: u32, filter: Filter) -> RgbImage {
    let whole = Region { left: 0, top: 0, width, height };
    resize_region(image, [u64::from(height), u64::from(width)], whole, filter, ResampleCompat::Torchvision)
}

/// A region of a resized image, in its pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub left: u64,
    pub top: u64,
    pub width: u32,
    pub height: u32,
}

/// Computes `region` of the image resized to `[height, width]`, at the cost of the region alone. Source pixels outside
/// the region contribute within the support of the filter.
pub(crate) fn resize_region(
    image: &RgbImage,
    [height, width]: [u64; 2],
    region: Region,
    filter: Filter,
    convention: ResampleCompat,
) -> RgbImage {
    let mut resized = RgbImage::new(region.width, region.height);
    if region.width == 0 || region.height == 0 || image.width() == 0 || image.height() == 0 {
        return resized;
    }
    if filter == Filter::Nearest {
        let columns = nearest(image.width(), width, region.left, region.width, convention);
        let rows = nearest(image.height(), height, region.top, region.height, convention);
        for (out, y) in resized.chunks_exact_mut(region.width as usize * 3).zip(rows) {
            let row = &image.as_raw()[y * image.width() as usize * 3..];
            for (pixel, x) in out.chunks_exact_mut(3).zip(&columns) {
                pixel.copy_from_slice(&row[x * 3..x * 3 + 3]);
            }
        }
        return resized;
    }
    let pass = Passes {
        // Like Pillow, skip the horizontal direction if its size is unchanged.
        across: (width != u64::from(image.width()))
            .then(|| Taps::new(image.width(), width, region.left, region.width, filter, convention).with_eights()),
        down: Taps::new(image.height(), height, region.top, region.height, filter, convention),
        left: region.left as usize,
        down_first: convention == ResampleCompat::Torchvision
            && down_first([image.height(), image.width()].map(i128::from), [height, width].map(i128::from)),
    };
    #[cfg(target_arch = "x86_64")]
    if CpuCapability::get() >= CpuCapability::Avx2 {
        // SAFETY: `CpuCapability::get` returns this level only if the CPU has AVX2, the only feature that the function
        // requires.
        unsafe { resample_avx2(image, &pass, &mut resized) };
        return resized;
    }
    resample::<false>(image, &pass, &mut resized);
    resized
}

/// Returns true if Pillow 13 resizes vertically first: if that removes more than twice as many rows as the other
/// direction removes columns. The rule was found by comparing its output with both orders; earlier versions always
/// resize horizontally first.
fn down_first([height, width]: [i128; 2], [new_height, new_width]: [i128; 2]) -> bool {
    new_height < height && height - new_height > 2 * (width - new_width)
}

/// The two passes of a resize.
struct Passes {
    across: Option<Taps>,
    down: Taps,
    /// First column of the region, if the horizontal size is unchanged.
    left: usize,
    down_first: bool,
}

/// [`resample`], compiled for AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn resample_avx2(image: &RgbImage, pass: &Passes, resized: &mut RgbImage) {
    resample::<true>(image, pass, resized);
}

/// Visits the rows of the source once. Each row is added, with its weights, to the output rows in its range. The
/// horizontal pass runs on each source row before that, or on each output row after it, so that no intermediate image
/// is stored.
#[inline(always)]
fn resample<const AVX2: bool>(
    image: &RgbImage,
    Passes { across, down, left, down_first }: &Passes,
    resized: &mut RgbImage,
) {
    let out_width = resized.width() as usize * 3;
    let stride = image.width() as usize * 3;
    // Columns that contribute to the region.
    let (from, to) = match across {
        Some(taps) => (taps.first() * 3, taps.end() * 3),
        None => (left * 3, left * 3 + out_width),
    };
    let (before, after) = if *down_first { (None, across.as_ref()) } else { (across.as_ref(), None) };
    let width = if before.is_some() { out_width } else { to - from };
    let mut row = vec![0; width];
    // Sums of the unfinished rows, from `done` on.
    let mut sums: VecDeque<Vec<i32>> = VecDeque::new();
    let mut spare: Vec<Vec<i32>> = Vec::new();
    let mut out = resized.chunks_exact_mut(out_width);
    let mut done = 0;
    for y in down.first()..down.end() {
        let source = &image.as_raw()[y * stride..][from..to];
        let levels = match before {
            Some(taps) => {
                resize_row::<AVX2>(source, taps, &mut row);
                &row
            }
            None => source,
        };
        for i in done.. {
            let Some((start, weights)) = down.get(i).filter(|(start, _)| *start <= y) else { break };
            if sums.len() <= i - done {
                let mut sum = spare.pop().unwrap_or_else(|| vec![0; width]);
                sum.fill(down.half());
                sums.push_back(sum);
            }
            if let (Some(&weight), Some(sum)) = (weights.get(y - start), sums.get_mut(i - done)) {
                for (sum, &level) in sum.iter_mut().zip(levels) {
                    *sum += weight * i32::from(level);
                }
            }
        }
        while down.get(done).is_some_and(|(start, weights)| start + weights.len() <= y + 1) {
            let (Some(sum), Some(out)) = (sums.pop_front(), out.next()) else { return };
            let finished = if after.is_some() { &mut row } else { &mut *out };
            for (level, &sum) in finished.iter_mut().zip(&sum) {
                *level = down.level(sum);
            }
            if let Some(taps) = after {
                resize_row::<AVX2>(&row, taps, out);
            }
            spare.push(sum);
            done += 1;
        }
    }
}

/// Resizes one row horizontally. `source` begins with the first contributing pixel.
#[inline(always)]
fn resize_row<const AVX2: bool>(source: &[u8], taps: &Taps, row: &mut [u8]) {
    let first = taps.first();
    for (i, pixel) in row.chunks_exact_mut(3).enumerate() {
        let Some((start, weights)) = taps.eights(i) else { return };
        // Eight pixels at a time; the three colours are separated only at the end.
        let (eights, rest) = source[(start - first) * 3..].as_chunks::<24>();
        let mut products = match () {
            // SAFETY: `AVX2` is true only in `resample_avx2`, which only runs if the CPU has AVX2.
            #[cfg(target_arch = "x86_64")]
            () if AVX2 => unsafe { products_avx2(eights, weights) },
            () => products(eights, weights),
        };
        // The remaining pixels, fewer than eight, at the end of the row.
        for weights in weights.iter().skip(eights.len()) {
            for ((product, &level), &weight) in products.iter_mut().zip(rest).zip(weights) {
                *product += weight * i32::from(level);
            }
        }
        for (colour, level) in pixel.iter_mut().enumerate() {
            *level = taps.level(taps.half() + products.iter().skip(colour).step_by(3).sum::<i32>());
        }
    }
}

/// Sums of the products of levels and weights, for each of the 24 lanes.
fn products(levels: &[[u8; 24]], weights: &[[i32; 24]]) -> [i32; 24] {
    let mut products = [0; 24];
    for (levels, weights) in levels.iter().zip(weights) {
        for ((product, &level), &weight) in products.iter_mut().zip(levels).zip(weights) {
            *product += weight * i32::from(level);
        }
    }
    products
}

/// [`products`] in three vectors. The compiler's own vectorisation gathers single bytes for each of the 24 lanes.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn products_avx2(levels: &[[u8; 24]], weights: &[[i32; 24]]) -> [i32; 24] {
    use std::arch::x86_64::*;

    let mut sums = [_mm256_setzero_si256(); 3];
    for (levels, weights) in levels.iter().zip(weights) {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the eight elements from 8·i on are within the array of 24, since i < 3, and unaligned loads are
            // used.
            let (level, weight) = unsafe {
                let level = _mm_loadl_epi64(levels.as_ptr().add(8 * i).cast());
                (level, _mm256_loadu_si256(weights.as_ptr().add(8 * i).cast()))
            };
            *sum = _mm256_add_epi32(*sum, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(level), weight));
        }
    }
    let mut products = [0; 24];
    for (i, sum) in sums.into_iter().enumerate() {
        // SAFETY: the eight elements from 8·i on are within the array of 24, since i < 3, and the store is unaligned.
        unsafe { _mm256_storeu_si256(products.as_mut_ptr().add(8 * i).cast(), sum) };
    }
    products
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_products() {
        let levels: [[u8; 24]; 2] = [std::array::from_fn(|i| i as u8), [255; 24]];
        let weights = [[1000; 24], [-2; 24]];
        // 1000·i − 2·255.
        let expected: [i32; 24] = std::array::from_fn(|i| 1000 * i as i32 - 510);
        assert_eq!(products(&levels, &weights), expected);
        assert_eq!(products(&levels[..1], &weights), expected.map(|v| v + 510));
        #[cfg(target_arch = "x86_64")]
        if CpuCapability::get() >= CpuCapability::Avx2 {
            // SAFETY: `CpuCapability::get` returns this level only if the CPU has AVX2.
            assert_eq!(unsafe { products_avx2(&levels, &weights) }, expected);
        }
    }
}
