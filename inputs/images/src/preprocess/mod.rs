//! Preprocessing of an image to a model's input: resize, crop, rescale, normalise.

mod config;
mod entries;
mod geometry;
mod keys;
mod presets;
mod save;
mod timm;

use image::RgbImage;

use crate::convention::ResampleCompat;
use crate::error::{ImageError, Result};
use crate::filter::Filter;

/// Mean of ImageNet's red, green and blue, with values in 0..1.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// Standard deviation of ImageNet's red, green and blue, with values in 0..1.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// Resizing of an image before the crop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// No resizing.
    None,
    /// Resizes to this size, regardless of the aspect ratio.
    Exact {
        /// Height in pixels.
        height: u32,
        /// Width in pixels.
        width: u32,
    },
    /// Resizes the shorter side to `n` pixels, keeping the aspect ratio: the longer one becomes
    /// `int(n * long / short)`.
    Shorter(u32),
    /// Resizes to the smallest size that covers this one, keeping the aspect ratio (timm's `center` for non-square
    /// sizes).
    Cover {
        /// Height in pixels.
        height: u32,
        /// Width in pixels.
        width: u32,
    },
    /// Resizes to the largest size that fits into this one, keeping the aspect ratio (timm's `border`).
    Within {
        /// Height in pixels.
        height: u32,
        /// Width in pixels.
        width: u32,
    },
}

/// Preprocessing of a model's input images. Fields are in the order of application.
///
/// ```
/// use grove_images::{Preprocessor, RgbImage};
///
/// let preprocessor = Preprocessor::preset("torchvision")?;
/// let image = RgbImage::new(640, 480);
/// let pixels = preprocessor.apply(&image)?; // channels first: [3, 224, 224]
/// assert_eq!(pixels.len(), 3 * 224 * 224);
/// assert_eq!(pixels[0], (0.0 - 0.485) / 0.229); // black, in standard deviations of ImageNet's red
/// # Ok::<(), grove_images::ImageError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessor {
    /// Resizing before the crop.
    pub resize: Resize,
    /// Filter for resizing.
    pub filter: Filter,
    /// Centre crop to `[height, width]`. A smaller image is padded with colour `fill`. `None` for no crop.
    pub crop: Option<[u32; 2]>,
    /// Fraction of the resized image's sides that the crop keeps, from timm's files; `None` if only sizes are known.
    pub crop_pct: Option<f64>,
    /// Library whose arithmetic is reproduced.
    pub convention: ResampleCompat,
    /// Colour of the padding.
    pub fill: [u8; 3],
    /// Factor by which pixel values are multiplied: 1/255 maps them to 0..1.
    pub rescale: f32,
    /// Means, subtracted from each channel: three for colour, one for greyscale. Zeros for no change.
    pub mean: Vec<f32>,
    /// Standard deviations, by which each channel is divided, one for each mean. Ones for no change.
    pub std: Vec<f32>,
}

impl Preprocessor {
    /// Returns `[height, width]` of the result; `None` if it depends on the image (no crop, and a resize that keeps the
    /// aspect ratio or none).
    pub fn size(&self) -> Option<[usize; 2]> {
        match (self.crop, self.resize) {
            (Some([height, width]), _) | (None, Resize::Exact { height, width }) => {
                Some([height as usize, width as usize])
            }
            _ => None,
        }
    }

    /// Returns the number of channels: 3 for colour, 1 for greyscale.
    pub fn channels(&self) -> usize {
        self.mean.len()
    }

