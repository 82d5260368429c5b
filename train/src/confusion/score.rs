//! Metrics of a classifier.

use burn::tensor::{Int, Tensor};
use grove_backend::Backend;
use grove_distributed::{CommError, Communicator};

use super::ConfusionMatrix;

/// Metrics of a classifier, accumulated over batches: loss, accuracy, top-5 accuracy.
///
/// ```
/// use burn::tensor::{Int, Tensor};
/// use grove_train::ClassifierScore;
/// # type B = burn_flex::Flex;
/// # let device = Default::default();
/// let mut score = ClassifierScore::new(["cat", "dog"]);
/// for _ in 0..3 {
///     let logits = Tensor::<B, 2>::zeros([2, 2], &device);
///     score.update(logits, Tensor::<B, 1, Int>::from_ints([0, 1], &device));
/// }
/// assert_eq!(score.confusion.accuracy(), 0.5); // of equal logits the first counts
/// assert!((score.loss() - 2f64.ln()).abs() < 1e-12);
/// ```
#[derive(Clone, Debug)]
pub struct ClassifierScore {
    /// Sum of the losses of each class's examples, in nats.
    sums: Vec<f64>,
    /// Number of examples whose class is among the five with the largest logits.
    in_five: usize,
    /// Confusion matrix.
    pub confusion: ConfusionMatrix,
}

impl ClassifierScore {
    /// Creates an empty score for classes of these names: strings, or numbers such as `0..10`.
    pub fn new(labels: impl IntoIterator<Item = impl ToString>) -> Self {
        let labels: Vec<String> = labels.into_iter().map(|label| label.to_string()).collect();
        Self { sums: vec![0.0; labels.len()], in_five: 0, confusion: ConfusionMatrix::new(labels) }
    }

    /// Adds a batch: its logits and its classes. Copies both to the host.
    ///
    /// # Shapes
    /// - logits `[b, classes]`
    /// - classes `[b]`
    ///
    /// # Panics
    /// If the shapes do not fit, or a class is out of range.
    #[track_caller]
    pub fn update<B: Backend>(&mut self, logits: Tensor<B, 2>, classes: Tensor<B, 1, Int>) {
        let ([rows, width], [count]) = (logits.dims(), classes.dims());
        assert_eq!(
            (rows, width),
            (count, self.sums.len()),
            "logits [{rows}, {width}] do not fit {count} labels of {} classes",
            self.sums.len()
        );
        let logits: Vec<f64> = logits.into_data().iter().collect();
        for (logits, class) in logits.chunks(width).zip(classes.into_data().iter::<i64>()) {
            self.add(logits, class as usize);
        }
    }

    /// Adds an example: its logits and its class.
    pub fn add(&mut self, logits: &[f64], class: usize) {
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
        self.sums[class] += sum.ln() + most - logits[class];
        let predicted = logits.iter().position(|logit| *logit == most).unwrap_or(0);
        self.confusion.add(class, predicted);
        self.in_five += usize::from(logits.iter().filter(|logit| **logit > logits[class]).count() < 5);
    }

    /// Sums the scores of all ranks of a job. Every rank gets the result.
    ///
    /// # Errors
    /// [`CommError`].
    pub fn over(mut self, ranks: &Communicator) -> Result<Self, CommError> {
        if !ranks.is_shared() {
            return Ok(self);
        }
        // Counts are exact in f64.
        let counts = self.confusion.counts_mut();
        let numbers = counts.iter().map(|count| **count as f64);
        let values = [self.in_five as f64].into_iter().chain(self.sums.iter().copied()).chain(numbers).collect();
        let sums = ranks.all_reduce("the score of an evaluation", values)?;
        let (losses, classes) = sums[1..].split_at(self.sums.len());
        counts.into_iter().zip(classes).for_each(|(count, sum)| *count = *sum as usize);
        (self.sums, self.in_five) = (losses.to_vec(), sums[0] as usize);
        Ok(self)
    }

    /// Top-5 accuracy: the fraction of the examples whose class is among the five with the largest logits.
    pub fn top5(&self) -> f64 {
        self.in_five as f64 / self.confusion.count() as f64
    }

    /// Returns the JSON object of [`ConfusionMatrix::json`], with the `loss`.
    pub fn json(&self) -> serde_json::Value {
        let mut found = self.confusion.json();
        found["loss"] = self.loss().into();
        found
    }

    /// Mean cross-entropy, in nats.
    pub fn loss(&self) -> f64 {
        self.sums.iter().sum::<f64>() / self.confusion.count() as f64
    }

