//! Constructors of schedules, with optax's names and optax's required arguments in the same order. Optional arguments
//! are fields of the variants of [`Schedule`].

use super::{Interpolation, Schedule};

/// Returns a constant schedule.
pub fn constant_schedule(value: f64) -> Schedule {
    Schedule::Constant(value)
}

/// Polynomial: `(init - end) (1 - t)^power + end`, with `t` from 0 to 1 in `transition_steps` steps; constant if
/// `transition_steps` is 0.
pub fn polynomial_schedule(init_value: f64, end_value: f64, power: f64, transition_steps: u64) -> Schedule {
    Schedule::Polynomial { init_value, end_value, power, transition_steps, transition_begin: 0 }
}

/// Linear from `init_value` to `end_value` in `transition_steps` steps.
pub fn linear_schedule(init_value: f64, end_value: f64, transition_steps: u64) -> Schedule {
    Schedule::Linear { init_value, end_value, transition_steps }
}

/// Piecewise constant: the value is multiplied by a scale at each boundary.
pub fn piecewise_constant_schedule(
    init_value: f64,
    boundaries_and_scales: impl IntoIterator<Item = (u64, f64)>,
) -> Schedule {
    Schedule::PiecewiseConstant { init_value, boundaries_and_scales: boundaries_and_scales.into_iter().collect() }
}

/// Like [`piecewise_constant_schedule`], but interpolates between the values at the boundaries.
pub fn piecewise_interpolate_schedule(
    interpolation: Interpolation,
    init_value: f64,
    boundaries_and_scales: impl IntoIterator<Item = (u64, f64)>,
) -> Schedule {
    let boundaries_and_scales = boundaries_and_scales.into_iter().collect();
    Schedule::PiecewiseInterpolate { interpolation, init_value, boundaries_and_scales }
}

/// Cosine decay from `init_value` to `alpha * init_value` in `decay_steps` steps. Loshchilov and Hutter, "SGDR:
/// Stochastic Gradient Descent with Warm Restarts" (2017).
pub fn cosine_decay_schedule(init_value: f64, decay_steps: u64, alpha: f64) -> Schedule {
    Schedule::Cosine { init_value, decay_steps, alpha, exponent: 1.0 }
}

/// Exponential decay: by the factor `decay_rate` every `transition_steps` steps.
pub fn exponential_decay(init_value: f64, transition_steps: u64, decay_rate: f64) -> Schedule {
    let (transition_begin, staircase, end_value) = (0, false, None);
    Schedule::Exponential { init_value, transition_steps, decay_rate, transition_begin, staircase, end_value }
}

/// Linear warm-up to `peak_value` in `warmup_steps` steps, then constant. If `warmup_steps` is 0, the value is
/// `peak_value` from the first step on; optax stays at `init_value`.
pub fn warmup_constant_schedule(init_value: f64, peak_value: f64, warmup_steps: u64) -> Schedule {
    Schedule::WarmupConstant { init_value, peak_value, warmup_steps }
}

/// Linear warm-up to `peak_value` in `warmup_steps` steps, then cosine decay to `end_value`, which is reached at step
/// `decay_steps`. `decay_steps` includes the warm-up.
pub fn warmup_cosine_decay_schedule(
    init_value: f64,
    peak_value: f64,
    warmup_steps: u64,
    decay_steps: u64,
    end_value: f64,
) -> Schedule {
    Schedule::WarmupCosineDecay { init_value, peak_value, warmup_steps, decay_steps, end_value }
}

/// Linear warm-up to `peak_value` in `warmup_steps` steps, then [`exponential_decay`] with `transition_steps` and
/// `decay_rate`.
pub fn warmup_exponential_decay_schedule(
    init_value: f64,
    peak_value: f64,
    warmup_steps: u64,
    transition_steps: u64,
    decay_rate: f64,
) -> Schedule {
    Schedule::WarmupExponentialDecay { init_value, peak_value, warmup_steps, transition_steps, decay_rate }
}

/// One-cycle schedule: linear from `peak_value / 25` to `peak_value` at 30 % of the steps, back to `peak_value / 25`
/// at 85 %, and to a 10,000th of that at the end. Smith and Topin, "Super-Convergence" (2018).
pub fn linear_onecycle_schedule(transition_steps: u64, peak_value: f64) -> Schedule {
    Schedule::LinearOnecycle { transition_steps, peak_value }
}

/// [`linear_onecycle_schedule`] with all of optax's arguments.
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

/// One-cycle schedule: half a cosine from `peak_value / 25` to `peak_value` at 30 % of the steps, and half a cosine
/// down to a 10,000th of the initial value. Smith and Topin, "Super-Convergence" (2018).
pub fn cosine_onecycle_schedule(transition_steps: u64, peak_value: f64) -> Schedule {
    Schedule::CosineOnecycle { transition_steps, peak_value }
}

/// [`cosine_onecycle_schedule`] with all of optax's arguments.
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

/// Cosine decay with warm restarts: a sequence of [`warmup_cosine_decay_schedule`]s with the arguments `(init_value,
/// peak_value, warmup_steps, decay_steps, end_value)`. Loshchilov and Hutter, "SGDR" (2017).
pub fn sgdr_schedule(cycles: impl IntoIterator<Item = (f64, f64, u64, u64, f64)>) -> Schedule {
    Schedule::Sgdr(cycles.into_iter().collect())
}

/// Joins schedules, each of which counts steps from its own start. `boundaries` are the first steps of the second and
/// all later schedules.
pub fn join_schedules(schedules: Vec<Schedule>, boundaries: Vec<u64>) -> Schedule {
    Schedule::Join { schedules, boundaries }
}
