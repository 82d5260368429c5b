//! Schedules composed of other schedules.

use super::{
    Schedule, constant_schedule, cosine_decay_schedule, cosine_onecycle_schedule_with, exponential_decay,
    join_schedules, linear_onecycle_schedule_with, linear_schedule, polynomial_schedule, warmup_cosine_decay_schedule,
};

impl Schedule {
    /// Expands a schedule into variants that have a formula. Returns a clone of a schedule that is such a variant.
    pub(super) fn parts(&self) -> Schedule {
        match *self {
            Self::Linear { init_value, end_value, transition_steps } => {
                polynomial_schedule(init_value, end_value, 1.0, transition_steps)
            }
            Self::WarmupConstant { init_value, peak_value, warmup_steps } => {
                warmed_up(init_value, warmup_steps, peak_value, constant_schedule(peak_value))
            }
            Self::WarmupCosineDecay { init_value, peak_value, warmup_steps, decay_steps, end_value } => {
                let alpha = if peak_value == 0.0 { 0.0 } else { end_value / peak_value };
                let decay = cosine_decay_schedule(peak_value, decay_steps.saturating_sub(warmup_steps), alpha);
                warmed_up(init_value, warmup_steps, peak_value, decay)
            }
            Self::WarmupExponentialDecay { init_value, peak_value, warmup_steps, transition_steps, decay_rate } => {
                let decay = exponential_decay(peak_value, transition_steps, decay_rate);
                warmed_up(init_value, warmup_steps, peak_value, decay)
            }
            Self::LinearOnecycle { transition_steps, peak_value } => {
                linear_onecycle_schedule_with(transition_steps, peak_value, 0.3, 0.85, 25.0, 1e4)
            }
            Self::CosineOnecycle { transition_steps, peak_value } => {
                cosine_onecycle_schedule_with(transition_steps, peak_value, 0.3, 25.0, 1e4)
            }
            Self::Sgdr(ref cycles) => sgdr(cycles),
            _ => self.clone(),
        }
    }
}

/// Linear warm-up to `peak_value`, followed by `decay`.
fn warmed_up(init_value: f64, warmup_steps: u64, peak_value: f64, decay: Schedule) -> Schedule {
    join_schedules(vec![linear_schedule(init_value, peak_value, warmup_steps), decay], vec![warmup_steps])
}

fn sgdr(cycles: &[(f64, f64, u64, u64, f64)]) -> Schedule {
    let (mut schedules, mut boundaries, mut step) = (Vec::new(), Vec::new(), 0);
    for &(init_value, peak_value, warmup_steps, decay_steps, end_value) in cycles {
        schedules.push(warmup_cosine_decay_schedule(init_value, peak_value, warmup_steps, decay_steps, end_value));
        step += decay_steps;
        boundaries.push(step);
    }
    boundaries.pop();
    join_schedules(schedules, boundaries)
}
