use burn::tensor::{Int, Tensor};
use grove_optim::*;
use grove_tree::Backend;

use crate::{common::distance, fixture::data};

fn all() -> Vec<(&'static str, Schedule)> {
    let factors = || [(10, 0.3), (25, 2.0), (40, 0.1)];
    let polynomial =
        Schedule::Polynomial { init_value: 1.0, end_value: 0.1, power: 2.5, transition_steps: 30, transition_begin: 7 };
    let cosine = Schedule::Cosine { init_value: 0.7, decay_steps: 50, alpha: 0.1, exponent: 1.5 };
    let exponential = |init_value, decay_rate, transition_begin, staircase, end_value| Schedule::Exponential {
        init_value,
        transition_steps: 10,
        decay_rate,
        transition_begin,
        staircase,
        end_value: Some(end_value),
    };
    let join = join_schedules(
        vec![linear_schedule(0.0, 1.0, 10), constant_schedule(0.4), exponential_decay(0.4, 5, 0.5)],
        vec![12, 30],
    );
    vec![
        ("constant", constant_schedule(0.3)),
        ("linear", linear_schedule(0.1, 0.9, 20)),
        ("polynomial", polynomial),
        ("piecewise_constant", piecewise_constant_schedule(0.5, factors())),
        ("piecewise_linear", piecewise_interpolate_schedule(Interpolation::Linear, 0.5, factors())),
        ("piecewise_cosine", piecewise_interpolate_schedule(Interpolation::Cosine, 0.5, factors())),
        ("cosine", cosine),
        ("exponential", exponential_decay(0.9, 10, 0.7)),
        ("exponential_stairs", exponential(0.9, 0.5, 3, true, 0.2)),
        ("exponential_growth", exponential(0.1, 1.5, 0, false, 0.8)),
        ("warmup_constant", warmup_constant_schedule(0.0, 0.5, 10)),
        ("warmup_cosine", warmup_cosine_decay_schedule(0.05, 0.5, 10, 50, 0.1)),
        ("warmup_exponential", warmup_exponential_decay_schedule(0.05, 0.5, 10, 12, 0.6)),
        ("linear_onecycle", linear_onecycle_schedule(60, 0.4)),
        ("cosine_onecycle", cosine_onecycle_schedule(60, 0.4)),
        ("sgdr", sgdr_schedule([(0.0, 0.5, 4, 20, 0.05), (0.05, 0.3, 6, 30, 0.0)])),
        ("join", join),
    ]
}

fn schedules<B: Backend>(device: B::Device) {
    for (name, schedule) in all() {
        let reference: Vec<f64> = data(&format!("schedule.{name}")).iter().collect();
        let steps = 0..reference.len() as u64;
        let values: Vec<f64> = steps.clone().map(|step| schedule.value(step)).collect();
        let arrays: Vec<f64> = steps
            .map(|step| schedule.at(Tensor::<B, 1, Int>::from_ints([step as i64], &device)))
            .map(|value| value.into_data().iter::<f64>().next().unwrap())
            .collect();
        for (what, found, tolerance) in [("value", values, 1e-12), ("at", arrays, 1e-6)] {
            let (error, size) = distance(&found, &reference);
            assert!(error <= tolerance * size, "{name}.{what}: {error:e} of {size}\n{found:?}\n{reference:?}");
        }
    }
}

on_each_backend!(schedules);

/// A warm-up of 0 steps starts at the peak. (optax 0.2.8 stays at `init_value` for ever in the first of these.)
#[test]
fn warm_ups_of_no_steps_begin_at_the_peak() {
    let schedules = [
        warmup_constant_schedule(0.0, 0.5, 0),
        warmup_cosine_decay_schedule(0.0, 0.5, 0, 10, 0.1),
        warmup_exponential_decay_schedule(0.0, 0.5, 0, 10, 0.5),
        sgdr_schedule([(0.0, 0.5, 0, 10, 0.1)]),
    ];
    for schedule in schedules {
        assert_eq!(schedule.value(0), 0.5, "{schedule:?}");
    }
    assert_eq!(warmup_constant_schedule(0.0, 0.5, 0).value(1000), 0.5);
    assert_eq!(warmup_constant_schedule(0.0, 0.5, 4).value(3), 0.375);
}
