//! Image data sets: labelled images in folders and files, and the file formats of MNIST and CIFAR.

mod cifar;
mod idx;
mod labelled;

use image::RgbImage;

pub use cifar::{CifarKind, read_cifar};
pub use idx::{read_idx_images, read_idx_labels, read_mnist, write_idx_images, write_idx_labels};
pub use labelled::{LabelledImage, LabelledImages, open_labelled};

/// Images of one size, and their labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageSet {
    /// Number of images.
    pub n: usize,
    /// Number of channels: 1 for greyscale, 3 for red, green and blue.
    pub channels: usize,
    /// Number of rows.
    pub height: usize,
    /// Number of columns.
    pub width: usize,
    /// Values 0 to 255, `[n, channels, height, width]`.
    pub pixels: Vec<u8>,
    /// Class of each image; empty if the file has no labels.
    pub labels: Vec<u8>,
}

impl ImageSet {
    /// Returns the values of image `i`, `[channels, height, width]`; `None` if there is no such image.
    pub fn get(&self, i: usize) -> Option<&[u8]> {
        let size = self.channels * self.height * self.width;
        self.pixels.get(i.checked_mul(size)?..i.checked_add(1)?.checked_mul(size)?)
    }

    /// Returns image `i` as RGB, with grey copied to the three channels; `None` if there is no such image.
    pub fn image(&self, i: usize) -> Option<RgbImage> {
        let levels = self.get(i)?;
        let plane = self.height * self.width;
        let of = |channel: usize, pixel: usize| levels[channel.min(self.channels - 1) * plane + pixel];
        let pixels = (0..plane).flat_map(|p| [of(0, p), of(1, p), of(2, p)]).collect();
        RgbImage::from_raw(u32::try_from(self.width).ok()?, u32::try_from(self.height).ok()?, pixels)
    }
}
