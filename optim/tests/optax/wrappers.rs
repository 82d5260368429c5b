use grove_optim::*;
use grove_tree::Backend;

use crate::{
    fixture::{check, check_with, compare},
    transforms::rates,
};

fn accumulation<B: Backend>(device: B::Device) {
    let keep = |_, state| state;
    check::<B, _>("multi_steps", multi_steps(adam(rates(), Adam::default()), 3), &device);
    let momentum = sgd(0.02, Sgd { momentum: Some(0.9.into()), nesterov: false });
    let every_k = join_schedules(vec![constant_schedule(2.0), constant_schedule(3.0)], vec![2]);
    let options = MultiSteps { use_grad_mean: false, ..multi_steps(momentum, every_k) };
    check::<B, _>("multi_steps_sum", options, &device);
    let every_2 = || multi_steps(adam(0.05, Adam::default()), 2);
    let options = MultiSteps { skip: SkipUpdates::NotFinite, ..every_2() };
    check_with::<B, _>("multi_steps_skip", options, "bad", keep, &device);
    let options = MultiSteps { skip: SkipUpdates::Large { max_squared_norm: 100.0 }, ..every_2() };
    check::<B, _>("multi_steps_skip_large", options, &device);
    check_with::<B, _>(
        "apply_if_finite",
        apply_if_finite(adam(0.05, Adam::default()), 5),
        "bad",
        |_, state| state,
        &device,
    );
}

fn injected<B: Backend>(device: B::Device) {
    let hyperparams = [("learning_rate", rates().into()), ("weight_decay", 0.1.into())];
    let optimizer = inject_hyperparams(hyperparams, |h: &Hyperparams<B>| {
        adamw(h.get("learning_rate"), Adamw::default().weight_decay(h.get("weight_decay")))
    });
    let halfway = |step, state| match step {
        10 => set_hyperparam(state, "weight_decay", 0.5).unwrap(),
        _ => state,
    };
    let (_, state) = check_with::<B, _>("inject_hyperparams", optimizer, "grads", halfway, &device);
    assert_eq!(hyperparam(&state, "hyperparams.weight_decay").unwrap(), 0.5);
    let error = set_hyperparam(state, "weight_decy", 0.5).unwrap_err().to_string();
    assert!(error.contains("hyperparams.learning_rate") && error.contains("did you mean"), "{error}");
}

fn averages<B: Backend>(device: B::Device) {
    check::<B, _>("lookahead", lookahead(adam(0.05, Adam::default()), 3, 0.4), &device);
    let momentum = sgd(0.05, Sgd { momentum: Some(0.9.into()), nesterov: false });
    let options = Lookahead { reset_state: true, ..lookahead(momentum, 4, 0.7) };
    check::<B, _>("lookahead_reset", options, &device);

    let base = adamw(rates(), Adamw::default().b1(0.0));
    let options = ScheduleFree { b1: 0.8.into(), weight_lr_power: 1.5, ..schedule_free(base, rates()) };
    free::<B, _>("schedule_free", options, &device);
    let options =
        ScheduleFreeSgd { warmup_steps: Some(5), weight_decay: Some(0.1.into()), ..ScheduleFreeSgd::default() };
    free::<B, _>("schedule_free_sgd", schedule_free_sgd(0.1, options), &device);
    let options = ScheduleFreeAdamw { warmup_steps: Some(4), weight_decay: 0.1.into(), ..ScheduleFreeAdamw::default() };
    free::<B, _>("schedule_free_adamw", schedule_free_adamw(0.05, options), &device);
}

fn free<B: Backend, T>(name: &str, optimizer: ScheduleFree<B, T>, device: &B::Device)
where
    T: GradientTransformation<B, crate::fixture::Leaves<B>> + Send + Sync + 'static,
{
    let (params, state) = check_with::<B, _>(name, optimizer, "grads", |_, state| state, device);
    compare(&schedule_free_eval_params(&state, params), &format!("{name}.eval"));
}

on_each_backend!(accumulation, injected, averages);
