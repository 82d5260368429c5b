//! Point operations by look-up table, one table for each channel.

use image::RgbImage;

use super::colour::map;

type Table = [u8; 256];

fn identity() -> Table {
    std::array::from_fn(|level| level as u8)
}

fn look_up(image: &RgbImage, tables: &[Table; 3]) -> RgbImage {
    map(image, |pixel| std::array::from_fn(|channel| tables[channel][usize::from(pixel[channel])]))
}

/// Counts the pixels of each level, per channel.
fn histograms(image: &RgbImage) -> [[u64; 256]; 3] {
    let mut counts = [[0; 256]; 3];
    for pixel in image.pixels() {
        for (count, &level) in counts.iter_mut().zip(&pixel.0) {
            count[usize::from(level)] += 1;
        }
    }
    counts
}

/// Keeps the upper `bits` bits of each level.
pub(super) fn posterize(image: &RgbImage, bits: u32) -> RgbImage {
    let mask = !(255u32 >> bits.min(8)) as u8;
    look_up(image, &[std::array::from_fn(|level| level as u8 & mask); 3])
}

/// Inverts the levels from `threshold` on.
pub(super) fn solarize(image: &RgbImage, threshold: f64) -> RgbImage {
    let table = std::array::from_fn(|level| {
        let level = level as u8;
        if f64::from(level) < threshold { level } else { 255 - level }
    });
    look_up(image, &[table; 3])
}

/// Stretches each channel to 0 ..= 255.
pub(super) fn autocontrast(image: &RgbImage) -> RgbImage {
    let tables = histograms(image).map(|counts| {
        let low = counts.iter().position(|&n| n > 0).unwrap_or(0) as f64;
        let high = counts.iter().rposition(|&n| n > 0).unwrap_or(0) as f64;
        if high <= low {
            return identity();
        }
        let scale = 255.0 / (high - low);
        std::array::from_fn(|level| (level as f64 * scale - low * scale) as u8)
    });
    look_up(image, &tables)
}

/// Equalises the histogram of each channel.
pub(super) fn equalize(image: &RgbImage) -> RgbImage {
    let tables = histograms(image).map(|counts| {
        let total: u64 = counts.iter().sum();
        let last = counts.iter().rfind(|&&n| n > 0).copied().unwrap_or(0);
        // Pixels per level, without those of the highest level. A single level gives 0.
        let step = (total - last) / 255;
        if step == 0 {
            return identity();
        }
        let mut below = step / 2;
        let mut table = [0; 256];
        for (level, count) in table.iter_mut().zip(&counts) {
            *level = (below / step).min(255) as u8;
            below += count;
        }
        table
    });
    look_up(image, &tables)
}
