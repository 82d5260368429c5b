use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::{
    OptimError, Schedule, cosine_decay_schedule, cosine_onecycle_schedule, exponential_decay, join_schedules,
    linear_onecycle_schedule, linear_schedule, piecewise_constant_schedule, polynomial_schedule, sgdr_schedule,
    warmup_constant_schedule, warmup_cosine_decay_schedule, warmup_exponential_decay_schedule,
};

/// A schedule as plain data, with the names and arguments of the functions that make schedules. In a file a plain
/// number is a constant: `3e-4`, or `{"linear": {"init_value": 1e-3, "end_value": 0, "transition_steps": 1000}}`.
#[derive(Clone, Debug, PartialEq)]
pub enum ScheduleConfig {
    /// A constant value.
    Constant(f64),
    /// A schedule by its name.
    Named(NamedSchedule),
}

/// Schedules by name, with the arguments of the functions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
#[allow(missing_docs)] // Each variant is the function of its name, with that function's arguments.
pub enum NamedSchedule {
    #[serde(alias = "linear_schedule")]
    Linear { init_value: f64, end_value: f64, transition_steps: u64 },
    #[serde(alias = "polynomial_schedule")]
    Polynomial { init_value: f64, end_value: f64, power: f64, transition_steps: u64 },
    #[serde(alias = "piecewise_constant_schedule")]
    PiecewiseConstant { init_value: f64, boundaries_and_scales: Vec<(u64, f64)> },
    #[serde(alias = "cosine_decay_schedule", alias = "cosine")]
    CosineDecay {
        init_value: f64,
        decay_steps: u64,
        #[serde(default)]
        alpha: f64,
    },
    #[serde(alias = "exponential")]
    ExponentialDecay { init_value: f64, transition_steps: u64, decay_rate: f64 },
    #[serde(alias = "warmup_constant_schedule")]
    WarmupConstant {
        #[serde(default)]
        init_value: f64,
        peak_value: f64,
        warmup_steps: u64,
    },
    #[serde(alias = "warmup_cosine_decay_schedule", alias = "warmup_cosine")]
    WarmupCosineDecay {
        #[serde(default)]
        init_value: f64,
        peak_value: f64,
        warmup_steps: u64,
        decay_steps: u64,
        #[serde(default)]
        end_value: f64,
    },
    #[serde(alias = "warmup_exponential_decay_schedule", alias = "warmup_exponential")]
    WarmupExponentialDecay {
        #[serde(default)]
        init_value: f64,
        peak_value: f64,
        warmup_steps: u64,
        transition_steps: u64,
        decay_rate: f64,
    },
    #[serde(alias = "linear_onecycle_schedule")]
    LinearOnecycle { transition_steps: u64, peak_value: f64 },
    #[serde(alias = "cosine_onecycle_schedule")]
    CosineOnecycle { transition_steps: u64, peak_value: f64 },
    #[serde(alias = "sgdr_schedule")]
    Sgdr(Vec<(f64, f64, u64, u64, f64)>),
    #[serde(alias = "join_schedules")]
    Join { schedules: Vec<ScheduleConfig>, boundaries: Vec<u64> },
    /// A [`Schedule`] with all of its arguments.
    Schedule(Schedule),
}

impl ScheduleConfig {
    /// Returns the schedule.
    ///
    /// # Errors
    /// [`OptimError::Value`] if it is invalid, as determined by [`Schedule::check`].
    pub fn schedule(&self) -> Result<Schedule, OptimError> {
        let schedule = self.clone().unchecked();
        schedule.check()?;
        Ok(schedule)
    }

    fn unchecked(self) -> Schedule {
        use NamedSchedule as Named;
        let named = match self {
            Self::Constant(value) => return value.into(),
            Self::Named(named) => named,
        };
        match named {
            Named::Linear { init_value, end_value, transition_steps } => {
                linear_schedule(init_value, end_value, transition_steps)
            }
            Named::Polynomial { init_value, end_value, power, transition_steps } => {
                polynomial_schedule(init_value, end_value, power, transition_steps)
            }
            Named::PiecewiseConstant { init_value, boundaries_and_scales } => {
                piecewise_constant_schedule(init_value, boundaries_and_scales)
            }
            Named::CosineDecay { init_value, decay_steps, alpha } => {
                cosine_decay_schedule(init_value, decay_steps, alpha)
            }
            Named::ExponentialDecay { init_value, transition_steps, decay_rate } => {
                exponential_decay(init_value, transition_steps, decay_rate)
            }
            Named::WarmupConstant { init_value, peak_value, warmup_steps } => {
                warmup_constant_schedule(init_value, peak_value, warmup_steps)
            }
            Named::WarmupCosineDecay { init_value, peak_value, warmup_steps, decay_steps, end_value } => {
                warmup_cosine_decay_schedule(init_value, peak_value, warmup_steps, decay_steps, end_value)
            }
            Named::WarmupExponentialDecay { init_value, peak_value, warmup_steps, transition_steps, decay_rate } => {
                warmup_exponential_decay_schedule(init_value, peak_value, warmup_steps, transition_steps, decay_rate)
            }
            Named::LinearOnecycle { transition_steps, peak_value } => {
                linear_onecycle_schedule(transition_steps, peak_value)
            }
            Named::CosineOnecycle { transition_steps, peak_value } => {
                cosine_onecycle_schedule(transition_steps, peak_value)
            }
            Named::Sgdr(cycles) => sgdr_schedule(cycles),
            Named::Join { schedules, boundaries } => {
                join_schedules(schedules.into_iter().map(Self::unchecked).collect(), boundaries)
            }
            Named::Schedule(schedule) => schedule,
        }
    }
}

impl From<f64> for ScheduleConfig {
    fn from(value: f64) -> Self {
        Self::Constant(value)
    }
}

impl From<NamedSchedule> for ScheduleConfig {
    fn from(named: NamedSchedule) -> Self {
        Self::Named(named)
    }
}

impl From<Schedule> for ScheduleConfig {
    fn from(schedule: Schedule) -> Self {
        Self::Named(NamedSchedule::Schedule(schedule))
    }
}

impl Serialize for ScheduleConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Constant(value) => value.serialize(serializer),
            Self::Named(named) => named.serialize(serializer),
        }
    }
}

// Implemented by hand, because serde's `untagged` gives no useful error messages.
impl<'de> Deserialize<'de> for ScheduleConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value.as_f64() {
            Some(number) => Ok(Self::Constant(number)),
            None => serde_json::from_value(value).map(Self::Named).map_err(serde::de::Error::custom),
        }
    }
}
