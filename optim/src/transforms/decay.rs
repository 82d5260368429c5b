use grove_backend::Backend;
use grove_tree::{Filter, Tree, filter};

use crate::{GradientTransformation, Scalar, leafwise::elementwise};

/// See [`add_decayed_weights`].
#[derive(Clone)]
pub struct AddDecayedWeights<B: Backend> {
    weight_decay: Scalar<B>,
    mask: Option<Filter<B>>,
}

/// Adds a multiple of the parameters to their updates: decoupled weight decay where it comes after a rescaling
/// (Loshchilov and Hutter, "Decoupled Weight Decay Regularization", 2019). With a mask only parameters that pass decay,
/// as [`matrices`](crate::matrices).
pub fn add_decayed_weights<B: Backend>(
    weight_decay: impl Into<Scalar<B>>,
    mask: Option<Filter<B>>,
) -> AddDecayedWeights<B> {
    AddDecayedWeights { weight_decay: weight_decay.into(), mask }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for AddDecayedWeights<B> {
    type State = ();

    fn init(&self, _params: &P) {}

    fn update(&self, updates: P, (): (), params: &P) -> (P, ()) {
        if self.weight_decay.is_zero() {
            return (updates, ());
        }
        let add = |updates: P, params: P| {
            let [updates, _] = elementwise([updates, params], |[g, p]| [g + self.weight_decay.times(p.clone()), p]);
            updates
        };
        let Some(mask) = &self.mask else {
            return (add(updates, params.clone()), ());
        };
        // Whether a leaf decays is a property of the parameter; the update has its path and shape.
        let (decaying, rest) = grove_tree::partition(updates, mask);
        let decaying = add(decaying, filter(params.clone(), mask));
        (grove_tree::combine(decaying, rest).expect("the parts of one tree"), ())
    }
}
