//! Random rotation, scaling and shear.

use image::RgbImage;
use rand::Rng;

use super::uniform;
use crate::error::{ImageError, Result};

/// Rotates, scales and shears an image about its centre by random amounts, with bilinear sampling. Equivalent to
/// torchvision's `RandomAffine` with shear along one axis, except that `scale` is uniform on a logarithmic axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomAffine {
    /// Maximum angle in either direction, in degrees.
    pub degrees: f64,
    /// Maximum enlargement minus 1: with 0.1 the factor is between 1 / 1.1 and 1.1.
    pub scale: f64,
    /// Maximum horizontal shift of the top in either direction, as a fraction of the height.
    pub shear: f64,
    /// Colour of pixels outside the image.
    pub fill: [u8; 3],
}

impl RandomAffine {
    /// Creates a transformation with this maximum angle, scale 0.1, shear 0.1 and black fill.
    pub fn new(degrees: f64) -> Self {
        Self { degrees, scale: 0.1, shear: 0.1, fill: [0; 3] }
    }

    /// Returns the transformed image, of the same size.
    ///
    /// # Errors
    /// An amount is negative or not finite.
    pub fn apply(&self, image: &RgbImage, rng: &mut (impl Rng + ?Sized)) -> Result<RgbImage> {
        if [self.degrees, self.scale, self.shear].iter().any(|amount| !(amount.is_finite() && *amount >= 0.0)) {
            return Err(ImageError::BadOption(format!(
                "degrees {}, scale {} and shear {} must be at least 0",
                self.degrees, self.scale, self.shear
            )));
        }
        let angle = uniform(-self.degrees, self.degrees, rng).to_radians();
        let slant = uniform(-self.shear, self.shear, rng);
        let grow = uniform(-self.scale.ln_1p(), self.scale.ln_1p(), rng).exp();
        Ok(moved(image, angle, slant, grow, self.fill))
    }
}

/// Returns the image rotated by `angle` (in radians), sheared by `slant` and scaled by `grow`.
fn moved(image: &RgbImage, angle: f64, slant: f64, grow: f64, fill: [u8; 3]) -> RgbImage {
    let (width, height) = image.dimensions();
    let (sin, cos) = (angle.sin() / grow, angle.cos() / grow);
    let centre = [f64::from(width) / 2.0 - 0.5, f64::from(height) / 2.0 - 0.5];
    let level = |x: f64, y: f64, channel: usize| {
        let inside = x >= 0.0 && y >= 0.0 && x < f64::from(width) && y < f64::from(height);
        if inside { f64::from(image.get_pixel(x as u32, y as u32).0[channel]) } else { f64::from(fill[channel]) }
    };
    RgbImage::from_fn(width, height, |x, y| {
        let (right, down) = (f64::from(x) - centre[0], f64::from(y) - centre[1]);
        let from = [
            centre[0] + cos * right + (cos * slant - sin) * down,
            centre[1] + sin * right + (sin * slant + cos) * down,
        ];
        let corner = from.map(f64::floor);
        let part = [from[0] - corner[0], from[1] - corner[1]];
        let at = |channel: usize| {
            let row =
                |y: f64| level(corner[0], y, channel) * (1.0 - part[0]) + level(corner[0] + 1.0, y, channel) * part[0];
            row(corner[1]) * (1.0 - part[1]) + row(corner[1] + 1.0) * part[1]
        };
        image::Rgb([at(0), at(1), at(2)].map(|level| level.round() as u8))
    })
}

#[cfg(test)]
mod tests {
    use image::imageops;
    use rand::{SeedableRng, rngs::SmallRng};

    use super::*;

    fn image() -> RgbImage {
        RgbImage::from_fn(5, 4, |x, y| image::Rgb([(x * 40 + y) as u8, (y * 60) as u8, ((x * y * 13) % 256) as u8]))
    }

    #[test]
    fn rotations_that_only_move_pixels() {
        let image = image();
        assert_eq!(moved(&image, 0.0, 0.0, 1.0, [0; 3]), image);
        assert_eq!(moved(&image, std::f64::consts::PI, 0.0, 1.0, [0; 3]), imageops::rotate180(&image));
        let mut rng = SmallRng::seed_from_u64(1);
        let still = RandomAffine { degrees: 0.0, scale: 0.0, shear: 0.0, fill: [9; 3] };
        assert_eq!(still.apply(&image, &mut rng).unwrap(), image);
        assert!(RandomAffine::new(-1.0).apply(&image, &mut rng).is_err());
    }

    #[test]
    fn half_a_pixel_blends() {
        // A row of four pixels, scaled by two: sampled at 0.75, 1.25, 1.75 and 2.25 of the old positions.
        let row = RgbImage::from_fn(4, 1, |x, _| image::Rgb([[0, 100, 200, 40][x as usize]; 3]));
        let found: Vec<u8> = moved(&row, 0.0, 0.0, 2.0, [0; 3]).pixels().map(|pixel| pixel.0[0]).collect();
        assert_eq!(found, [75, 125, 175, 160]);
    }
}
