//! Source pixels and weights of each output pixel.

use std::f64::consts::PI;

use crate::convention::ResampleCompat;
use crate::filter::Filter;

/// Fractional bits of a weight in Pillow: 8 bits are left for the level and 2 for the overshoot of a filter.
const PLACES: u32 = 32 - 8 - 2;

/// Weights of one direction: for each output pixel, its first source pixel and the weights from there on.
pub(crate) struct Taps {
    /// First source pixel of each output pixel, and the index of its weight in `weights`.
    starts: Vec<(usize, usize)>,
    weights: Vec<i32>,
    /// Weights repeated three times, once for each colour of a pixel. `eight_starts` has the index of each output
    /// pixel.
    eights: Vec<[i32; 24]>,
    eight_starts: Vec<usize>,
    /// Fractional bits of a weight.
    places: u32,
}

impl Taps {
    /// Computes the weights of `out` pixels from `offset` on, of `source` pixels resized to `resized`. The steps are
    /// those of Pillow and torch, so that the same values are rounded.
    pub fn new(source: u32, resized: u64, offset: u64, out: u32, filter: Filter, convention: ResampleCompat) -> Self {
        let scale = f64::from(source) / resized as f64;
        // The filter is stretched only if the image shrinks.
        let stretch = scale.max(1.0);
        let support = filter.support() * stretch;
        // Appends the weights of output pixel `i`, and returns its first source pixel.
        let weigh = |i: u64, exact: &mut Vec<f64>| {
            let centre = (i as f64 + 0.5) * scale;
            // The cast truncates, and saturates at 0.
            let start = (centre - support + 0.5) as u32;
            let end = ((centre + support + 0.5) as u32).min(source);
            let start = start.min(end.saturating_sub(1));
            let from = exact.len();
            exact.extend((start..end).map(|x| filter.weight((f64::from(x) - centre + 0.5) * (1.0 / stretch))));
            let total: f64 = exact[from..].iter().sum();
            if total != 0.0 {
                exact[from..].iter_mut().for_each(|weight| *weight /= total);
            }
            start as usize
        };
        let mut starts = Vec::with_capacity(out as usize);
        let mut exact = Vec::new();
        for i in 0..u64::from(out) {
            let from = exact.len();
            starts.push((weigh(offset + i, &mut exact), from));
        }
        let places = match convention {
            ResampleCompat::Torchvision => PLACES,
            ResampleCompat::Transformers => {
                let largest = |weights: &[f64]| weights.iter().copied().fold(0.0, f64::max);
                let mut most = largest(&exact);
                // The weights of cropped pixels count too, but at most 4096 of those pixels are examined.
                let mut other = Vec::new();
                for i in (0..offset).chain(offset + u64::from(out)..resized).take(1 << 12) {
                    other.clear();
                    weigh(i, &mut other);
                    most = largest(&other).max(most);
                }
                places_in_16_bits(most)
            }
        };
        let fixed = |weight: &f64| {
            let scaled = weight * f64::from(1u32 << places);
            (scaled + 0.5f64.copysign(scaled)) as i32
        };
        Self {
            starts,
            weights: exact.iter().map(fixed).collect(),
            eights: Vec::new(),
            eight_starts: Vec::new(),
            places,
        }
    }

    /// Adds the data for [`eights`](Self::eights).
    pub fn with_eights(mut self) -> Self {
        for i in 0..self.starts.len() {
            self.eight_starts.push(self.eights.len());
            let weights = self.get(i).map_or(&[][..], |(_, weights)| weights);
            let eights =
                weights.chunks(8).map(|some| std::array::from_fn(|level| some.get(level / 3).copied().unwrap_or(0)));
            let eights: Vec<[i32; 24]> = eights.collect();
            self.eights.extend(eights);
        }
        self
    }