    /// Returns the same preprocessing for square images of `side` pixels. A resize that keeps the aspect ratio scales
    /// with the crop; any other becomes exact. With a `crop_pct`, the resize is timm's for such images.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn with_side(self, side: u32) -> Result<Self> {
        let scaled = self.crop_pct.map(|part| ((f64::from(side) / part).floor() as u32).max(1));
        let resize = match (self.resize, self.crop, scaled) {
            (Resize::Shorter(_) | Resize::Cover { .. }, Some(_), Some(scaled)) => Resize::Shorter(scaled),
            (Resize::Within { .. }, Some(_), Some(scaled)) => Resize::Within { height: scaled, width: scaled },
            (Resize::Shorter(n), Some([height, width]), None) => {
                let grown = u64::from(n) * u64::from(side) / u64::from(height.min(width).max(1));
                Resize::Shorter(grown.clamp(1, u64::from(u32::MAX)) as u32)
            }
            _ => {
                let side = scaled.filter(|_| self.crop.is_some()).unwrap_or(side);
                Resize::Exact { height: side, width: side }
            }
        };
        Self { resize, crop: self.crop.map(|_| [side, side]), ..self }.checked()
    }

    /// Returns preprocessing to `side` x `side` pixels for a model that is trained from scratch on a data set.
    ///
    /// `size` is the channels, height and width of all images, such as [`LabelledImages::size`]. Images of equal size
    /// are resized as a whole; with `None`, such as for photographs, images keep their aspect ratio and are cropped.
    /// Grey images are normalised with MNIST's statistics, others with ImageNet's.
    ///
    /// [`LabelledImages::size`]: crate::datasets::LabelledImages::size
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn for_images(size: Option<[usize; 3]>, side: u32) -> Result<Self> {
        let grey = size.is_some_and(|[channels, ..]| channels == 1);
        let base = Self::preset(if grey { "mnist" } else { "torchvision" })?;
        let (resize, crop) = match size {
            Some(_) => (Resize::Exact { height: side, width: side }, None),
            None => (Resize::Shorter(side.saturating_add(side / 8)), Some([side, side])),
        };
        let (mean, std) = match grey {
            true => (base.mean.clone(), base.std.clone()),
            false => (IMAGENET_MEAN.to_vec(), IMAGENET_STD.to_vec()),
        };
        Self { resize, crop, mean, std, filter: Filter::Bilinear, ..base }.checked()
    }

    /// Resizes and crops.
    ///
    /// Only the part that the crop keeps is resampled, so that an image of 30,000×2 pixels costs no more than others.
    ///
    /// # Errors
    /// The image is empty, or, without a crop, the result would exceed 178,956,970 pixels; as [`check`](Self::check).
    pub fn prepare(&self, image: &RgbImage) -> Result<RgbImage> {
        geometry::prepare(self, image)
    }

    /// Rescales and normalises: `(value * rescale - mean) / std`, `[c, h, w]`, with the height and width of the image.
    /// With one mean the image is first converted to greyscale: 0.299 red + 0.587 green + 0.114 blue.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn normalise(&self, image: &RgbImage) -> Result<Vec<f32>> {
        self.check()?;
        // There are only 256 input values, so each channel is a table.
        let tables: Vec<[f32; 256]> = self
            .mean
            .iter()
            .zip(&self.std)
            .map(|(mean, std)| std::array::from_fn(|level| (level as f32 * self.rescale - mean) / std))
            .collect();
        let mut values = Vec::with_capacity(image.width() as usize * image.height() as usize * tables.len());
        match tables.as_slice() {
            [grey] => values.extend(image.pixels().map(|p| grey[usize::from(luma(p.0))])),
            colours => {
                for (channel, table) in colours.iter().enumerate() {
                    values.extend(image.pixels().map(|p| table[usize::from(p.0[channel])]));
                }
            }
        }
        Ok(values)
    }

    /// Applies [`prepare`](Self::prepare), then [`normalise`](Self::normalise): `[c, height, width]`.
    ///
    /// # Errors
    /// As both.
    pub fn apply(&self, image: &RgbImage) -> Result<Vec<f32>> {
        self.normalise(&self.prepare(image)?)
    }

    fn checked(self) -> Result<Self> {
        self.check()?;
        Ok(self)
    }

    /// Checks that the fields are valid.
    ///
    /// # Errors
    /// The number of means is not 1 or 3, the number of standard deviations differs from it, a standard deviation is
    /// zero, a value is not finite, or a side is zero or over 65,536.
    pub fn check(&self) -> Result<()> {
        let wrong = |reason: String| Err(ImageError::BadOption(reason));
        if !matches!(self.mean.len(), 1 | 3) || self.std.len() != self.mean.len() {
            let (means, stds) = (self.mean.len(), self.std.len());
            return wrong(format!("{means} means and {stds} standard deviations: 3 of each for colour, 1 for grey"));
        }
        if self.mean.iter().chain(&self.std).chain([&self.rescale]).any(|v| !v.is_finite()) || self.std.contains(&0.0) {
            return wrong("means, standard deviations and rescale must be finite, standard deviations not 0".into());
        }
        let resize = match self.resize {
            Resize::None => [1, 1],
            Resize::Shorter(side) => [side, side],
            Resize::Exact { height, width } | Resize::Cover { height, width } | Resize::Within { height, width } => {
                [height, width]
            }
        };
        let sides = resize.into_iter().chain(self.crop.into_iter().flatten());
        match sides.into_iter().find(|side| !(1..=1 << 16).contains(side)) {
            Some(side) => wrong(format!("an image cannot be resized or cropped to {side} pixels: 1 to 65536")),
            None => Ok(()),
        }
    }
}

/// Computes ITU-R 601 luma, in Pillow's integer arithmetic.
pub(crate) fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}
