//! A custom gradient transformation: signs times the mean absolute value of a leaf, with a step count.

use grove::{optim::*, prelude::*};

/// Replaces each element by its sign times the leaf's mean absolute value.
pub fn scale_by_sign<B: Backend, P: Tree<B>>() -> impl GradientTransformation<B, P> {
    gradient_transformation(zero_count, |updates: P, count, _| {
        let [updates] = elementwise([updates], |[g]| [g.clone().sign() * g.abs().mean()]);
        (updates, increment(count))
    })
}
