//! Deep ensemble: models from several keys, trained together, with the mean and spread of their predictions.

use grove::{prelude::*, tensor::activation::tanh};

/// Ensemble of independently initialised members. A vector of trees is a tree.
pub type Ensemble<B> = Vec<(Linear<B>, Linear<B>)>;

/// Creates `count` members of two layers.
pub fn members<B: Backend>(key: Key, count: usize, device: &B::Device) -> Ensemble<B> {
    let inits = key.split_n(count).into_iter().map(|key| Init::new(key, device));
    let layer = |from, to, name, init: &Init<B>| Linear::new(from, to, init.named(name));
    inits.map(|init| (layer(1, 32, "up", &init), layer(32, 1, "down", &init))).collect()
}

/// Returns the predictions of all members, `[members, b, 1]`, for inputs `[b, 1]`.
pub fn predict<B: Backend>(ensemble: &Ensemble<B>, x: &Tensor<B, 2>) -> Tensor<B, 3> {
    Tensor::stack(ensemble.iter().map(|(up, down)| down.forward(tanh(up.forward(x.clone())))).collect(), 0)
}

/// Trains all members by one step: their losses are independent, so the gradient of the sum has the gradient of each.
pub fn step<B: Backend>(ensemble: Ensemble<B>, x: &Tensor<B, 2>, y: &Tensor<B, 2>, rate: f64) -> Ensemble<B> {
    let (_, grads) = value_and_grad(&ensemble, |ensemble| {
        let errors = predict(&ensemble, &Tensor::from_inner(x.clone())) - Tensor::from_inner(y.clone()).unsqueeze();
        errors.square().mean_dim(1).sum()
    });
    apply_updates(ensemble, tree::map(grads, |g| g.mul_scalar(-rate)))
}
