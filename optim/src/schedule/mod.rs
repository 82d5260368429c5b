//! Schedules: hyperparameters as functions of the step count.

mod check;
mod constructors;
mod file;
mod function;
mod parts;
mod value;

pub use constructors::*;
pub use function::ScheduleFunction;

use burn::tensor::{FloatDType, Int, Tensor};
use grove_backend::Backend;
use grove_tree::Array;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

use crate::transformation::steps;
use value::Value;

/// A hyperparameter as a function of the step count, which starts at 0.
///
/// The functions of this module construct schedules under optax's names, and a closure of the step is a schedule too.
/// [`at`](Self::at) evaluates a schedule on arrays in a train step, in f32; [`value`](Self::value) evaluates it on the
/// host, for logs and plots.
///
/// ```
/// use grove_optim::{Schedule, warmup_cosine_decay_schedule};
/// let schedule = warmup_cosine_decay_schedule(0.0, 1e-3, 100, 1000, 1e-4);
/// assert_eq!(schedule.value(50), 0.5e-3);
/// assert_eq!(schedule.value(100), 1e-3);
/// assert!((schedule.value(5000) - 1e-4).abs() < 1e-12);
///
/// // The square root of the step, as in "Attention Is All You Need".
/// let noam = Schedule::from(|step: u64| {
///     let step = (step + 1) as f64;
///     0.04 * step.powf(-0.5).min(step * 4000f64.powf(-1.5))
/// });
/// assert!(noam.value(3999) > noam.value(100) && noam.value(3999) > noam.value(10_000));
/// ```
///
/// # In files
/// A schedule is a number, or an object with one of the names below and its arguments:
///
/// ```
/// # use grove_optim::{Schedule, warmup_cosine_decay_schedule};
/// let text = r#"{"warmup_cosine_decay": {"peak_value": 1e-3, "warmup_steps": 100, "decay_steps": 1000}}"#;
/// assert_eq!(serde_json::from_str::<Schedule>(text)?, warmup_cosine_decay_schedule(0.0, 1e-3, 100, 1000, 0.0));
/// assert_eq!(serde_json::from_str::<Schedule>("3e-4")?, Schedule::Constant(3e-4));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Schedule {
    /// Constant.
    Constant(f64),
    /// Linear; see [`linear_schedule`].
    #[serde(alias = "linear_schedule")]
    Linear {
        /// Value at step 0.
        init_value: f64,
        /// Value at the end of the transition and after it.
        end_value: f64,
        /// Number of steps of the transition.
        transition_steps: u64,
    },
    /// Polynomial decay; see [`polynomial_schedule`].
    #[serde(alias = "polynomial_schedule")]
    Polynomial {
        /// Value until the transition begins.
        init_value: f64,
        /// Value at the end of the transition and after it.
        end_value: f64,
        /// Power of the remaining fraction of the transition; 1 is linear.
        power: f64,
        /// Number of steps of the transition.
        transition_steps: u64,
        /// Number of steps before the transition. Default 0.
        #[serde(default)]
        transition_begin: u64,
    },
    /// Cosine decay; see [`cosine_decay_schedule`].
    #[serde(alias = "cosine_decay", alias = "cosine_decay_schedule")]
    Cosine {
        /// Value at step 0.
        init_value: f64,
        /// Number of steps of the decay.
        decay_steps: u64,
        /// Final value as a fraction of `init_value`. Default 0.
        #[serde(default)]
        alpha: f64,
        /// Exponent of the cosine factor. Default 1.
        #[serde(default = "one")]
        exponent: f64,
    },
    /// Exponential decay; see [`exponential_decay`].
    #[serde(alias = "exponential_decay")]
    Exponential {
        /// Value until the decay begins.
        init_value: f64,
        /// Number of steps per factor `decay_rate`.
        transition_steps: u64,
        /// Factor per `transition_steps` steps.
        decay_rate: f64,
        /// Number of steps before the decay. Default 0.
        #[serde(default)]
        transition_begin: u64,
        /// If true, the value decays in jumps every `transition_steps` steps. Default false.
        #[serde(default)]
        staircase: bool,
        /// Limit of the decay; `None`, the default, for no limit.
        #[serde(default)]
        end_value: Option<f64>,
    },
    /// Piecewise constant; see [`piecewise_constant_schedule`].
    #[serde(alias = "piecewise_constant_schedule")]
    PiecewiseConstant {
        /// Value before the first boundary.
        init_value: f64,
        /// Boundaries, each with the scale that is applied from that step on.
        boundaries_and_scales: Vec<(u64, f64)>,
    },
    /// Interpolation between values at boundaries; see [`piecewise_interpolate_schedule`].
    #[serde(alias = "piecewise_interpolate_schedule")]
    PiecewiseInterpolate {
        /// Interpolation between boundaries.
        interpolation: Interpolation,
        /// Value at step 0.
        init_value: f64,
        /// Boundaries, each with the scale that is fully applied at that step.
        boundaries_and_scales: Vec<(u64, f64)>,
    },
    /// Linear warm-up, then constant; see [`warmup_constant_schedule`].
    #[serde(alias = "warmup_constant_schedule")]
    WarmupConstant {
        /// Value at step 0. Default 0.
        #[serde(default)]
        init_value: f64,
        /// Value after the warm-up.
        peak_value: f64,
        /// Number of steps of the warm-up.
        warmup_steps: u64,
    },
    /// Linear warm-up, then cosine decay; see [`warmup_cosine_decay_schedule`].
    #[serde(alias = "warmup_cosine", alias = "warmup_cosine_decay_schedule")]
    WarmupCosineDecay {
        /// Value at step 0. Default 0.
        #[serde(default)]
        init_value: f64,
        /// Value after the warm-up.
        peak_value: f64,
        /// Number of steps of the warm-up.
        warmup_steps: u64,
        /// Number of steps of warm-up and decay.
        decay_steps: u64,
        /// Value at the end of the decay. Default 0.
        #[serde(default)]
        end_value: f64,
    },
    /// Linear warm-up, then exponential decay; see [`warmup_exponential_decay_schedule`].
    #[serde(alias = "warmup_exponential", alias = "warmup_exponential_decay_schedule")]
    WarmupExponentialDecay {
        /// Value at step 0. Default 0.
        #[serde(default)]
        init_value: f64,
        /// Value after the warm-up.
        peak_value: f64,
        /// Number of steps of the warm-up.
        warmup_steps: u64,
        /// Number of steps per factor `decay_rate`.
        transition_steps: u64,
        /// Factor per `transition_steps` steps.
        decay_rate: f64,
    },
    /// Linear one-cycle schedule; see [`linear_onecycle_schedule`].
    #[serde(alias = "linear_onecycle_schedule")]
    LinearOnecycle {
        /// Number of steps of the cycle.
        transition_steps: u64,
        /// Largest value.
        peak_value: f64,
    },
    /// One-cycle schedule of cosines; see [`cosine_onecycle_schedule`].
    #[serde(alias = "cosine_onecycle_schedule")]
    CosineOnecycle {
        /// Number of steps of the cycle.
        transition_steps: u64,
        /// Largest value.
        peak_value: f64,
    },
    /// Warm restarts; see [`sgdr_schedule`].
    #[serde(alias = "sgdr_schedule")]
    Sgdr(Vec<(f64, f64, u64, u64, f64)>),
    /// A sequence of schedules, each of which counts steps from its own start; see [`join_schedules`].
    #[serde(alias = "join_schedules")]
    Join {
        /// The schedules, one more than `boundaries`.
        schedules: Vec<Schedule>,
        /// First steps of the second and all later schedules.
        boundaries: Vec<u64>,
    },
    /// One value per step. The last value holds for all later steps.
    Table(Vec<f64>),
    /// A closure, which cannot be saved in a file; see [`ScheduleFunction`].
    #[serde(skip)]
    Function(ScheduleFunction),
}

