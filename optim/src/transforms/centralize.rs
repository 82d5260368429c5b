use grove_backend::Backend;
use grove_tree::Tree;

use crate::{
    GradientTransformation,
    leafwise::{leafwise, shaped, unflat},
};

/// See [`centralize`].
#[derive(Clone, Copy, Debug)]
pub struct Centralize;

/// Centralizes gradients: subtracts from each row its mean, in leaves with at least two axes. A row spans all axes but
/// the first. Yong et al., "Gradient Centralization: A New Optimization Technique for Deep Neural Networks" (2020).
pub fn centralize() -> Centralize {
    Centralize
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for Centralize {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), _params: &P) -> (P, ()) {
        let [updates] = leafwise([updates], |_, [g]| {
            let shape = g.shape().to_vec();
            if shape.len() < 2 || g.is_empty() {
                return [g];
            }
            let rows = shape[0];
            let g = shaped(g, [rows, shape[1..].iter().product()]);
            let mean = g.clone().mean_dim(1);
            [unflat(g - mean, &shape)]
        });
        (updates, ())
    }
}
