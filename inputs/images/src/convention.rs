//! Differences between the libraries' resampling.

/// Library that a preprocessor reproduces if torchvision and transformers differ. The differences are single grey
/// levels, and crops that are shifted by one pixel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ResampleCompat {
    /// torchvision's and timm's transforms, which resize with Pillow: weights have 22 fractional bits, and the
    /// direction with the larger reduction is resized first (as of Pillow 13). If an odd number of pixels is cropped,
    /// the half pixel is rounded to even.
    #[default]
    Torchvision,
    /// transformers' image processors as of version 5, which resize with torch: weights have 16 bits, and the
    /// horizontal direction is resized first. A half pixel in a crop is rounded up and left.
    Transformers,
}
