use std::{fmt, sync::Arc};

use super::Schedule;

/// A schedule that is a closure of the step, counted from 0. Constructed by `Schedule::from`, or by `into` as a
/// hyperparameter.
///
/// The closure runs on the host: a train step reads the step count from the device, and so waits for a GPU.
/// [`Schedule::table`] stores the values of a known number of steps on the device instead. Two such schedules are equal
/// if one is a clone of the other.
#[derive(Clone)]
pub struct ScheduleFunction(Arc<dyn Fn(u64) -> f64 + Send + Sync>);

impl ScheduleFunction {
    pub(super) fn value(&self, step: u64) -> f64 {
        (self.0)(step)
    }
}

impl<F: Fn(u64) -> f64 + Send + Sync + 'static> From<F> for Schedule {
    fn from(function: F) -> Self {
        Self::Function(ScheduleFunction(Arc::new(function)))
    }
}

impl PartialEq for ScheduleFunction {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for ScheduleFunction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a closure")
    }
}
