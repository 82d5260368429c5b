//! A model with its own loss. Functions that train any model need only the bound `M: Trainable<B>`.

use grove::prelude::*;

use crate::gated_mlp::GatedMlp;

/// Mean squared error between the output and the reversed input, `[b, size]`.
impl<B: Backend> Trainable<B> for GatedMlp<B> {
    type Batch = Tensor<B, 2>;

    fn loss(model: GatedMlp<Autodiff<B>>, x: &Tensor<B, 2>, _: Key) -> Outcome<B, Self> {
        let x = Tensor::from_inner(x.clone());
        (model.forward(x.clone()) - x.flip([1])).square().mean().into()
    }
}
