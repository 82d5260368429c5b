use grove_backend::{Autodiff, Backend};
use grove_optim::{GradientTransformation, Schedule, exponential_decay};
use grove_tree::{Key, Tree};
use std::sync::Arc;

use crate::{
    Outcome, Result, StepOptions, TrainError,
    arrays::scalar,
    data::{Data, Position, prefetch},
    train_step,
};

/// Options of [`find_learning_rate`].
#[derive(Clone)]
pub struct RateSearch<B: Backend> {
    /// First learning rate. Default: 1e-7.
    pub from: f64,
    /// Last learning rate. Default: 1.
    pub to: f64,
    /// Number of steps. Default: 100.
    pub steps: u64,
    /// Trainable leaves and compute dtype.
    pub step: StepOptions<B>,
}

impl<B: Backend> Default for RateSearch<B> {
    fn default() -> Self {
        Self { from: 1e-7, to: 1.0, steps: 100, step: StepOptions::default() }
    }
}

/// Result of [`find_learning_rate`].
#[derive(Clone, Debug, PartialEq)]
pub struct RateCurve {
    /// Learning rate of each step, and the loss before that step.
    pub points: Vec<(f64, f64)>,
}

/// Weight of the previous average in the smoothed loss.
const SMOOTHING: f64 = 0.9;

/// Multiple of the lowest smoothed loss at which the search ends.
const DIVERGED: f64 = 4.0;

impl RateCurve {
    /// Returns the learning rate at which the smoothed loss falls fastest, as Lightning's and fastai's finders do. `None` if
    /// the loss never falls.
    pub fn suggestion(&self) -> Option<f64> {
        let smooth = self.smoothed();
        // Slopes over the logarithm of the rate, whose steps are equal.
        let slopes =
            smooth.windows(2).zip(self.points.iter().skip(1)).map(|(pair, (rate, _))| (pair[1] - pair[0], *rate));
        let steepest = slopes.min_by(|(a, _), (b, _)| a.total_cmp(b))?;
        (steepest.0 < 0.0).then_some(steepest.1)
    }

    fn smoothed(&self) -> Vec<f64> {
        let mut average = Smoothed::default();
        self.points.iter().map(|(_, loss)| average.push(*loss)).collect()
    }
}

/// Exponential moving average of losses, corrected for the start at 0.
struct Smoothed {
    average: f64,
    count: i32,
    lowest: f64,
}

impl Default for Smoothed {
    fn default() -> Self {
        Self { average: 0.0, count: 0, lowest: f64::INFINITY }
    }
}

impl Smoothed {
    /// Adds a loss and returns the average.
    fn push(&mut self, loss: f64) -> f64 {
        self.average = SMOOTHING * self.average + (1.0 - SMOOTHING) * loss;
        self.count += 1;
        let smooth = self.average / (1.0 - SMOOTHING.powi(self.count));
        self.lowest = self.lowest.min(smooth);
        smooth
    }

    /// Adds a loss. Returns true if the losses diverge.
    fn diverges(&mut self, loss: f64) -> bool {
        let smooth = self.push(loss);
        smooth.is_nan() || smooth > DIVERGED * self.lowest.abs().max(f64::MIN_POSITIVE)
    }
}

/// Trains for a few steps with exponentially growing learning rates, and returns the losses. Smith, "Cyclical Learning
/// Rates for Training Neural Networks" (2017). The search ends early if the loss diverges. The model is not changed.
///
/// `optimizer` makes the optimizer for a schedule. `loss_fn` is as in [`train_step`]. Each step takes the next batch.
///
/// ```
/// use burn::tensor::Tensor;
/// use grove_backend::Autodiff;
/// use grove_optim::{Sgd, sgd};
/// use grove_train::{RateSearch, data::Examples, find_learning_rate};
/// use grove_tree::{Array, Key};
/// use std::sync::Arc;
/// # type B = burn_flex::Flex;
/// let slope = Array::<B, 1>::new(Tensor::from_floats([0.0], &Default::default()));
/// let data = Arc::new(Examples::new(vec![2.0], 1)?);
/// let loss = |slope: Array<Autodiff<B>, 1>, x: &Vec<f64>, _key: Key| (slope.val() * x[0] - 6.0).square();
/// let search = RateSearch { from: 1e-4, to: 10.0, ..RateSearch::default() };
/// let curve = find_learning_rate(&slope, |rate| sgd(rate, Sgd::default()), &data, loss, Key::new(0), &search)?;
/// // Steps of this parabola diverge from 0.25 on.
/// assert!(curve.suggestion().is_some_and(|rate| (1e-3..0.25).contains(&rate)));
/// # Ok::<(), grove_train::TrainError>(())
/// ```
///
/// # Errors
/// [`TrainError::Options`] if the rates are not positive and increasing, or there are fewer than 2 steps; and the errors of
/// the data.
pub fn find_learning_rate<B, M, T, D, O>(
    model: &M,
    optimizer: impl Fn(Schedule) -> T,
    data: &Arc<D>,
    loss_fn: impl Fn(M::On<Autodiff<B>>, &D::Batch, Key) -> O,
    key: Key,
    search: &RateSearch<B>,
) -> Result<RateCurve>
where
    B: Backend,
    M: Tree<B>,
    T: GradientTransformation<B, M>,
    D: Data,
    O: Into<Outcome<B, M>>,
{
    let RateSearch { from, to, steps, step } = search;
    if !(*from > 0.0 && to > from && to.is_finite() && *steps >= 2) {
        let reason = format!(
            "a search from {from} to {to} in {steps} steps: give positive, increasing rates and at least 2 steps"
        );
        return Err(TrainError::Options(reason));
    }
    let schedule = exponential_decay(*from, steps - 1, to / from);
    let optimizer = optimizer(schedule.clone());
    let step = train_step(loss_fn, &optimizer, step.clone());
    let (mut model, mut state) = (model.clone(), optimizer.init(model));
    let (mut curve, mut average) = (RateCurve { points: Vec::new() }, Smoothed::default());
    let batches = prefetch(data.clone(), Position::default(), 2).zip(0..*steps);
    for (batch, i) in batches {
        let (_, batch) = batch?;
        let metrics;
        (model, state, metrics) = step(model, state, &batch, key.fold_in(i as u32));
        let loss = scalar(metrics.loss.val().into_data());
        curve.points.push((schedule.value(i), loss));
        if average.diverges(loss) {
            break;
        }
    }
    Ok(curve)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suggestion_is_where_the_loss_falls_fastest() {
        let rates: Vec<f64> = (0..60).map(|i| 1e-6 * 10f64.powf(i as f64 / 10.0)).collect();
        // A step down at 1e-3.
        let loss = |rate: f64| 2.0 - 1.0 / (1.0 + (1e-3 / rate).powi(3));
        let curve = RateCurve { points: rates.iter().map(|&rate| (rate, loss(rate))).collect() };
        let suggestion = curve.suggestion().expect("it falls");
        assert!((5e-4..5e-3).contains(&suggestion), "{suggestion}");

        let rising = RateCurve { points: rates.iter().map(|&rate| (rate, 1.0 + rate)).collect() };
        assert_eq!(rising.suggestion(), None);
        assert_eq!(RateCurve { points: vec![] }.suggestion(), None);
    }

    #[test]
    fn a_nan_loss_has_diverged() {
        let mut average = Smoothed::default();
        assert_eq!([1.0, 1.5, f64::NAN].map(|loss| average.diverges(loss)), [false, false, true]);
        let mut average = Smoothed::default();
        assert_eq!([1.0, 9.0, 100.0].map(|loss| average.diverges(loss)), [false, true, true]);
    }
}