    /// Weighted mean cross-entropy, in nats: each example has the weight of its class, as in
    /// `torch.nn.CrossEntropyLoss(weight=…)`.
    ///
    /// - `weights`: weight of each class; see [`class_weights`](crate::classify::class_weights)
    pub fn weighted_loss(&self, weights: &[f32]) -> f64 {
        let weighted = |(class, weight): (usize, &f32)| {
            let weight = f64::from(*weight);
            (weight * self.sums[class], weight * self.confusion.examples_of(class) as f64)
        };
        let (sums, counts): (Vec<f64>, Vec<f64>) = weights.iter().enumerate().map(weighted).unzip();
        sums.iter().sum::<f64>() / counts.iter().sum::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_score_over_ranks_covers_all_examples() {
        let labels: Vec<String> = (0..7).map(|class| class.to_string()).collect();
        let examples: Vec<([f64; 7], usize)> =
            (0..11).map(|i| (std::array::from_fn(|class| ((i * 5 + class * 3) % 7) as f64 / 2.0), i % 7)).collect();
        let score_of = |skip: usize, step: usize| {
            let mut score = ClassifierScore::new(&labels);
            examples.iter().skip(skip).step_by(step).for_each(|(logits, class)| score.add(logits, *class));
            score
        };
        let whole = score_of(0, 1);
        std::thread::scope(|scope| {
            for ranks in Communicator::threads(3) {
                let (score_of, whole) = (&score_of, &whole);
                scope.spawn(move || {
                    let found = score_of(ranks.rank(), ranks.size()).over(&ranks).expect("no error");
                    assert_eq!((&found.confusion, found.in_five), (&whole.confusion, whole.in_five));
                    assert!((found.loss() - whole.loss()).abs() < 1e-12);
                });
            }
        });
    }

    #[test]
    fn weighted_loss_counts_examples_by_their_class() {
        let mut score = ClassifierScore::new(["a", "b"]);
        let examples = [([2.0, 0.0], 0), ([1.0, 0.5], 0), ([0.0, 0.3], 1)];
        for (logits, class) in examples {
            score.add(&logits, class);
        }
        // torch.nn.functional.cross_entropy(logits, classes, weight=torch.tensor([0.75, 1.5]))
        assert!((score.weighted_loss(&[0.75, 1.5]) - 0.427_429).abs() < 1e-6, "{}", score.weighted_loss(&[0.75, 1.5]));
        assert!((score.weighted_loss(&[1.0, 1.0]) - score.loss()).abs() < 1e-15);
    }

    #[test]
    fn means_over_examples() {
        let labels: Vec<String> = (0..7).map(|class| class.to_string()).collect();
        let mut score = ClassifierScore::new(&labels);
        let logits = [6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0];
        for class in [0, 4, 5, 0] {
            score.add(&logits, class);
        }
        assert_eq!(score.confusion.accuracy(), 0.5);
        assert_eq!(score.top5(), 0.75);
        let sum: f64 = logits.iter().map(|logit| f64::exp(logit - 6.0)).sum();
        assert!((score.loss() - (sum.ln() + (0.0 + 4.0 + 5.0 + 0.0) / 4.0)).abs() < 1e-12);
    }

    #[test]
    fn a_batch_adds_each_of_its_rows() {
        type B = burn_flex::Flex;
        let device = Default::default();
        let mut by_batch = ClassifierScore::new(0..3);
        let logits = Tensor::<B, 2>::from_floats([[3.0, 1.0, 2.0], [0.0, 1.0, -1.0]], &device);
        by_batch.update(logits, Tensor::<B, 1, Int>::from_ints([2, 1], &device));
        let mut by_row = ClassifierScore::new(["0", "1", "2"]);
        by_row.add(&[3.0, 1.0, 2.0], 2);
        by_row.add(&[0.0, 1.0, -1.0], 1);
        assert_eq!((&by_batch.confusion, by_batch.in_five), (&by_row.confusion, by_row.in_five));
        assert_eq!(by_batch.loss(), by_row.loss());
    }

    #[test]
    #[should_panic(expected = "logits [2, 2] do not fit 2 labels of 3 classes")]
    fn rejects_logits_of_other_classes() {
        let device = Default::default();
        let zeros = Tensor::<burn_flex::Flex, 2>::zeros([2, 2], &device);
        ClassifierScore::new(0..3).update(zeros, Tensor::zeros([2], &device));
    }
}
