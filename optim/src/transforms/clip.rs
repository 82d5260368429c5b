use burn::tensor::{Tensor, TensorPrimitive};
use grove_backend::Backend;
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

/// Limits each element to `[-max_delta, max_delta]`.
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

/// Scales all updates down together so that their [`global_norm`] is at most `max_norm`. Pascanu, Mikolov and Bengio,
/// "On the difficulty of training Recurrent Neural Networks" (2013).
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
        let within = norm.clone().lower(max_norm.clone());
        // Not a minimum: where the norm is NaN, all updates are to be.
        (scaled(updates, &(max_norm / norm).mask_fill(within, 1.0)), ())
    }
}

/// The root of the sum of the squares of all elements of all floating-point leaves, `[1]`; `None` where no leaf is
/// present.
pub fn global_norm<B: Backend, P: Tree<B>>(updates: &P) -> Option<Tensor<B, 1>> {
    let leaves: Vec<_> = leaves(updates).into_iter().map(|(_, leaf)| leaf).filter(takes_part).collect();
    let dtype = widest(leaves.iter().map(AnyArray::dtype));
    let squares = B::sum_of_all_squares(leaves.into_iter().map(|leaf| float(leaf.cast_float(dtype))).collect())?;
    Some(Tensor::<B, 1>::from_primitive(TensorPrimitive::Float(squares)).sqrt())
}
