use burn::tensor::Tensor;
use grove_backend::{Backend, ops};
use grove_tree::{AnyArray, Tree, leaves};

use crate::{
    GradientTransformation, Scalar,
    leafwise::{elementwise, float, scaled, takes_part, widest},
};

/// See [`clip`].
#[derive(Clone, Copy, Debug)]
pub struct Clip {
    max_delta: f64,
}

/// Clips each element to `[-max_delta, max_delta]`.
pub fn clip(max_delta: f64) -> Clip {
    Clip { max_delta }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for Clip {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        let [updates] = elementwise([updates], |[g]| [g.clamp(-self.max_delta, self.max_delta)]);
        (updates, ())
    }
}

/// See [`clip_by_global_norm`].
#[derive(Clone, Debug)]
pub struct ClipByGlobalNorm<B: Backend> {
    max_norm: Scalar<B>,
}

/// Clips updates by their [`global_norm`]: scales them all by one factor, so that the norm is at most `max_norm`.
/// Pascanu, Mikolov and Bengio, "On the difficulty of training Recurrent Neural Networks" (2013).
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_optim::{GradientTransformation, clip_by_global_norm};
/// use grove_tree::Array;
/// # type B = burn_flex::Flex;
/// let grads = Array::<B, 1>::new(Tensor::from_floats([3.0, 4.0], &Default::default()));
/// let clip = clip_by_global_norm::<B>(1.0);
/// let (clipped, _state) = clip.update(grads.clone(), clip.init(&grads), &grads);
/// clipped.val().to_data().assert_approx_eq::<f32>(&[0.6f32, 0.8].into(), Default::default());
/// ```
pub fn clip_by_global_norm<B: Backend>(max_norm: impl Into<Scalar<B>>) -> ClipByGlobalNorm<B> {
    ClipByGlobalNorm { max_norm: max_norm.into() }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for ClipByGlobalNorm<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        let Some(norm) = global_norm(&updates) else {
            return (updates, ());
        };
        let max_norm = self.max_norm.array_like(&norm);
        // A norm of 0 is within a bound of 0, but 0 / 0 is NaN.
        let within = norm.clone().lower_equal(max_norm.clone());
        // Not a minimum: if the norm is NaN, all updates must become NaN.
        (scaled(updates, &(max_norm / norm).mask_fill(within, 1.0)), ())
    }
}

/// Returns the global norm, `[1]`: the square root of the sum of the squares of all floating-point elements; `None` if
/// no floating-point leaf is present.
pub fn global_norm<B: Backend, P: Tree<B>>(updates: &P) -> Option<Tensor<B, 1>> {
    let leaves: Vec<_> = leaves(updates).into_iter().map(|(_, leaf)| leaf).filter(takes_part).collect();
    let dtype = widest(leaves.iter().map(AnyArray::dtype));
    let squares = ops::sum_of_squares::<B>(leaves.into_iter().map(|leaf| float(leaf.cast_float(dtype))).collect())?;
    Some(squares.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clip_by_block_rms;
    use burn_flex::Flex;
    use grove_tree::Array;

    fn clipped<T: GradientTransformation<Flex, Array<Flex, 1>, State = ()>>(clip: &T, gradient: &[f32]) -> Vec<f32> {
        let gradient = Array::<Flex, 1>::new(Tensor::from_floats(gradient, &Default::default()));
        clip.update(gradient.clone(), (), &gradient).0.val().into_data().to_vec().expect("f32")
    }

    #[test]
    fn bounds_of_zero_and_norms_at_the_bound() {
        let by_norm = |max_norm: f64, gradient: &[f32]| clipped(&clip_by_global_norm(max_norm), gradient);
        assert_eq!(by_norm(0.0, &[0.0, 0.0, 0.0]), [0.0, 0.0, 0.0]);
        assert_eq!(by_norm(0.0, &[3.0, 4.0]), [0.0, 0.0]);
        assert_eq!(by_norm(1.0, &[0.0, 0.0]), [0.0, 0.0]);
        assert_eq!(by_norm(5.0, &[3.0, 4.0]), [3.0, 4.0]);
        let of_infinity = by_norm(1.0, &[f32::INFINITY, 1.0]);
        assert!(of_infinity[0].is_nan() && of_infinity[1] == 0.0, "{of_infinity:?}");
        assert!(by_norm(0.0, &[f32::NAN, 1.0]).iter().all(|x| x.is_nan()));

        let by_rms = |threshold: f64, gradient: &[f32]| clipped(&clip_by_block_rms(threshold), gradient);
        assert_eq!(by_rms(0.0, &[0.0, 0.0]), [0.0, 0.0]);
        assert_eq!(by_rms(0.0, &[3.0, 4.0]), [0.0, 0.0]);
        assert_eq!(by_rms(1.0, &[1.0, -1.0]), [1.0, -1.0]);
        assert_eq!(by_rms(1.0, &[2.0, -2.0]), [1.0, -1.0]);
        assert!(by_rms(1.0, &[f32::NAN, 1.0]).iter().all(|x| x.is_nan()));
    }
}
