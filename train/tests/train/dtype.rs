//! Dtypes that a backend cannot compute in.

use burn::tensor::{DType, FloatDType, Tensor};
use grove_backend::{Autodiff, Backend, Candle};
use grove_optim::{Sgd, sgd};
use grove_train::{Evaluation, FitOptions, RunDuration, StepOptions, TrainError, data::Examples, fit};
use grove_tree::{Array, Key};
use std::sync::Arc;

type Number<B> = Array<B, 1>;

fn trained(model: Number<Candle>, compute: Option<FloatDType>) -> Result<Number<Candle>, TrainError> {
    let data = Examples::new(vec![1.0f32, 2.0], 1).expect("two numbers");
    let step = StepOptions { compute, ..StepOptions::default() };
    let options = FitOptions { length: RunDuration::Steps(2), step, ..FitOptions::default() };
    let loss = |model: Number<Autodiff<Candle>>, x: &Vec<f32>, _: Key| (model.val() * x[0]).powf_scalar(2.0);
    let evaluate = |_: &Number<Candle>| Ok(Evaluation::new());
    let optimizer = sgd(0.1, Sgd::default());
    Ok(fit(model, &optimizer, &Arc::new(data), loss, evaluate, Key::new(0), &options)?.model)
}

#[test]
fn refuses_a_type_that_the_backend_does_not_compute_in() {
    let model = || Number::<Candle>::new(Tensor::from_floats([1.0], &Default::default()));
    let half = Array::new(model().val().cast(DType::BF16));
    for error in [trained(model(), Some(FloatDType::BF16)), trained(half, None)] {
        let error = error.expect_err("candle has no matrix products of bf16").to_string();
        assert!(error.contains("candle") && error.contains("bf16"), "{error}");
    }
    assert!(Candle::computes_in(&Default::default(), DType::F16));
    // 1, then 1 - 0.1 * 2 or 1 - 0.1 * 8, and so on.
    let moved = trained(model(), None).expect("f32").val().into_scalar();
    assert!(moved < 1.0);
}
