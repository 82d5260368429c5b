//! Random crops of images.

use image::{Rgb, RgbImage, imageops};
use rand::{Rng, RngExt};

use super::{is_range, sample_sides};
use crate::error::{ImageError, Result};
use crate::filter::Filter;
use crate::resize::resize;

/// A random crop of random area and aspect ratio, resized (Szegedy et al. 2014, "Going deeper with convolutions";
/// torchvision's `RandomResizedCrop`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomResizedCrop {
    /// `[height, width]` of the result.
    pub size: [u32; 2],
    /// Minimum and maximum area of the crop, as fractions of the image's area.
    pub scale: (f64, f64),
    /// Minimum and maximum aspect ratio, width ÷ height.
    pub ratio: (f64, f64),
    /// Filter for resizing.
    pub filter: Filter,
}

impl RandomResizedCrop {
    /// Creates a crop with torchvision's defaults: area 0.08 to 1, aspect ratio 3:4 to 4:3, bilinear.
    pub fn new(size: [u32; 2]) -> Self {
        Self { size, scale: (0.08, 1.0), ratio: (3.0 / 4.0, 4.0 / 3.0), filter: Filter::Bilinear }
    }

    /// Returns a crop of the image, resized to [`size`](Self::size).
    ///
    /// # Errors
    /// The size, scale or ratio is not positive, or the image is empty.
    pub fn apply(&self, image: &RgbImage, rng: &mut (impl Rng + ?Sized)) -> Result<RgbImage> {
        check_size(self.size)?;
        if !is_range(self.scale) || !is_range(self.ratio) {
            let (scale, ratio) = (self.scale, self.ratio);
            let reason =
                format!("RandomResizedCrop: scale {scale:?} and ratio {ratio:?} must be positive and ascending");
            return Err(ImageError::BadOption(reason));
        }
        if image.width() == 0 || image.height() == 0 {
            return Err(ImageError::BadOption("RandomResizedCrop: the image is empty".into()));
        }
        let [left, top, width, height] = self.draw(image.width(), image.height(), rng);
        let part = imageops::crop_imm(image, left, top, width, height).to_image();
        Ok(resize(&part, self.size[1], self.size[0], self.filter))
    }

    /// Samples the crop: `[left, top, width, height]`.
    fn draw(&self, width: u32, height: u32, rng: &mut (impl Rng + ?Sized)) -> [u32; 4] {
        let area = f64::from(width) * f64::from(height);
        let (narrow, broad) = self.ratio;
        for _ in 0..10 {
            let [w, h] = sample_sides(area, self.scale, self.ratio, rng);
            if w >= 1.0 && h >= 1.0 && w <= f64::from(width) && h <= f64::from(height) {
                let (w, h) = (w as u32, h as u32);
                let top = rng.random_range(0..=height - h);
                return [rng.random_range(0..=width - w), top, w, h];
            }
        }
        // After ten failures: the largest centre crop with an allowed aspect ratio.
        let proportions = f64::from(width) / f64::from(height);
        let (w, h) = if proportions < narrow {
            (width, (f64::from(width) / narrow).round_ties_even() as u32)
        } else if proportions > broad {
            ((f64::from(height) * broad).round_ties_even() as u32, height)
        } else {
            (width, height)
        };
        let (w, h) = (w.clamp(1, width), h.clamp(1, height));
        [(width - w) / 2, (height - h) / 2, w, h]
    }
}

/// A random crop of fixed size from the padded image, which shifts small images (He et al. 2015 for CIFAR: 32×32 out
/// of 40×40; torchvision's `RandomCrop`).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomCrop {
    /// `[height, width]` of the result.
    pub size: [u32; 2],
    /// Padding on every side, in pixels.
    pub padding: u32,
    /// Colour of the padding.
    pub fill: [u8; 3],
}

impl RandomCrop {
    /// Creates a crop with black padding.
    pub fn new(size: [u32; 2], padding: u32) -> Self {
        Self { size, padding, fill: [0; 3] }
    }

    /// Returns a crop of the image, of [`size`](Self::size).
    ///
    /// # Errors
    /// A side is zero, or larger than that of the padded image.
    pub fn apply(&self, image: &RgbImage, rng: &mut (impl Rng + ?Sized)) -> Result<RgbImage> {
        check_size(self.size)?;
        let [height, width] = self.size;
        let border = i64::from(self.padding);
        let spare = |have: u32, want: u32| {
            let spare = i64::from(have) + 2 * border - i64::from(want);
            if spare >= 0 { Ok(spare) } else { Err(self.too_small(image)) }
        };
        let (down, across) = (spare(image.height(), height)?, spare(image.width(), width)?);
        let top = rng.random_range(0..=down) - border;
        let left = rng.random_range(0..=across) - border;
        let mut view = RgbImage::from_pixel(width, height, Rgb(self.fill));
        imageops::replace(&mut view, image, -left, -top);
        Ok(view)
    }

    fn too_small(&self, image: &RgbImage) -> ImageError {
        let ([height, width], padding) = (self.size, self.padding);
        let (w, h) = image.dimensions();
        let reason =
            format!("RandomCrop: {width}×{height} does not fit into {w}×{h} pixels with a border of {padding}");
        ImageError::BadOption(format!("{reason}; resize first, or pad more"))
    }
}

fn check_size([height, width]: [u32; 2]) -> Result<()> {
    if (1..=1 << 14).contains(&height) && (1..=1 << 14).contains(&width) {
        return Ok(());
    }
    Err(ImageError::BadOption(format!("a view of {width}×{height} pixels: each side must be 1 to 16384")))
}
