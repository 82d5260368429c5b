//! Weight layouts: linear layers have `[inputs, outputs]`, recurrent cells `[outputs, inputs]`.

use burn::tensor::Tolerance;
use grove_optim::*;
use grove_tree::{Array, Backend, Key};
use std::collections::BTreeMap;

type Matrices<B> = BTreeMap<String, Array<B, 2>>;

/// Returns the matrices of a recurrent cell with a projection, and the same maps as linear layers.
fn cell_and_linear<B: Backend>(key: u64, device: &B::Device) -> [Matrices<B>; 2] {
    let shapes = [("ih", [12, 2]), ("hh", [12, 3]), ("hr", [3, 5])];
    let matrices = shapes.map(|(name, shape)| (name, Key::new(key).fold_in(shape[1] as u32).normal(shape, device)));
    let cell = matrices.clone().map(|(name, matrix)| (format!("weight_{name}"), Array::new(matrix)));
    let linear = matrices.map(|(name, matrix)| (name.to_owned(), Array::new(matrix.transpose())));
    [cell.into(), linear.into()]
}

fn recurrent_cells_are_as_their_transposes<B: Backend>(device: B::Device) {
    fn update<B: Backend, T: GradientTransformation<B, Matrices<B>>>(
        optimizer: &T,
        grads: Matrices<B>,
        params: &Matrices<B>,
    ) -> Matrices<B> {
        optimizer.update(grads, optimizer.init(params), params).0
    }
    fn check<B: Backend, T: GradientTransformation<B, Matrices<B>>>(name: &str, optimizer: T, device: &B::Device) {
        let [cell, linear] = cell_and_linear(0, device);
        let [cell_grads, linear_grads] = cell_and_linear(1, device);
        let (found, expected) = (update(&optimizer, cell_grads, &cell), update(&optimizer, linear_grads, &linear));
        for (path, expected) in expected {
            let found = found[&format!("weight_{path}")].val().transpose().into_data();
            let expected = expected.val().into_data();
            found.assert_approx_eq::<f32>(&expected, Tolerance::absolute(1e-5));
            let largest = expected.iter::<f32>().fold(0.0, |most: f32, x| most.max(x.abs()));
            assert!(largest > 0.01, "{name}, {path}");
        }
    }
    check::<B, _>("muon", muon(1.0, Muon::default()), &device);
    check::<B, _>("muon of rows", muon(1.0, Muon::default().preconditioning(Preconditioning::Aol)), &device);
    check::<B, _>("adaptive clipping", adaptive_grad_clip(0.1), &device);

    // Both singular values are about 1, times sqrt(12 / 2) for 12 outputs and 2 inputs.
    let [[cell, _], [grads, _]] = [0, 1].map(|key| cell_and_linear::<B>(key, &device));
    let updates = update(&muon(1.0, Muon::default()), grads, &cell);
    let norm = updates["weight_ih"].val().square().mean().sqrt().into_data().iter::<f64>().next().expect("a number");
    let value = norm * 24f64.sqrt() / 2f64.sqrt();
    assert!((1.7..3.0).contains(&value), "{value}");
}

on_each_backend!(recurrent_cells_are_as_their_transposes);
