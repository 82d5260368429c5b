//! Schedules under optax's names, with optax's arguments in optax's order. What is optional there has a variant of
//! [`Schedule`] to be written out.

use super::{Interpolation, Schedule};

/// Always `value`.
pub fn constant_schedule(value: f64) -> Schedule {
    Schedule::Constant(value)
}

/// `(init - end) (1 - t)^power + end`, with `t` going from 0 to 1 in `transition_steps` steps; constant where that
/// is 0.
pub fn polynomial_schedule(init_value: f64, end_value: f64, power: f64, transition_steps: u64) -> Schedule {
    Schedule::Polynomial { init_value, end_value, power, transition_steps, transition_begin: 0 }
}

/// A straight line from `init_value` to `end_value` in `transition_steps` steps.
pub fn linear_schedule(init_value: f64, end_value: f64, transition_steps: u64) -> Schedule {
    polynomial_schedule(init_value, end_value, 1.0, transition_steps)
}

/// Multiplies by a factor at each boundary.
pub fn piecewise_constant_schedule(
    init_value: f64,
    boundaries_and_scales: impl IntoIterator<Item = (u64, f64)>,
) -> Schedule {
    Schedule::PiecewiseConstant { init_value, boundaries_and_scales: boundaries_and_scales.into_iter().collect() }
}

/// As [`piecewise_constant_schedule`], going to each value instead of jumping at its boundary.
pub fn piecewise_interpolate_schedule(
    interpolation: Interpolation,
    init_value: f64,
    boundaries_and_scales: impl IntoIterator<Item = (u64, f64)>,
) -> Schedule {
    let boundaries_and_scales = boundaries_and_scales.into_iter().collect();
    Schedule::PiecewiseInterpolate { interpolation, init_value, boundaries_and_scales }
}

/// Half a cosine from `init_value` to `alpha * init_value` in `decay_steps` steps. Loshchilov and Hutter, "SGDR:
/// Stochastic Gradient Descent with Warm Restarts" (2017).
pub fn cosine_decay_schedule(init_value: f64, decay_steps: u64, alpha: f64) -> Schedule {
    Schedule::Cosine { init_value, decay_steps, alpha, exponent: 1.0 }
}

/// Multiplies by `decay_rate` in the course of `transition_steps` steps, again and again.
pub fn exponential_decay(init_value: f64, transition_steps: u64, decay_rate: f64) -> Schedule {
    let (transition_begin, staircase, end_value) = (0, false, None);
    Schedule::Exponential { init_value, transition_steps, decay_rate, transition_begin, staircase, end_value }
}

/// A straight line to `peak_value` in `warmup_steps` steps, then level.
pub fn warmup_constant_schedule(init_value: f64, peak_value: f64, warmup_steps: u64) -> Schedule {
    linear_schedule(init_value, peak_value, warmup_steps)
}

/// A straight line to `peak_value` in `warmup_steps` steps, then half a cosine to `end_value`, which is reached at
/// step `decay_steps`, counted from 0.
pub fn warmup_cosine_decay_schedule(
    init_value: f64,
    peak_value: f64,
    warmup_steps: u64,
    decay_steps: u64,
    end_value: f64,
) -> Schedule {
    let alpha = if peak_value == 0.0 { 0.0 } else { end_value / peak_value };
    join_schedules(
        vec![
            linear_schedule(init_value, peak_value, warmup_steps),
            cosine_decay_schedule(peak_value, decay_steps.saturating_sub(warmup_steps), alpha),
        ],
        vec![warmup_steps],
    )
}

/// A straight line to `peak_value` in `warmup_steps` steps, then [`exponential_decay`], whose `transition_steps` and
/// `decay_rate` these are.
pub fn warmup_exponential_decay_schedule(
    init_value: f64,
    peak_value: f64,
    warmup_steps: u64,
    transition_steps: u64,
    decay_rate: f64,
) -> Schedule {
    join_schedules(
        vec![
            linear_schedule(init_value, peak_value, warmup_steps),
            exponential_decay(peak_value, transition_steps, decay_rate),
        ],
        vec![warmup_steps],
    )
}

/// Up in straight line from `peak_value / 25` until 30 % of the steps, down again until 85 %, and to a 10,000th of
/// where it began. Smith and Topin, "Super-Convergence" (2018).
pub fn linear_onecycle_schedule(transition_steps: u64, peak_value: f64) -> Schedule {
    linear_onecycle_schedule_with(transition_steps, peak_value, 0.3, 0.85, 25.0, 1e4)
}

/// As [`linear_onecycle_schedule`] with all of optax's arguments.
pub fn linear_onecycle_schedule_with(
    transition_steps: u64,
    peak_value: f64,
    pct_start: f64,
    pct_final: f64,
    div_factor: f64,
    final_div_factor: f64,
) -> Schedule {
    let part = |fraction: f64| (fraction * transition_steps as f64) as u64;
    piecewise_interpolate_schedule(
        Interpolation::Linear,
        peak_value / div_factor,
        [
            (part(pct_start), div_factor),
            (part(pct_final), 1.0 / div_factor),
            (transition_steps, 1.0 / final_div_factor),
        ],
    )
}

/// Half a cosine up from `peak_value / 25` until 30 % of the steps, and half a cosine down to a 10,000th of where it
/// began. Smith and Topin, "Super-Convergence" (2018).
pub fn cosine_onecycle_schedule(transition_steps: u64, peak_value: f64) -> Schedule {
    cosine_onecycle_schedule_with(transition_steps, peak_value, 0.3, 25.0, 1e4)
}

/// As [`cosine_onecycle_schedule`] with all of optax's arguments.
pub fn cosine_onecycle_schedule_with(
    transition_steps: u64,
    peak_value: f64,
    pct_start: f64,
    div_factor: f64,
    final_div_factor: f64,
) -> Schedule {
    let start = (pct_start * transition_steps as f64) as u64;
    piecewise_interpolate_schedule(
        Interpolation::Cosine,
        peak_value / div_factor,
        [(start, div_factor), (transition_steps, 1.0 / (div_factor * final_div_factor))],
    )
}

/// Warm restarts: [`warmup_cosine_decay_schedule`]s one after the other, each given by its `(init_value, peak_value,
/// warmup_steps, decay_steps, end_value)`. Loshchilov and Hutter, "SGDR" (2017).
pub fn sgdr_schedule(cycles: impl IntoIterator<Item = (f64, f64, u64, u64, f64)>) -> Schedule {
    let (mut schedules, mut boundaries, mut step) = (Vec::new(), Vec::new(), 0);
    for (init_value, peak_value, warmup_steps, decay_steps, end_value) in cycles {
        schedules.push(warmup_cosine_decay_schedule(init_value, peak_value, warmup_steps, decay_steps, end_value));
        step += decay_steps;
        boundaries.push(step);
    }
    boundaries.pop();
    join_schedules(schedules, boundaries)
}

/// One schedule after another, each counting from its own begin. `boundaries` are the first steps of all but the
/// first, so there is one less of them.
pub fn join_schedules(schedules: Vec<Schedule>, boundaries: Vec<u64>) -> Schedule {
    Schedule::Join { schedules, boundaries }
}
