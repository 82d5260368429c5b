use super::Schedule;
use crate::OptimError;

impl Schedule {
    /// Checks that the schedule is valid as a learning rate in a configuration file. Invalid are values that are
    /// negative, not finite or all 0, decays without steps, and parts that do not match their boundaries.
    ///
    /// # Errors
    /// [`OptimError::Value`] with the invalid value.
    pub fn check(&self) -> Result<(), OptimError> {
        let mut levels = Vec::new();
        self.check_parts(&mut levels)?;
        match levels.iter().any(|&level| level > 0.0) {
            true => Ok(()),
            false => invalid("learning_rate", 0.0, "positive somewhere"),
        }
    }

    /// Checks everything except that some value is positive. Collects the values that the schedule takes or approaches.
    fn check_parts(&self, levels: &mut Vec<f64>) -> Result<(), OptimError> {
        let nonnegative = |name: &str, value: f64| {
            if value.is_finite() && value >= 0.0 { Ok(()) } else { invalid(name, value, "a number of at least 0") }
        };
        let mut level = |name: &str, value: f64| {
            levels.push(value);
            nonnegative(name, value)
        };
        match self {
            Self::Constant(value) => level("learning_rate", *value),
            Self::Polynomial { init_value, end_value, power, .. } => {
                level("init_value", *init_value)?;
                level("end_value", *end_value)?;
                nonnegative("power", *power)
            }
            Self::Cosine { init_value, decay_steps, alpha, exponent } => {
                level("init_value", *init_value)?;
                nonnegative("alpha", *alpha)?;
                nonnegative("exponent", *exponent)?;
                match decay_steps {
                    0 => invalid("decay_steps", 0.0, "positive, and more than `warmup_steps` after a warm-up"),
                    _ => Ok(()),
                }
            }
            Self::Exponential { init_value, decay_rate, end_value, .. } => {
                level("init_value", *init_value)?;
                nonnegative("decay_rate", *decay_rate)?;
                nonnegative("end_value", end_value.unwrap_or(0.0))
            }
            Self::PiecewiseConstant { init_value, boundaries_and_scales }
            | Self::PiecewiseInterpolate { init_value, boundaries_and_scales, .. } => {
                level("init_value", *init_value)?;
                boundaries_and_scales.iter().try_for_each(|(_, scale)| nonnegative("boundaries_and_scales", *scale))
            }
            Self::Join { schedules, boundaries } => {
                if schedules.len() != boundaries.len() + 1 {
                    let schedules = schedules.len() as f64;
                    return invalid("schedules", schedules, "one more than `boundaries` in number");
                }
                if let Some(pair) = boundaries.windows(2).find(|pair| pair[0] >= pair[1]) {
                    return invalid("boundaries", pair[1] as f64, "more than the boundary before");
                }
                schedules.iter().try_for_each(|schedule| schedule.check_parts(levels))
            }
            Self::Table(values) => values.iter().try_for_each(|value| level("table", *value)),
            // The values of a closure are known only when it is called.
            Self::Function(_) => level("learning_rate", f64::MIN_POSITIVE),
            Self::Linear { .. }
            | Self::WarmupConstant { .. }
            | Self::WarmupCosineDecay { .. }
            | Self::WarmupExponentialDecay { .. }
            | Self::LinearOnecycle { .. }
            | Self::CosineOnecycle { .. }
            | Self::Sgdr(_) => self.parts().check_parts(levels),
        }
    }
}

fn invalid(name: &str, value: f64, expected: &'static str) -> Result<(), OptimError> {
    Err(OptimError::Value { name: name.to_owned(), value: value.to_string(), expected })
}
