use grove_optim::*;
use grove_tree::{Backend, by_path};

use crate::{fixture::check, transforms::rates};

fn gradient_descent<B: Backend>(device: B::Device) {
    check::<B, _>("sgd", sgd(0.05, Sgd::default()), &device);
    check::<B, _>("sgd_momentum", sgd(rates(), Sgd { momentum: Some(0.9.into()), nesterov: false }), &device);
    check::<B, _>("sgd_nesterov", sgd(0.05, Sgd { momentum: Some(0.9.into()), nesterov: true }), &device);
    let options = Lars::default().weight_decay(0.1).weight_decay_mask(matrices()).trust_ratio_mask(matrices());
    check::<B, _>("lars", lars(0.5, options), &device);
    check::<B, _>("lion", lion(0.01, Lion::default()), &device);
}

fn adam_family<B: Backend>(device: B::Device) {
    check::<B, _>("adam", adam(rates(), Adam::default()), &device);
    check::<B, _>("adamw", adamw(0.05, Adamw::default()), &device);
    let options = Adamw::default().weight_decay(0.3).mask(matrices());
    check::<B, _>("adamw_masked", adamw(rates(), options), &device);
    check::<B, _>("nadamw", nadamw(0.05, Adamw::default().weight_decay(0.1)), &device);
    check::<B, _>("amsgrad", amsgrad(0.05, Amsgrad::default()), &device);
    check::<B, _>("radam", radam(0.05, Radam::default()), &device);
    check::<B, _>("adabelief", adabelief(0.05, Adabelief::default()), &device);
    let options = Lamb::default().weight_decay(0.1).mask(matrices());
    check::<B, _>("lamb", lamb(rates(), options), &device);
}

fn squares<B: Backend>(device: B::Device) {
    check::<B, _>("adagrad", adagrad(0.05, Adagrad::default()), &device);
    check::<B, _>("rmsprop", rmsprop(0.05, Rmsprop::default()), &device);
    let options = Rmsprop::default()
        .decay(0.8)
        .eps(1e-3)
        .initial_scale(0.1)
        .centered(true)
        .momentum(0.9)
        .nesterov(true)
        .bias_correction(true);
    check::<B, _>("rmsprop_centered", rmsprop(rates(), options), &device);
    check::<B, _>("adafactor", adafactor(0.05, Adafactor::default()), &device);
    let options = Adafactor::default()
        .min_dim_size_to_factor(3)
        .momentum(0.9)
        .weight_decay_rate(0.01)
        .weight_decay_mask(matrices());
    check::<B, _>("adafactor_all", adafactor(rates(), options), &device);
    let options = Adafactor { min_dim_size_to_factor: 3, clipping_threshold: None, ..Adafactor::default() };
    check::<B, _>("adafactor_no_rate", adafactor(1.0, options), &device);
}

fn orthogonal<B: Backend>(device: B::Device) {
    check::<B, _>("muon", muon(0.05, Muon::default()), &device);
    let options = Muon::default()
        .ns_coeffs(DION_NS_COEFFS.to_vec())
        .weight_decay(0.1)
        .adam_weight_decay(0.2)
        .adam_learning_rate(0.03)
        .nesterov(false)
        .consistent_rms(Some(0.2));
    check::<B, _>("muon_dion", muon(rates(), options), &device);
    let numbers = WeightDimensionNumbers::new(|path, _| {
        let (reduction_axis, output_axis) = match path.as_str() {
            "b" => (vec![1], vec![0]),
            "c" => (vec![1], vec![2]),
            "d" => (vec![2, 3, 1], vec![0]),
            _ => return None,
        };
        Some(MuonDimensionNumbers { reduction_axis, output_axis })
    });
    check::<B, _>(
        "muon_stacked",
        muon(0.05, Muon::default().muon_weight_dimension_numbers(numbers).ns_steps(3)),
        &device,
    );
    check::<B, _>("muon_aol", muon(0.05, Muon::default().preconditioning(Preconditioning::Aol)), &device);
    let options = Muon::default().preconditioning(Preconditioning::Schatten).adaptive(true);
    check::<B, _>("muon_schatten", muon(0.05, options), &device);
}

fn composed<B: Backend>(device: B::Device) {
    check::<B, _>("masked", masked(adam(0.05, Adam::default()), matrices()), &device);
    let large = adamw(0.05, Adamw::default().weight_decay(0.1));
    let small = adamw(0.02, Adamw::default());
    let label = |_: &_, leaf: &grove_tree::AnyArray<B>| if leaf.shape().len() >= 3 { "large" } else { "small" };
    check::<B, _>("partition", partition([("large", large), ("small", small)], label), &device);
    let frozen = by_path("b") | by_path("d");
    check::<B, _>("selective_transform", selective_transform(adam(0.05, Adam::default()), frozen.clone()), &device);
    check::<B, _>("freeze", chain((freeze(frozen), scale(-0.05))), &device);
    let parts = [("first", boxed(clip_by_global_norm(2.0))), ("then", boxed(adam(0.05, Adam::default())))];
    check::<B, _>("named_chain", named_chain(parts), &device);
}

on_each_backend!(gradient_descent, adam_family, squares, orthogonal, composed);
