//! Resizing as Pillow does it, to the last bit: an antialiased filter across, rounded to grey levels, then down (or
//! the other way round), in fixed-point arithmetic.
//!
//! The crates that resize fast weigh with 16 bits and have an order of their own, which gives up to eight levels of
//! difference at sharp edges.

use std::collections::VecDeque;

use image::RgbImage;

use crate::convention::Convention;
use crate::filter::Filter;
use crate::taps::{Taps, nearest};

/// Resizes a picture with antialiasing: what Pillow's `Image.resize` gives, within one grey level of torchvision with
/// `antialias=True`. A side of zero gives an empty picture.
pub fn resize(image: &RgbImage, width: u32, height: u32, filter: Filter) -> RgbImage {
    let whole = Region { left: 0, top: 0, width, height };
    resize_region(image, [u64::from(height), u64::from(width)], whole, filter, Convention::Torchvision)
}

/// A part of a picture that was resized, in pixels of the resized picture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub left: u64,
    pub top: u64,
    pub width: u32,
    pub height: u32,
}

/// What resizing to `[height, width]` and then cutting out `region` gives, at the cost of the region alone. Pixels
/// outside it count as far as the filter reaches.
pub(crate) fn resize_region(
    image: &RgbImage,
    [height, width]: [u64; 2],
    region: Region,
    filter: Filter,
    convention: Convention,
) -> RgbImage {
    let mut resized = RgbImage::new(region.width, region.height);
    if region.width == 0 || region.height == 0 || image.width() == 0 || image.height() == 0 {
        return resized;
    }
    if filter == Filter::Nearest {
        let columns = nearest(image.width(), width, region.left, region.width);
        let rows = nearest(image.height(), height, region.top, region.height);
        for (out, y) in resized.chunks_exact_mut(region.width as usize * 3).zip(rows) {
            let row = &image.as_raw()[y * image.width() as usize * 3..];
            for (pixel, x) in out.chunks_exact_mut(3).zip(&columns) {
                pixel.copy_from_slice(&row[x * 3..x * 3 + 3]);
            }
        }
        return resized;
    }
    let pass = Passes {
        // Pillow leaves a direction alone in which nothing changes.
        across: (width != u64::from(image.width()))
            .then(|| Taps::new(image.width(), width, region.left, region.width, filter, convention).with_eights()),
        down: Taps::new(image.height(), height, region.top, region.height, filter, convention),
        left: region.left as usize,
        down_first: convention == Convention::Torchvision
            && down_first([image.height(), image.width()].map(i128::from), [height, width].map(i128::from)),
    };
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2, which is all that the function asks for.
        unsafe { resample_avx2(image, &pass, &mut resized) };
        return resized;
    }
    resample::<false>(image, &pass, &mut resized);
    resized
}

/// Whether Pillow 13 goes down before it goes across: where that takes away much more, twice the rows than columns.
/// Found by comparing its output with that of both orders; before version 13 it always went across first.
fn down_first([height, width]: [i128; 2], [new_height, new_width]: [i128; 2]) -> bool {
    new_height < height && height - new_height > 2 * (width - new_width)
}

/// The two directions of a resize.
struct Passes {
    across: Option<Taps>,
    down: Taps,
    /// The first column that is kept, where there is nothing to do across.
    left: usize,
    down_first: bool,
}

/// [`resample`], compiled for wider vectors.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn resample_avx2(image: &RgbImage, pass: &Passes, resized: &mut RgbImage) {
    resample::<true>(image, pass, resized);
}

/// Goes down the source once. Each of its rows is added, weighted, to the new rows that it reaches; it is resized
/// across before that, or they are after, so that no picture of the size in between is ever held.
#[inline(always)]
fn resample<const AVX2: bool>(
    image: &RgbImage,
    Passes { across, down, left, down_first }: &Passes,
    resized: &mut RgbImage,
) {
    let out_width = resized.width() as usize * 3;
    let stride = image.width() as usize * 3;
    // The columns that matter.
    let (from, to) = match across {
        Some(taps) => (taps.first() * 3, taps.end() * 3),
        None => (left * 3, left * 3 + out_width),
    };
    let (before, after) = if *down_first { (None, across.as_ref()) } else { (across.as_ref(), None) };
    let width = if before.is_some() { out_width } else { to - from };
    let mut row = vec![0; width];
    // The sums of the rows under way: those from `done` on that have begun.
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

/// One row, across. `source` begins with the first pixel that matters.
#[inline(always)]
fn resize_row<const AVX2: bool>(source: &[u8], taps: &Taps, row: &mut [u8]) {
    let first = taps.first();
    for (i, pixel) in row.chunks_exact_mut(3).enumerate() {
        let Some((start, weights)) = taps.eights(i) else { return };
        // Eight pixels at a time, the colours apart only at the end.
        let (eights, rest) = source[(start - first) * 3..].as_chunks::<24>();
        let mut products = match () {
            // SAFETY: only `resample_avx2` asks for this, and needs AVX2 itself.
            #[cfg(target_arch = "x86_64")]
            () if AVX2 => unsafe { products_avx2(eights, weights) },
            () => products(eights, weights),
        };
        // Fewer than eight are left at the end of the row.
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

/// Sums of the products of levels and weights, each of the 24 by itself.
fn products(levels: &[[u8; 24]], weights: &[[i32; 24]]) -> [i32; 24] {
    let mut products = [0; 24];
    for (levels, weights) in levels.iter().zip(weights) {
        for ((product, &level), &weight) in products.iter_mut().zip(levels).zip(weights) {
            *product += weight * i32::from(level);
        }
    }
    products
}

/// [`products`] in three vectors. The compiler's own choice is vectors of one of the 24 each, gathered byte by byte.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "avx2")]
fn products_avx2(levels: &[[u8; 24]], weights: &[[i32; 24]]) -> [i32; 24] {
    use std::arch::x86_64::*;

    let mut sums = [_mm256_setzero_si256(); 3];
    for (levels, weights) in levels.iter().zip(weights) {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: the eight from 8·i on lie within the 24, and neither load asks for alignment.
            let (level, weight) = unsafe {
                let level = _mm_loadl_epi64(levels.as_ptr().add(8 * i).cast());
                (level, _mm256_loadu_si256(weights.as_ptr().add(8 * i).cast()))
            };
            *sum = _mm256_add_epi32(*sum, _mm256_mullo_epi32(_mm256_cvtepu8_epi32(level), weight));
        }
    }
    let mut products = [0; 24];
    for (i, sum) in sums.into_iter().enumerate() {
        // SAFETY: as above.
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
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            assert_eq!(unsafe { products_avx2(&levels, &weights) }, expected);
        }
    }
}
