//! A custom optimizer: Lion.

use grove::{
    optim::{elementwise, gradient_transformation, zeros_like},
    prelude::*,
};

/// Replaces gradients by the signs of a mean of gradient and momentum.
pub fn scale_by_lion<B: Backend, P: Tree<B>>(b1: f64, b2: f64) -> impl GradientTransformation<B, P> {
    gradient_transformation(zeros_like, move |updates: P, momentum, _params| {
        let formula = |[g, m]: [Tensor<B, 1>; 2]| {
            let direction = m.clone() * b1 + g.clone() * (1.0 - b1);
            [direction.sign(), m * b2 + g * (1.0 - b2)]
        };
        elementwise([updates, momentum], formula).into()
    })
}
