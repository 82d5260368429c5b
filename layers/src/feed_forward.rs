use burn::tensor::Tensor;
use grove_backend::Backend;
use grove_tree::Array;

use crate::{Activation, Linear};

/// Applies the feed-forward block of a transformer: a linear layer, an activation, a linear layer.
///
/// # Shapes
/// - input `[..., in]`, `up` `[in, inner]`, `down` `[inner, out]`
/// - output `[..., out]`
#[track_caller]
pub fn feed_forward<B: Backend, const D: usize>(
    x: Tensor<B, D>,
    up: &Linear<B>,
    activation: Activation,
    down: &Linear<B>,
) -> Tensor<B, D> {
    down.forward(activation.forward(up.forward(x)))
}

/// Applies layer scale (Touvron et al., "Going deeper with Image Transformers", 2021, <https://arxiv.org/abs/2103.17239>):
/// multiplies each channel (last axis) of a residual branch by a trained factor. `None` returns the input.
///
/// # Shapes
/// - input and output `[..., size]`, factors `[size]`
#[track_caller]
pub fn layer_scale<B: Backend, const D: usize>(x: Tensor<B, D>, factors: Option<&Array<B, 1>>) -> Tensor<B, D> {
    match factors {
        Some(factors) => x * factors.val().unsqueeze(),
        None => x,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use burn_flex::Flex;

    fn matrix<const R: usize, const C: usize>(rows: [[f32; C]; R]) -> Tensor<Flex, 2> {
        Tensor::from_data(rows, &Default::default())
    }

    #[test]
    fn feed_forward_is_two_layers_with_an_activation_between() {
        let up = Linear::from_arrays(Array::new(matrix([[1.0, -1.0, 2.0], [0.5, 1.0, -1.0]])), None);
        let down = Linear::from_arrays(Array::new(matrix([[1.0], [10.0], [100.0]])), None);
        let y = feed_forward(matrix([[2.0, 1.0], [0.0, 4.0]]), &up, Activation::Relu, &down);
        // relu(2.5, -1, 3) and relu(2, 4, -4).
        assert_eq!(y.into_data(), matrix([[302.5], [42.0]]).into_data());
    }

    #[test]
    fn layer_scale_multiplies_channels() {
        let factors = Array::new(Tensor::<Flex, 1>::from_data([2.0, -1.0], &Default::default()));
        let x = matrix([[1.0, 2.0], [3.0, 4.0]]);
        assert_eq!(layer_scale(x.clone(), Some(&factors)).into_data(), matrix([[2.0, -2.0], [6.0, -4.0]]).into_data());
        assert_eq!(layer_scale(x.clone(), None).into_data(), x.into_data());
    }
}
