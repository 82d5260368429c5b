//! The operations of RandAugment, each by itself.

use image::RgbImage;

use super::{affine, colour, histogram};

/// An operation of [`RandAugment`](super::RandAugment), with the meaning of its magnitude.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// Nothing.
    Identity,
    /// Leans sideways, by `magnitude` pixels a row.
    ShearX,
    /// Leans downwards, by `magnitude` pixels a column.
    ShearY,
    /// Moves right by `magnitude` pixels, its fraction cut off.
    TranslateX,
    /// Moves down by `magnitude` pixels, its fraction cut off.
    TranslateY,
    /// Turns by `magnitude` degrees against the clock.
    Rotate,
    /// Brightness times `1 + magnitude`.
    Brightness,
    /// Saturation times `1 + magnitude`.
    Color,
    /// Contrast times `1 + magnitude`.
    Contrast,
    /// Sharpness times `1 + magnitude`.
    Sharpness,
    /// Keeps the upper `magnitude` bits of each level.
    Posterize,
    /// Inverts levels of at least `magnitude`.
    Solarize,
    /// Stretches each channel to the whole range.
    AutoContrast,
    /// Flattens each channel's histogram.
    Equalize,
}

impl Op {
    /// All fourteen, in torchvision's order.
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

/// Applies one operation as torchvision does to a Pillow picture, with nearest sampling; `fill` is the colour of what
/// comes in from outside.
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
