use serde::{Serialize, Serializer};
use std::{
    fmt::{self, Display},
    str::FromStr,
};

/// Known metrics: the choice of the best model, and the description.
const METRICS: [(KeepModel, &str); 8] = [
    (KeepModel::Lowest("loss"), "loss"),
    (KeepModel::Lowest("perplexity"), "perplexity"),
    (KeepModel::Lowest("mae"), "mean absolute error"),
    (KeepModel::Greatest("accuracy"), "accuracy"),
    (KeepModel::Greatest("macro_f1"), "macro F1"),
    (KeepModel::Greatest("micro_f1"), "micro F1"),
    (KeepModel::Greatest("top5"), "top-5 accuracy"),
    (KeepModel::Greatest("pearson"), "Pearson correlation"),
];

/// Model that a run keeps: the one with the best evaluation, or the last one. Corresponds to transformers'
/// `metric_for_best_model` and `greater_is_better`.
///
/// ```
/// use grove_train::KeepModel;
///
/// assert_eq!(KeepModel::default(), KeepModel::Lowest("loss"));
/// assert_eq!("best:macro_f1".parse(), Ok(KeepModel::Greatest("macro_f1")));
/// assert_eq!(KeepModel::Last.to_string(), "last");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeepModel {
    /// Model after the last step, or its moving average if there is one.
    Last,
    /// Model whose [`Evaluation`](crate::Evaluation) has the lowest value of this metric.
    Lowest(&'static str),
    /// Model whose [`Evaluation`](crate::Evaluation) has the greatest value of this metric.
    Greatest(&'static str),
}

impl Default for KeepModel {
    fn default() -> Self {
        Self::Lowest("loss")
    }
}

impl KeepModel {
    /// Metric that compares evaluations; `loss` for [`Last`](Self::Last), for early stopping.
    pub fn metric(self) -> &'static str {
        match self {
            Self::Last => "loss",
            Self::Lowest(metric) | Self::Greatest(metric) => metric,
        }
    }

    /// True if a value of the metric is finite and better than the best one so far.
    pub(super) fn is_better(self, value: f64, best: Option<f64>) -> bool {
        let better = |best| if matches!(self, Self::Greatest(_)) { value > best } else { value < best };
        value.is_finite() && best.is_none_or(better)
    }

    /// Describes why a model was kept, such as `the lowest held-out loss`.
    pub(super) fn reason(self) -> String {
        let superlative = if matches!(self, Self::Greatest(_)) { "greatest" } else { "lowest" };
        let known = METRICS.iter().find(|(keep, _)| keep.metric() == self.metric());
        let metric = known.map_or(self.metric(), |(_, description)| description);
        format!("the {superlative} held-out {metric}")
    }
}

impl Display for KeepModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Last => write!(f, "last"),
            Self::Lowest(metric) | Self::Greatest(metric) => write!(f, "best:{metric}"),
        }
    }
}

impl Serialize for KeepModel {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for KeepModel {
    type Err = String;

    /// Parses `last` or `best:METRIC`, where the metric is `loss`, `perplexity`, `mae`, `accuracy`, `macro_f1`,
    /// `micro_f1`, `top5` or `pearson`.
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "last" {
            return Ok(Self::Last);
        }
        let metric = text.strip_prefix("best:").unwrap_or_default();
        let known = METRICS.iter().find(|(keep, _)| keep.metric() == metric);
        known.map(|&(keep, _)| keep).ok_or_else(|| {
            let names = METRICS.map(|(keep, _)| keep.metric()).join(", ");
            format!("give last, or best: and a metric, such as best:loss; the metrics are {names}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_in_the_direction_of_the_metric() {
        let (lowest, greatest) = (KeepModel::Lowest("loss"), KeepModel::Greatest("accuracy"));
        for (keep, value, best, expected) in [
            (lowest, 1.0, None, true),
            (lowest, 1.0, Some(2.0), true),
            (lowest, 2.0, Some(2.0), false),
            (lowest, f64::NAN, None, false),
            (greatest, 0.6, Some(0.5), true),
            (greatest, 0.5, Some(0.5), false),
            (greatest, f64::INFINITY, Some(0.5), false),
            (KeepModel::Last, 1.0, Some(2.0), true),
        ] {
            assert_eq!(keep.is_better(value, best), expected, "{keep}: {value} after {best:?}");
        }
    }

    #[test]
    fn parses_what_it_displays() {
        for name in ["last", "best:loss", "best:perplexity", "best:accuracy", "best:macro_f1", "best:top5"] {
            assert_eq!(name.parse::<KeepModel>().expect("valid").to_string(), name);
        }
        for name in ["", "best", "best:", "best:f1", "loss"] {
            let error = name.parse::<KeepModel>().expect_err("no choice");
            assert!(error.contains("the metrics are loss, perplexity, mae, accuracy, macro_f1, "), "{name}: {error}");
        }
    }
}
