//! The individual operations of RandAugment.

use image::RgbImage;

use super::{affine, colour, histogram};

/// An operation of [`RandAugment`](super::RandAugment). Each variant documents the meaning of its magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// No change.
    Identity,
    /// Horizontal shear by `magnitude` pixels per row.
    ShearX,
    /// Vertical shear by `magnitude` pixels per column.
    ShearY,
    /// Translation to the right by `magnitude` pixels, truncated to an integer.
    TranslateX,
    /// Translation down by `magnitude` pixels, truncated to an integer.
    TranslateY,
    /// Counterclockwise rotation by `magnitude` degrees.
    Rotate,
    /// Brightness multiplied by `1 + magnitude`.
    Brightness,
    /// Saturation multiplied by `1 + magnitude`.
    Color,
    /// Contrast multiplied by `1 + magnitude`.
    Contrast,
    /// Sharpness multiplied by `1 + magnitude`.
    Sharpness,
    /// Keeps the upper `magnitude` bits of each level.
    Posterize,
    /// Inverts levels of at least `magnitude`.
    Solarize,
    /// Stretches each channel to the whole range.
    AutoContrast,
    /// Equalises each channel's histogram.
    Equalize,
}

impl Op {
    /// All fourteen operations, in torchvision's order.
    pub const ALL: [Self; 14] = [
        Self::Identity,
        Self::ShearX,
        Self::ShearY,
        Self::TranslateX,
        Self::TranslateY,
        Self::Rotate,
        Self::Brightness,
        Self::Color,
        Self::Contrast,
        Self::Sharpness,
        Self::Posterize,
        Self::Solarize,
        Self::AutoContrast,
        Self::Equalize,
    ];
}

/// Applies one operation as torchvision does to a Pillow image, with nearest-neighbour sampling. Pixels outside the
/// image are `fill`.
pub fn apply_op(image: &RgbImage, op: Op, magnitude: f64, fill: [u8; 3]) -> RgbImage {
    let factor = (1.0 + magnitude) as f32;
    match op {
        Op::Identity => image.clone(),
        Op::ShearX => affine::shear_x(image, magnitude, fill),
        Op::ShearY => affine::shear_y(image, magnitude, fill),
        Op::TranslateX => affine::translate(image, magnitude.trunc(), 0.0, fill),
        Op::TranslateY => affine::translate(image, 0.0, magnitude.trunc(), fill),
        Op::Rotate => affine::rotate(image, magnitude, fill),
        Op::Brightness => colour::brightness(image, factor),
        Op::Color => colour::saturation(image, factor),
        Op::Contrast => colour::contrast(image, factor),
        Op::Sharpness => colour::sharpness(image, factor),
        Op::Posterize => histogram::posterize(image, magnitude as u32),
        Op::Solarize => histogram::solarize(image, magnitude),
        Op::AutoContrast => histogram::autocontrast(image),
        Op::Equalize => histogram::equalize(image),
    }
}
