//! From a picture to the numbers that a model was trained on: resize, crop, scale, normalise.

mod config;
mod geometry;
mod presets;
mod save;
mod timm;

use image::RgbImage;

use crate::convention::Convention;
use crate::error::{ImageError, Result};
use crate::filter::Filter;

/// ImageNet's mean colour, for red, green and blue in 0..1.
pub const IMAGENET_MEAN: [f32; 3] = [0.485, 0.456, 0.406];
/// ImageNet's standard deviation of each colour.
pub const IMAGENET_STD: [f32; 3] = [0.229, 0.224, 0.225];

/// How a picture is resized before it is cropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resize {
    /// It is not.
    None,
    /// To this size, whatever that does to its proportions.
    Exact {
        /// In pixels.
        height: u32,
        /// In pixels.
        width: u32,
    },
    /// Its shorter side to so many pixels, its proportions kept: the longer one becomes `int(n * long / short)`.
    Shorter(u32),
    /// Just large enough to cover this size, its proportions kept (timm's `center` for oblong sizes).
    Cover {
        /// In pixels.
        height: u32,
        /// In pixels.
        width: u32,
    },
    /// Just small enough to fit into this size, its proportions kept (timm's `border`).
    Within {
        /// In pixels.
        height: u32,
        /// In pixels.
        width: u32,
    },
}

/// Everything that is done to a picture before a model sees it. Fields are in the order in which they act.
///
/// ```
/// use grove_images::{Preprocessor, RgbImage};
///
/// let preprocessor = Preprocessor::preset("torchvision")?;
/// let picture = RgbImage::new(640, 480);
/// let pixels = preprocessor.apply(&picture)?; // channels first: [3, 224, 224]
/// assert_eq!(pixels.len(), 3 * 224 * 224);
/// assert_eq!(pixels[0], (0.0 - 0.485) / 0.229); // black, in standard deviations of ImageNet's red
/// # Ok::<(), grove_images::ImageError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Preprocessor {
    /// How to resize.
    pub resize: Resize,
    /// The filter to resize with.
    pub filter: Filter,
    /// Cut this `[height, width]` out of the centre; a smaller picture gets a border of `fill`.
    pub crop: Option<[u32; 2]>,
    /// Whose arithmetic it is.
    pub convention: Convention,
    /// The border's colour.
    pub fill: [u8; 3],
    /// What grey levels are multiplied with: 1/255 makes them 0..1.
    pub rescale: f32,
    /// Subtracted from each channel. Three means for colour, one for grey. Zeros do nothing.
    pub mean: Vec<f32>,
    /// What each channel is divided by then, as many as there are means. Ones do nothing.
    pub std: Vec<f32>,
}

impl Preprocessor {
    /// `[height, width]` of what comes out, or `None` where that depends on the picture (a resize that keeps
    /// proportions, or none, without a crop).
    pub fn size(&self) -> Option<[usize; 2]> {
        match (self.crop, self.resize) {
            (Some([height, width]), _) | (None, Resize::Exact { height, width }) => {
                Some([height as usize, width as usize])
            }
            _ => None,
        }
    }

    /// 3 for colour, 1 for grey.
    pub fn channels(&self) -> usize {
        self.mean.len()
    }

    /// Resizes and crops.
    ///
    /// Only the part that the crop keeps is resampled, so that a picture of 30,000×2 pixels costs no more than others.
    ///
    /// # Errors
    /// An empty picture; without a crop, a result of more than 178,956,970 pixels.
    pub fn prepare(&self, image: &RgbImage) -> Result<RgbImage> {
        geometry::prepare(self, image)
    }

    /// Rescales and normalises: `(level * rescale - mean) / std`, channels first, `[c, h, w]` of the picture given.
    /// With one mean the picture becomes grey first: 0.299 red + 0.587 green + 0.114 blue.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn normalise(&self, image: &RgbImage) -> Result<Vec<f32>> {
        self.check()?;
        // There are only 256 grey levels, so each channel is a table.
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

    /// [`prepare`](Self::prepare), then [`normalise`](Self::normalise): `[c, height, width]`, channels first.
    ///
    /// # Errors
    /// Those of both.
    pub fn apply(&self, image: &RgbImage) -> Result<Vec<f32>> {
        self.check()?;
        self.normalise(&self.prepare(image)?)
    }

    /// Whether the fields make sense together.
    ///
    /// # Errors
    /// Another number of means than 1 or 3, another number of standard deviations than of means, a standard deviation
    /// of zero, a number that is not finite, a side of zero or beyond 65,536.
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
            Some(side) => wrong(format!("a picture cannot be resized or cropped to {side} pixels: 1 to 65536")),
            None => Ok(()),
        }
    }
}

/// Grey as ITU-R 601 has it, in Pillow's integer arithmetic.
pub(crate) fn luma([r, g, b]: [u8; 3]) -> u8 {
    ((u32::from(r) * 19595 + u32::from(g) * 38470 + u32::from(b) * 7471 + 0x8000) >> 16) as u8
}
