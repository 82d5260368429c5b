//! Mixing of the images in a batch: mixup and CutMix.

use rand::{Rng, RngExt, seq::SliceRandom};
use rand_distr::{Beta, Distribution};

use crate::error::{ImageError, Result};

/// A rectangle in an image, in pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rect {
    /// First column.
    pub left: usize,
    /// First row.
    pub top: usize,
    /// Number of columns.
    pub width: usize,
    /// Number of rows.
    pub height: usize,
}

/// Options for mixing batches. mixup blends two images (Zhang et al. 2017, <https://arxiv.org/abs/1710.09412>);
/// CutMix pastes a rectangle of one into the other (Yun et al. 2019, <https://arxiv.org/abs/1905.04899>).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// mixup's lambda is sampled from Beta(alpha, alpha); 0 disables mixup.
    pub mixup_alpha: f64,
    /// CutMix's lambda is sampled from Beta(alpha, alpha); 0 disables CutMix.
    pub cutmix_alpha: f64,
    /// Probability of mixing a batch, 0 to 1.
    pub p: f64,
    /// Probability of CutMix instead of mixup, if both are enabled.
    pub cutmix_share: f64,
}

impl Default for Mix {
    /// timm's and DeiT's options: mixup with 0.8, CutMix with 1.0, every batch, each with probability 0.5.
    fn default() -> Self {
        Self { mixup_alpha: 0.8, cutmix_alpha: 1.0, p: 1.0, cutmix_share: 0.5 }
    }
}

/// The mixing of one batch. The targets are `lambda * target[i] + (1 - lambda) * target[partner[i]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixed {
    /// For each image, the index of the image that is mixed into it.
    pub partner: Vec<usize>,
    /// Fraction of the original image: a weight in mixup, a share of the area in CutMix.
    pub lambda: f32,
    /// Region that CutMix copies from the partner; `None` for mixup.
    pub region: Option<Rect>,
}

impl Mix {
    /// Samples the mixing of a batch of `n` images of `h × w` pixels.
    ///
    /// # Errors
    /// An alpha is negative or not finite.
    pub fn draw(&self, n: usize, [h, w]: [usize; 2], rng: &mut (impl Rng + ?Sized)) -> Result<Mixed> {
        if [self.mixup_alpha, self.cutmix_alpha].iter().any(|alpha| !alpha.is_finite() || *alpha < 0.0) {
            return Err(ImageError::BadOption(format!("{self:?}: each alpha must be 0 (off) or more")));
        }
        let mut partner: Vec<usize> = (0..n).collect();
        let (mixup, cutmix) = (self.mixup_alpha > 0.0, self.cutmix_alpha > 0.0);
        if !(mixup || cutmix) || rng.random::<f64>() >= self.p {
            return Ok(Mixed { partner, lambda: 1.0, region: None });
        }
        partner.shuffle(rng);
        let cut = cutmix && (!mixup || rng.random::<f64>() < self.cutmix_share);
        let alpha = if cut { self.cutmix_alpha } else { self.mixup_alpha };
        let beta = Beta::new(alpha, alpha).map_err(|e| ImageError::BadOption(format!("Mix: alpha {alpha}: {e}")))?;
        let lambda: f64 = beta.sample(rng);
        // A tiny alpha can give 0/0.
        let lambda = if lambda.is_finite() { lambda.clamp(0.0, 1.0) } else { 1.0 };
        if !cut || h == 0 || w == 0 {
            return Ok(Mixed { partner, lambda: lambda as f32, region: None });
        }
        let half = 0.5 * (1.0 - lambda).sqrt();
        let (left, width) = span(w, half, rng);
        let (top, height) = span(h, half, rng);
        // The image's border may clip the rectangle, so lambda is recomputed from its actual area.
        let lambda = 1.0 - (width * height) as f64 / (w * h) as f64;
        Ok(Mixed { partner, lambda: lambda as f32, region: Some(Rect { left, top, width, height }) })
    }
}

/// Returns start and length of an interval in `side`, about a random centre, of half-length `half * side`, clipped to
/// `side`.
fn span(side: usize, half: f64, rng: &mut (impl Rng + ?Sized)) -> (usize, usize) {
    let middle = rng.random_range(0..side);
    let half = (half * side as f64) as usize;
    let from = middle.saturating_sub(half);
    (from, (middle + half).min(side) - from)
}

