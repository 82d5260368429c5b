//! What optimizers do to each leaf, written with Burn's operations.

use burn::tensor::{TensorMetadata, ops::FloatTensor};

use super::{Backend, at_least_f32, flat, float, primitive};

pub(super) fn adam_step<B: Backend>(leaf: [FloatTensor<B>; 4], numbers: FloatTensor<B>) -> [FloatTensor<B>; 3] {
    let shape = leaf[0].shape();
    let [p, g, mu, nu] = leaf.map(flat::<B>);
    let numbers = float::<B, 1>(numbers);
    let number = |i: usize| numbers.clone().narrow(0, i, 1);
    let mu = mu * number(0) + g.clone() * number(1);
    let nu = nu * number(2) + g.clone() * g * number(3);
    let root = (nu.clone() / number(7) + number(5)).sqrt() + number(4);
    let update = mu.clone() / number(6) / root + p.clone() * number(9);
    [p - update * number(8), mu, nu].map(|x| B::float_reshape(primitive(x), shape.clone()))
}

pub(super) fn sum_of_squares<B: Backend>(x: FloatTensor<B>) -> FloatTensor<B> {
    let x = at_least_f32(flat::<B>(x));
    primitive((x.clone() * x).sum())
}

pub(super) fn scale_all<B: Backend>(leaves: Vec<FloatTensor<B>>, factor: FloatTensor<B>) -> Vec<FloatTensor<B>> {
    let factor = float::<B, 1>(factor);
    let scaled = |x: FloatTensor<B>| {
        let shape = x.shape();
        B::float_reshape(primitive(flat::<B>(x) * factor.clone()), shape)
    };
    leaves.into_iter().map(scaled).collect()
}
