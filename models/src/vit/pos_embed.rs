//! Bicubic interpolation of position embeddings, for images of another size than in training. The reference libraries
//! differ in corner alignment and antialiasing.

use burn::tensor::{Tensor, TensorData};
use grove_backend::{Backend, matmul};

/// Variant of bicubic interpolation, by the arguments of PyTorch's `F.interpolate(mode="bicubic")`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// `align_corners=False`.
    Plain,
    /// `align_corners=False, antialias=True`.
    Antialias,
    /// `align_corners=True`.
    AlignCorners,
}

/// Evaluates Keys' cubic kernel with parameter `a`: -0.75 in PyTorch's plain interpolation, -0.5 with antialiasing (and
/// in Pillow).
fn cubic(x: f64, a: f64) -> f64 {
    let x = x.abs();
    if x <= 1.0 {
        ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * a
    } else {
        0.0
    }
}

impl Interpolation {
    /// Returns the interpolation weights, `[to, from]`, of the old positions for each new one.
    fn weights(self, from: usize, to: usize) -> Vec<f64> {
        let mut weights = vec![0.0; from * to];
        let last = from as isize - 1;
        for (i, row) in weights.chunks_exact_mut(from).enumerate() {
            match self {
                Self::Plain | Self::AlignCorners => {
                    let at = match self {
                        Self::AlignCorners if to > 1 => (from - 1) as f64 / (to - 1) as f64 * i as f64,
                        Self::AlignCorners => 0.0,
                        _ => from as f64 / to as f64 * (i as f64 + 0.5) - 0.5,
                    };
                    for j in at.floor() as isize - 1..=at.floor() as isize + 2 {
                        row[j.clamp(0, last) as usize] += cubic(at - j as f64, -0.75);
                    }
                }
                Self::Antialias => {
                    let scale = from as f64 / to as f64;
                    let (width, centre) = (scale.max(1.0), scale * (i as f64 + 0.5));
                    let begin = (centre - 2.0 * width + 0.5).max(0.0) as usize;
                    let end = ((centre + 2.0 * width + 0.5) as usize).min(from);
                    for (j, weight) in row.iter_mut().enumerate().take(end).skip(begin) {
                        *weight = cubic((j as f64 + 0.5 - centre) / width, -0.5);
                    }
                    let sum: f64 = row.iter().sum();
                    row.iter_mut().for_each(|weight| *weight /= sum);
                }
            }
        }
        weights
    }

    /// Interpolates position embeddings from one grid to another.
    ///
    /// # Shapes
    /// - pos_embed `[1, from.0 * from.1, n]`
    /// - output `[1, to.0 * to.1, n]`
    pub(super) fn apply<B: Backend>(self, pos_embed: Tensor<B, 3>, from: [usize; 2], to: [usize; 2]) -> Tensor<B, 3> {
        let n = pos_embed.dims()[2];
        let (device, dtype) = (pos_embed.device(), pos_embed.dtype());
        let matrix = |i: usize| {
            let weights: Vec<f32> = self.weights(from[i], to[i]).into_iter().map(|weight| weight as f32).collect();
            Tensor::<B, 2>::from_data(TensorData::new(weights, [to[i], from[i]]), &device).cast(dtype)
        };
        let rows = matmul(matrix(0), pos_embed.reshape([from[0], from[1] * n])); // [to.0, from.1 * n]
        let columns = rows.reshape([to[0], from[1], n]).swap_dims(0, 1); // [from.1, to.0, n]
        let columns = columns.reshape([from[1], to[0] * n]); // [from.1, to.0 * n]
        let both = matmul(matrix(1), columns); // [to.1, to.0 * n]
        both.reshape([to[1], to[0], n]).swap_dims(0, 1).reshape([1, to[0] * to[1], n]) // [to.0, to.1, n] to [1, to.0 * to.1, n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_shares() {
        for kind in [Interpolation::Plain, Interpolation::Antialias, Interpolation::AlignCorners] {
            for (from, to) in [(1, 1), (1, 5), (5, 1), (4, 9), (9, 4), (7, 7)] {
                let weights = kind.weights(from, to);
                for row in weights.chunks_exact(from) {
                    assert!((row.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{kind:?} {from} {to}");
                }
            }
        }
        // Interpolation to the same grid is the identity.
        let same = Interpolation::AlignCorners.weights(3, 3);
        assert_eq!(same, [1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0]);
    }
}