impl Mixed {
    /// Mixes a batch in place; `pixels` is `[n, c, h, w]`.
    ///
    /// # Errors
    /// The length is not `n * c * h * w`, the number of partners is not `n`, a partner's index is out of range, or the
    /// region is not inside the images.
    pub fn apply(&self, pixels: &mut [f32], [n, c, h, w]: [usize; 4]) -> Result<()> {
        let wrong = |reason: String| Err(ImageError::BadOption(format!("Mixed: {reason}")));
        let size = c.checked_mul(h).and_then(|size| size.checked_mul(w));
        let Some(size) = size.filter(|size| size.checked_mul(n) == Some(pixels.len())) else {
            return wrong(format!("{} values are not [{n}, {c}, {h}, {w}]", pixels.len()));
        };
        if self.partner.len() != n || self.partner.iter().any(|&other| other >= n) {
            return wrong(format!("there must be one partner for each of the {n} images"));
        }
        if size == 0 || self.lambda == 1.0 {
            return Ok(());
        }
        let whole = Rect { left: 0, top: 0, width: w, height: h };
        let region = self.region.unwrap_or(whole);
        let ends = [region.left.checked_add(region.width), region.top.checked_add(region.height)];
        if !matches!(ends, [Some(right), Some(bottom)] if right <= w && bottom <= h) {
            return wrong(format!("{region:?} is not within {w}×{h} pixels"));
        }
        // mixup keeps the fraction lambda of the image; CutMix replaces the region completely.
        let keep = if self.region.is_some() { 0.0 } else { self.lambda };
        let rows = || {
            let plane = move |p: usize| (0..region.height).map(move |y| (p * h + region.top + y) * w + region.left);
            (0..c).flat_map(plane)
        };
        let area = c * region.width * region.height;
        // Copied first, since a partner may already be mixed.
        let mut parts = Vec::with_capacity(n * area);
        for image in pixels.chunks_exact(size) {
            rows().for_each(|at| parts.extend_from_slice(&image[at..at + region.width]));
        }
        for (image, &partner) in pixels.chunks_exact_mut(size).zip(&self.partner) {
            let mut part = parts[partner * area..(partner + 1) * area].chunks_exact(region.width.max(1));
            for at in rows() {
                let Some(other) = part.next() else { break };
                for (mine, theirs) in image[at..at + region.width].iter_mut().zip(other) {
                    *mine = if keep == 0.0 { *theirs } else { keep * *mine + (1.0 - keep) * theirs };
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    #[test]
    fn mixup_blends_with_the_partner() {
        let mut pixels = vec![0.0, 4.0, 8.0, 12.0, 100.0, 200.0];
        let mixed = Mixed { partner: vec![1, 2, 0], lambda: 0.75, region: None };
        mixed.apply(&mut pixels, [3, 1, 1, 2]).unwrap();
        // 0.75·0 + 0.25·8, 0.75·4 + 0.25·12, 0.75·8 + 0.25·100, …, 0.75·100 + 0.25·0, 0.75·200 + 0.25·4.
        assert_eq!(pixels, [2.0, 6.0, 31.0, 59.0, 75.0, 151.0]);
    }

    #[test]
    fn cutmix_takes_the_region_of_each_channel() {
        let mut pixels: Vec<f32> = (0..24).map(|v| v as f32).collect();
        let region = Some(Rect { left: 1, top: 0, width: 2, height: 1 });
        Mixed { partner: vec![1, 0], lambda: 0.67, region }.apply(&mut pixels, [2, 2, 2, 3]).unwrap();
        assert_eq!(pixels[..12], [0.0, 13.0, 14.0, 3.0, 4.0, 5.0, 6.0, 19.0, 20.0, 9.0, 10.0, 11.0]);
        assert_eq!(pixels[12..], [12.0, 1.0, 2.0, 15.0, 16.0, 17.0, 18.0, 7.0, 8.0, 21.0, 22.0, 23.0]);
    }

    #[test]
    fn draws_follow_the_beta_distribution() {
        let mut rng = SmallRng::seed_from_u64(3);
        let mix = Mix { mixup_alpha: 0.4, cutmix_alpha: 0.0, ..Mix::default() };
        let lambdas: Vec<f64> = (0..20_000).map(|_| f64::from(mix.draw(4, [8, 8], &mut rng).unwrap().lambda)).collect();
        let mean = lambdas.iter().sum::<f64>() / 20_000.0;
        let variance = lambdas.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / 20_000.0;
        // Beta(a, a): mean 1/2, variance 1/(4(2a + 1)) = 0.13889.
        assert!((mean - 0.5).abs() < 0.01 && (variance - 0.13889).abs() < 0.003, "{mean} {variance}");
    }

    #[test]
    fn the_share_is_the_area() {
        let mut rng = SmallRng::seed_from_u64(5);
        let mix = Mix { mixup_alpha: 0.0, ..Mix::default() };
        for _ in 0..1000 {
            let mixed = mix.draw(3, [7, 11], &mut rng).unwrap();
            let Rect { left, top, width, height } = mixed.region.unwrap();
            assert!(left + width <= 11 && top + height <= 7);
            assert!((mixed.lambda - (1.0 - (width * height) as f32 / 77.0)).abs() < 1e-6);
            let mut sorted = mixed.partner.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2]);
        }
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let mut pixels = vec![0.0; 8];
        let mixed = |partner, region| Mixed { partner, lambda: 0.5, region };
        assert!(mixed(vec![1, 0], None).apply(&mut pixels, [2, 1, 2, 3]).is_err());
        assert!(mixed(vec![1, 2], None).apply(&mut pixels, [2, 1, 2, 2]).is_err());
        let region = Some(Rect { left: 1, top: 0, width: 2, height: 1 });
        assert!(mixed(vec![1, 0], region).apply(&mut pixels, [2, 1, 2, 2]).is_err());
        let mix = Mix { cutmix_alpha: f64::NAN, ..Mix::default() };
        assert!(mix.draw(2, [2, 2], &mut SmallRng::seed_from_u64(0)).is_err());
    }
}