    /// Returns the first source pixel of output pixel `i`, and the weights from there on, three times each, in groups
    /// of eight pixels, padded with zeros.
    #[inline(always)]
    pub fn eights(&self, i: usize) -> Option<(usize, &[[i32; 24]])> {
        let &(start, _) = self.starts.get(i)?;
        let to = self.eight_starts.get(i + 1).copied().unwrap_or(self.eights.len());
        Some((start, &self.eights[*self.eight_starts.get(i)?..to]))
    }

    /// Returns the initial value of a sum, which turns truncation into rounding.
    #[inline(always)]
    pub fn half(&self) -> i32 {
        1 << (self.places - 1)
    }

    /// Converts a sum to a level: drops the fractional bits and clamps the overshoot of a filter.
    #[inline(always)]
    pub fn level(&self, sum: i32) -> u8 {
        (sum >> self.places).clamp(0, 255) as u8
    }

    /// Returns the first source pixel of output pixel `i`, and the weights from there on.
    #[inline(always)]
    pub fn get(&self, i: usize) -> Option<(usize, &[i32])> {
        let &(start, from) = self.starts.get(i)?;
        let to = self.starts.get(i + 1).map_or(self.weights.len(), |&(_, next)| next);
        Some((start, &self.weights[from..to]))
    }

    /// Returns the first source pixel of all output pixels.
    pub fn first(&self) -> usize {
        self.starts.first().map_or(0, |&(start, _)| start)
    }

    /// Returns the end of the source pixels of all output pixels.
    pub fn end(&self) -> usize {
        self.get(self.starts.len().wrapping_sub(1)).map_or(0, |(start, weights)| start + weights.len())
    }
}

impl Filter {
    /// Returns the maximum distance in pixels with a non-zero weight, at a scale of one.
    fn support(self) -> f64 {
        match self {
            Self::Nearest => 0.0,
            Self::Bilinear => 1.0,
            Self::Bicubic => 2.0,
            Self::Lanczos => 3.0,
        }
    }

    /// Returns the weight of a pixel at this distance.
    fn weight(self, distance: f64) -> f64 {
        let x = distance.abs();
        match self {
            Self::Bilinear if x < 1.0 => 1.0 - x,
            Self::Bicubic if x < 1.0 => (1.5 * x - 2.5) * x * x + 1.0,
            Self::Bicubic if x < 2.0 => (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5,
            Self::Lanczos if (-3.0..3.0).contains(&distance) => sinc(distance) * sinc(distance / 3.0),
            _ => 0.0,
        }
    }
}

/// Returns the largest number of fractional bits for which the largest weight fits into a signed 16-bit integer.
fn places_in_16_bits(largest: f64) -> u32 {
    (1..=PLACES).take_while(|&places| ((0.5 + largest * f64::from(1u32 << places)) as i64) < 1 << 15).count().max(1)
        as u32
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 { 1.0 } else { (x * PI).sin() / (x * PI) }
}

/// Returns the source pixel at the centre of each of the `out` output pixels from `offset` on. torch computes centres
/// in f32, Pillow accumulates steps in f64. They differ if a centre is on the border of two pixels.
pub(crate) fn nearest(source: u32, resized: u64, offset: u64, out: u32, convention: ResampleCompat) -> Vec<usize> {
    let scale = f64::from(source) / resized as f64;
    let pixel = |place: f64| (place as usize).min(source as usize - 1);
    if convention == ResampleCompat::Transformers {
        let scale = source as f32 / resized as f32;
        return (offset..offset + u64::from(out)).map(|i| pixel(f64::from((i as f32 + 0.5) * scale))).collect();
    }
    if offset > 1 << 20 {
        return (0..u64::from(out)).map(|i| pixel(((offset + i) as f64 + 0.5) * scale)).collect();
    }
    // Accumulated like in Pillow, since rounding decides between two pixels.
    let places = std::iter::successors(Some(0.5 * scale), |place| Some(place + scale));
    places.skip(offset as usize).take(out as usize).map(pixel).collect()
}
