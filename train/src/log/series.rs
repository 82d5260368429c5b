//! Curves of any number of points, in bounded memory.

/// Maximum number of buckets of a series: about the number of pixels of a plot.
const CAPACITY: usize = 1024;

/// Values larger than this are treated like infinity.
const LARGEST: f64 = 1e30;

/// Downsampled curve: neighbouring points share a bucket, and the bucket size grows with the number of points, so that
/// adding a point has constant amortised cost.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    buckets: Vec<Bucket>,
    /// Number of points in a full bucket.
    full: u64,
    last: Option<f64>,
}

/// Aggregate of neighbouring points: mean and range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bucket {
    points: u64,
    steps: f64,
    /// Number of points that can be drawn; the fields below cover only these.
    drawn: u64,
    sum: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Series {
    pub(crate) fn new() -> Self {
        Self { buckets: Vec::new(), full: 1, last: None }
    }

    pub(crate) fn push(&mut self, step: u64, value: f64) {
        self.last = Some(value);
        let point = Bucket::of(step as f64, value);
        match self.buckets.last_mut() {
            Some(bucket) if bucket.points < self.full => *bucket = bucket.and(point),
            _ => self.buckets.push(point),
        }
        if self.buckets.len() > CAPACITY {
            self.buckets =
                self.buckets.chunks(2).map(|pair| pair[1..].iter().fold(pair[0], |a, b| a.and(*b))).collect();
            self.full *= 2;
        }
    }

    /// Returns the buckets in the order of steps.
    pub(crate) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// Returns the value of the last point.
    pub(crate) fn last(&self) -> Option<f64> {
        self.last
    }
}

impl Bucket {
    fn of(step: f64, value: f64) -> Self {
        let empty = Self { points: 1, steps: step, drawn: 0, sum: 0.0, low: f64::INFINITY, high: f64::NEG_INFINITY };
        // False for NaN too.
        if value.abs() <= LARGEST { Self { drawn: 1, sum: value, low: value, high: value, ..empty } } else { empty }
    }

    fn and(self, other: Self) -> Self {
        Self {
            points: self.points + other.points,
            steps: self.steps + other.steps,
            drawn: self.drawn + other.drawn,
            sum: self.sum + other.sum,
            low: self.low.min(other.low),
            high: self.high.max(other.high),
        }
    }

    /// Mean step.
    pub(crate) fn step(&self) -> f64 {
        self.steps / self.points as f64
    }

    /// Mean of the values that can be drawn, `None` if there are none.
    pub(crate) fn mean(&self) -> Option<f64> {
        // Rounding could push the mean of equal numbers out of their range.
        (self.drawn > 0).then(|| (self.sum / self.drawn as f64).clamp(self.low, self.high))
    }

    /// True if a value of the bucket cannot be drawn.
    pub(crate) fn has_gap(&self) -> bool {
        self.drawn < self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_extremes_survive() {
        let mut series = Series::new();
        for step in 0..1_000_000_u64 {
            series.push(step, if step == 777_777 { 50.0 } else { (step % 2) as f64 });
        }
        assert!(series.buckets().len() <= CAPACITY && series.buckets().len() > CAPACITY / 2 - 1);
        assert_eq!(series.buckets().iter().map(|bucket| bucket.points).sum::<u64>(), 1_000_000);
        assert_eq!(series.buckets().iter().map(|bucket| bucket.high).fold(0.0, f64::max), 50.0);
        assert!(series.buckets().is_sorted_by(|a, b| a.step() < b.step()));
        assert_eq!(series.last(), Some(1.0));
    }

    #[test]
    fn a_number_that_cannot_be_drawn_leaves_a_gap() {
        let mut series = Series::new();
        for (step, value) in [1.0, f64::NAN, f64::INFINITY, 3.0].into_iter().enumerate() {
            series.push(step as u64, value);
        }
        let means: Vec<_> = series.buckets().iter().map(Bucket::mean).collect();
        assert_eq!(means, [Some(1.0), None, None, Some(3.0)]);
        assert_eq!(series.buckets().iter().filter(|bucket| bucket.has_gap()).count(), 2);
    }
}
