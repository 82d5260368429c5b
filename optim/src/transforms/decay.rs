use grove_backend::Backend;
use grove_tree::{Filter, Tree, filter};

use crate::{Count, GradientTransformation, ScalarOrSchedule, leafwise::elementwise, transformation::check_mask};

/// See [`add_decayed_weights`].
#[derive(Clone)]
pub struct AddDecayedWeights<B: Backend> {
    pub(crate) weight_decay: ScalarOrSchedule<B>,
    pub(crate) mask: Option<Filter<B>>,
}

/// Adds `weight_decay` times the parameters to the updates. After a scaling, this is decoupled weight decay (Loshchilov
/// and Hutter, "Decoupled Weight Decay Regularization", 2019). A mask, such as [`matrices`](crate::matrices), restricts
/// the decay to the parameters that pass. The state is the step count if `weight_decay` is a schedule, and `None`
/// otherwise.
pub fn add_decayed_weights<B: Backend>(
    weight_decay: impl Into<ScalarOrSchedule<B>>,
    mask: Option<Filter<B>>,
) -> AddDecayedWeights<B> {
    AddDecayedWeights { weight_decay: weight_decay.into(), mask }
}

impl<B: Backend, P: Tree<B>> GradientTransformation<B, P> for AddDecayedWeights<B> {
    type State = Option<Count<B>>;

    fn init(&self, params: &P) -> Self::State {
        if let Some(mask) = &self.mask {
            check_mask(mask, params);
        }
        self.weight_decay.init(params)
    }

    fn update(&self, updates: P, count: Self::State, params: &P) -> (P, Self::State) {
        let (weight_decay, count) = self.weight_decay.step(count, &updates);
        if weight_decay.is_zero() {
            return (updates, count);
        }
        let add = |updates: P, params: P| {
            let [updates, _] = elementwise([updates, params], |[g, p]| [g + weight_decay.times(p.clone()), p]);
            updates
        };
        let Some(mask) = &self.mask else {
            return (add(updates, params.clone()), count);
        };
        // The mask tests path, shape and dtype, which an update shares with its parameter.
        let (decaying, rest) = grove_tree::partition(updates, mask);
        let decaying = add(decaying, filter(params.clone(), mask));
        (grove_tree::combine(decaying, rest).expect("the parts of one tree"), count)
    }
}
