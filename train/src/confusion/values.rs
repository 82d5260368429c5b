//! Metrics of multi-label classifiers and of regression.

use grove_distributed::{CommError, Communicator};
use grove_models::bert::ProblemType;
use serde_json::{Map, Value};

/// Decision threshold of a label's logit: a probability of 0.5.
const THRESHOLD: f64 = 0.0;

/// Metrics of multi-label classification (loss, micro-averaged F1, fraction of exact matches) or regression (mean
/// squared error, mean absolute error, Pearson correlation).
///
/// ```
/// use grove_models::bert::ProblemType;
/// use grove_train::ValueScore;
///
/// let mut score = ValueScore::new(ProblemType::Regression);
/// for (predicted, value) in [(1.0, 1.5), (2.0, 1.5), (3.0, 3.0)] {
///     score.add(&[predicted], &[value]);
/// }
/// assert_eq!(score.loss(), 0.5 / 3.0);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ValueScore {
    problem: ProblemType,
    /// Sums over examples, in the order of the constants below.
    sums: [f64; LENGTH],
}

/// Examples, sum of losses.
const COUNT: usize = 0;
const LOSS: usize = 1;
/// Multi-label: true positives, false positives, false negatives, exact matches.
const TRUE_POSITIVES: usize = 2;
const FALSE_POSITIVES: usize = 3;
const FALSE_NEGATIVES: usize = 4;
const EXACT: usize = 5;
/// Regression: sums of absolute errors, predictions, values, squares and products.
const ABSOLUTE: usize = 2;
const X: usize = 3;
const Y: usize = 4;
const XX: usize = 5;
const YY: usize = 6;
const XY: usize = 7;
const LENGTH: usize = 8;

impl ValueScore {
    /// Creates an empty score.
    pub fn new(problem: ProblemType) -> Self {
        Self { problem, sums: [0.0; LENGTH] }
    }

    /// Adds an example: its logits and its target values.
    pub fn add(&mut self, logits: &[f64], values: &[f32]) {
        let sums = &mut self.sums;
        sums[COUNT] += 1.0;
        let pairs = logits.iter().zip(values).map(|(logit, value)| (*logit, f64::from(*value)));
        if self.problem == ProblemType::Regression {
            let errors = pairs.clone().map(|(x, y)| (x - y) * (x - y)).sum::<f64>();
            sums[LOSS] += errors / logits.len() as f64;
            for (x, y) in pairs {
                let n = logits.len() as f64;
                sums[ABSOLUTE] += (x - y).abs() / n;
                let terms = [(X, x), (Y, y), (XX, x * x), (YY, y * y), (XY, x * y)];
                terms.into_iter().for_each(|(place, term)| sums[place] += term / n);
            }
            return;
        }
        // log(1 + exp(x)) - x y, without overflow.
        let loss = |(x, y): (f64, f64)| x.max(0.0) + (-x.abs()).exp().ln_1p() - x * y;
        sums[LOSS] += pairs.clone().map(loss).sum::<f64>() / logits.len() as f64;
        let mut exact = true;
        for (x, y) in pairs {
            match (x > THRESHOLD, y > 0.5) {
                (true, true) => sums[TRUE_POSITIVES] += 1.0,
                (true, false) => sums[FALSE_POSITIVES] += 1.0,
                (false, true) => sums[FALSE_NEGATIVES] += 1.0,
                (false, false) => {}
            }
            exact &= (x > THRESHOLD) == (y > 0.5);
        }
        sums[EXACT] += f64::from(u8::from(exact));
    }

    /// Sums the scores of all ranks of a job. Every rank gets the result.
    ///
    /// # Errors
    /// [`CommError`].
    pub fn over(mut self, ranks: &Communicator) -> Result<Self, CommError> {
        if ranks.is_shared() {
            let sums = ranks.all_reduce("the score of an evaluation", self.sums.to_vec())?;
            self.sums.copy_from_slice(&sums);
        }
        Ok(self)
    }

    /// Number of examples.
    pub fn count(&self) -> usize {
        self.sums[COUNT] as usize
    }

    /// Mean loss: the mean squared error, or the binary cross-entropy averaged over the labels, in nats.
    pub fn loss(&self) -> f64 {
        self.sums[LOSS] / self.sums[COUNT]
    }

    /// Returns the metrics by name: `loss`, then `mae` and `pearson` for regression, or `micro_f1` and `accuracy`.
    pub fn metrics(&self) -> Vec<(&'static str, f64)> {
        let (sums, n) = (&self.sums, self.sums[COUNT]);
        let loss = ("loss", self.loss());
        if self.problem == ProblemType::Regression {
            let covariance = n * sums[XY] - sums[X] * sums[Y];
            let variances = (n * sums[XX] - sums[X] * sums[X]) * (n * sums[YY] - sums[Y] * sums[Y]);
            // The correlation is undefined if the predictions or the values are constant.
            let pearson = if variances > 0.0 { covariance / variances.sqrt() } else { 0.0 };
            return vec![loss, ("mae", sums[ABSOLUTE] / n), ("pearson", pearson)];
        }
        let wrong = sums[FALSE_POSITIVES] + sums[FALSE_NEGATIVES];
        let all = 2.0 * sums[TRUE_POSITIVES] + wrong;
        let micro_f1 = if all > 0.0 { 2.0 * sums[TRUE_POSITIVES] / all } else { 0.0 };
        vec![loss, ("micro_f1", micro_f1), ("accuracy", sums[EXACT] / n)]
    }

    /// Returns a JSON object with the metrics and the number of examples, `texts`.
    pub fn json(&self) -> Value {
        let metrics = self.metrics().into_iter().map(|(name, value)| (name.to_owned(), value.into()));
        metrics.chain([("texts".to_owned(), self.count().into())]).collect::<Map<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(problem: ProblemType, examples: &[(&[f64], &[f32])]) -> Vec<f64> {
        let mut score = ValueScore::new(problem);
        examples.iter().for_each(|(logits, values)| score.add(logits, values));
        score.metrics().into_iter().map(|(_, value)| value).collect()
    }

    fn assert_close(found: &[f64], expected: &[f64]) {
        let close = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6);
        assert!(found.len() == expected.len() && close, "{found:?} is not {expected:?}");
    }

    /// Expected values from scikit-learn and scipy.
    #[test]
    fn regression_has_the_metrics_of_scikit_learn() {
        let examples: [(&[f64], &[f32]); 4] = [(&[1.0], &[1.5]), (&[2.0], &[1.5]), (&[3.0], &[3.5]), (&[5.0], &[4.0])];
        assert_close(&metrics(ProblemType::Regression, &examples), &[0.4375, 0.625, 0.909_123_767]);
        assert_eq!(metrics(ProblemType::Regression, &examples[..1])[2], 0.0);
    }

    #[test]
    fn multi_label_has_the_metrics_of_scikit_learn() {
        let examples: [(&[f64], &[f32]); 3] = [
            (&[2.0, -1.0, 0.5], &[1.0, 0.0, 1.0]),
            (&[-1.0, 1.0, -2.0], &[1.0, 1.0, 0.0]),
            (&[0.5, 1.0, -1.0], &[0.0, 1.0, 0.0]),
        ];
        assert_close(&metrics(ProblemType::MultiLabel, &examples), &[0.474_257_618, 0.8, 1.0 / 3.0]);
    }
}