/// Default of an exponent.
fn one() -> f64 {
    1.0
}

/// Interpolation between two values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Interpolation {
    /// Linear.
    Linear,
    /// Half a cosine, with slope 0 at both ends.
    Cosine,
}

impl Schedule {
    /// Creates a schedule from the values of a function at the first `steps` steps (at least 1). The last value holds
    /// for all later steps.
    pub fn table(steps: u64, f: impl FnMut(u64) -> f64) -> Self {
        Self::Table((0..steps.max(1)).map(f).collect())
    }

    /// Returns the value at a step as an f32 array. A schedule that is a closure reads the count from the device.
    ///
    /// # Shapes
    /// - count `[1]`
    /// - output `[1]`
    pub fn at<B: Backend>(&self, count: Tensor<B, 1, Int>) -> Tensor<B, 1> {
        self.at_in(count, FloatDType::F32)
    }

    /// Returns the value at a step, computed in f32 or f64.
    pub(crate) fn at_in<B: Backend>(&self, count: Tensor<B, 1, Int>, dtype: FloatDType) -> Tensor<B, 1> {
        self.of(steps(&Array::new(count), dtype))
    }

    /// Returns the value at a step.
    pub fn value(&self, count: u64) -> f64 {
        self.of(count as f64)
    }

    fn of<V: Value>(&self, count: V) -> V {
        match self {
            Self::Constant(value) => count.constant(*value),
            Self::Polynomial { init_value, transition_steps: 0, .. } => count.constant(*init_value),
            &Self::Polynomial { init_value, end_value, power, transition_steps, transition_begin } => {
                let (begin, steps) = (transition_begin as f64, transition_steps as f64);
                let left = count.plus(-begin).clamp(0.0, steps).times(-1.0 / steps).plus(1.0);
                left.power(power).times(init_value - end_value).plus(end_value)
            }
            &Self::Cosine { init_value, decay_steps, alpha, exponent } => {
                let cosine = cosine(count, decay_steps.max(1) as f64);
                cosine.power(exponent).times(1.0 - alpha).plus(alpha).times(init_value)
            }
            Self::Exponential { init_value, transition_steps, decay_rate, .. }
                if *transition_steps == 0 || *decay_rate == 0.0 =>
            {
                count.constant(*init_value)
            }
            &Self::Exponential { init_value, transition_steps, decay_rate, transition_begin, staircase, end_value } => {
                let count = count.plus(-(transition_begin as f64));
                let p = count.clone().times(1.0 / transition_steps as f64);
                let p = if staircase { p.floor() } else { p };
                let decayed = p.exponent_of(decay_rate).times(init_value);
                let decayed = count.below(f64::MIN_POSITIVE, count.constant(init_value), decayed);
                match end_value {
                    Some(end) if decay_rate < 1.0 => decayed.clamp(end, f64::INFINITY),
                    Some(end) => decayed.clamp(f64::NEG_INFINITY, end),
                    None => decayed,
                }
            }
            Self::PiecewiseConstant { init_value, boundaries_and_scales } => {
                let (bounds, values) = knots(*init_value, boundaries_and_scales);
                let steps = bounds.iter().zip(&values[1..]);
                let last = count.constant(values[0]);
                steps.fold(last, |before, (&bound, &value)| count.below(bound, before, count.constant(value)))
            }
            Self::PiecewiseInterpolate { interpolation, init_value, boundaries_and_scales } => {
                let (mut bounds, values) = knots(*init_value, boundaries_and_scales);
                bounds.insert(0, 0.0);
                let mut result = count.constant(values[values.len() - 1]);
                for i in (0..bounds.len() - 1).rev() {
                    let size = (bounds[i + 1] - bounds[i]).max(1.0);
                    let (start, end) = (values[i], values[i + 1]);
                    let way = count.clone().plus(-bounds[i]);
                    let value = match interpolation {
                        Interpolation::Linear => way.times((end - start) / size).plus(start),
                        Interpolation::Cosine => {
                            way.times(PI / size).cos().plus(1.0).times((start - end) / 2.0).plus(end)
                        }
                    };
                    result = count.below(bounds[i + 1], value, result);
                }
                result
            }
            Self::Join { schedules, boundaries } => {
                let first = schedules.first().map_or_else(|| count.constant(0.0), |first| first.of(count.clone()));
                schedules.iter().skip(1).zip(boundaries).fold(first, |before, (schedule, &boundary)| {
                    let boundary = boundary as f64;
                    count.below(boundary, before, schedule.of(count.clone().plus(-boundary)))
                })
            }
            Self::Table(values) => count.lookup(values),
            Self::Function(function) => count.function(function),
            Self::Linear { .. }
            | Self::WarmupConstant { .. }
            | Self::WarmupCosineDecay { .. }
            | Self::WarmupExponentialDecay { .. }
            | Self::LinearOnecycle { .. }
            | Self::CosineOnecycle { .. }
            | Self::Sgdr(_) => self.parts().of(count),
        }
    }
}

/// Cosine factor: 1 at step 0, 0 at the last step and after it.
fn cosine<V: Value>(count: V, steps: f64) -> V {
    count.clamp(f64::NEG_INFINITY, steps).times(PI / steps).cos().plus(1.0).times(0.5)
}

/// Returns the boundaries in ascending order, and the values: before the first boundary, and from each boundary on.
fn knots(init_value: f64, boundaries_and_scales: &[(u64, f64)]) -> (Vec<f64>, Vec<f64>) {
    let mut sorted = boundaries_and_scales.to_vec();
    sorted.sort_by_key(|(boundary, _)| *boundary);
    let mut value = init_value;
    let mut values = vec![value];
    for (_, scale) in &sorted {
        value *= scale;
        values.push(value);
    }
    (sorted.into_iter().map(|(boundary, _)| boundary as f64).collect(), values)
}

impl From<f64> for Schedule {
    fn from(value: f64) -> Self {
        Self::Constant(value)
    }
}
