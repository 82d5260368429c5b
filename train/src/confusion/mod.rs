//! Confusion matrix of a classifier, with its metrics.

#[cfg(feature = "plots")]
mod plot;
mod score;
mod values;

use serde_json::{Map, Value, json};
use unicode_width::UnicodeWidthStr;

use crate::log::printable;
pub use score::ClassifierScore;
pub use values::ValueScore;

/// Maximum length of a class name in a table, in characters.
const LONGEST_NAME: usize = 60;

/// Confusion matrix: counts of predicted classes for each true class.
///
/// ```
/// use grove_train::ConfusionMatrix;
///
/// let mut found = ConfusionMatrix::new(vec!["cat".into(), "dog".into()]);
/// for (class, predicted) in [(0, 0), (0, 0), (0, 1), (1, 1)] {
///     found.add(class, predicted);
/// }
/// assert_eq!(found.accuracy(), 0.75);
/// assert_eq!((found.precision(1), found.recall(1)), (0.5, 1.0));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ConfusionMatrix {
    labels: Vec<String>,
    /// `counts[class][predicted]`.
    counts: Vec<Vec<usize>>,
}

impl ConfusionMatrix {
    /// Creates an empty matrix for classes of these names.
    pub fn new(labels: Vec<String>) -> Self {
        let counts = vec![vec![0; labels.len()]; labels.len()];
        Self { labels, counts }
    }

    /// Counts an example.
    ///
    /// # Panics
    /// If a class is out of range.
    pub fn add(&mut self, class: usize, predicted: usize) {
        self.counts[class][predicted] += 1;
    }

    /// Returns all counts in row-major order.
    fn counts_mut(&mut self) -> Vec<&mut usize> {
        self.counts.iter_mut().flatten().collect()
    }

    /// Number of examples.
    pub fn count(&self) -> usize {
        self.counts.iter().flatten().sum()
    }

    /// Number of examples of a class.
    pub fn examples_of(&self, class: usize) -> usize {
        self.counts[class].iter().sum()
    }

    /// Fraction of the examples that were predicted correctly. NaN without examples.
    pub fn accuracy(&self) -> f64 {
        let right: usize = (0..self.labels.len()).map(|class| self.counts[class][class]).sum();
        right as f64 / self.count() as f64
    }

    /// Fraction of the predictions of a class that are correct. 0 if the class was never predicted.
    pub fn precision(&self, class: usize) -> f64 {
        let predicted = self.counts.iter().map(|row| row[class]).sum();
        part(self.counts[class][class], predicted)
    }

    /// Fraction of the examples of a class that were predicted correctly. 0 if the class has no examples.
    pub fn recall(&self, class: usize) -> f64 {
        part(self.counts[class][class], self.examples_of(class))
    }

    /// Harmonic mean of [`precision`](Self::precision) and [`recall`](Self::recall). 0 if both are 0.
    pub fn f1(&self, class: usize) -> f64 {
        let predicted: usize = self.counts.iter().map(|row| row[class]).sum();
        let all = self.examples_of(class);
        part(2 * self.counts[class][class], predicted + all)
    }

    /// Unweighted mean of the [`f1`](Self::f1) over the classes that occur among the examples or the predictions, as
    /// scikit-learn's `f1_score(average="macro")`. NaN without examples.
    pub fn macro_f1(&self) -> f64 {
        let occurs = |class: &usize| {
            let row = self.counts[*class].iter();
            row.chain(self.counts.iter().map(|row| &row[*class])).any(|&count| count > 0)
        };
        let occurring: Vec<usize> = (0..self.labels.len()).filter(occurs).collect();
        occurring.iter().map(|&class| self.f1(class)).sum::<f64>() / occurring.len() as f64
    }

    /// Formats a human-readable table with a line for each class. Long names are shortened.
    pub fn table(&self) -> String {
        let labels: Vec<String> = self.labels.iter().map(|label| shortened(&printable(label), LONGEST_NAME)).collect();
        let width = labels.iter().map(|label| label.width()).max().unwrap_or(0);
        let mut lines = vec![format!("{:<width$}  precision   recall       F1  examples", "")];
        for (i, label) in labels.iter().enumerate() {
            let [precision, recall, f1] = [self.precision(i), self.recall(i), self.f1(i)].map(|part| 100.0 * part);
            let (all, padding) = (self.examples_of(i), width - label.width());
            lines.push(format!("{label}{:padding$}  {precision:7.1} %  {recall:5.1} %  {f1:5.1} %  {all:8}", ""));
        }
        lines.join("\n")
    }

    /// Returns a JSON object: accuracy, macro F1, and the precision, recall, F1 and counts of predicted classes of each
    /// class.
    pub fn json(&self) -> Value {
        let classes: Map<String, Value> = (0..self.labels.len())
            .map(|i| {
                let predicted: Map<String, Value> =
                    self.labels.iter().cloned().zip(self.counts[i].iter().map(|&count| count.into())).collect();
                let class = json!({
                    "precision": self.precision(i), "recall": self.recall(i), "f1": self.f1(i), "predicted": predicted,
                });
                (self.labels[i].clone(), class)
            })
            .collect();
        json!({ "accuracy": self.accuracy(), "macro_f1": self.macro_f1(), "classes": classes })
    }

    /// Writes the [SVG image](Self::svg) to a file.
    ///
    /// # Errors
    /// The message of the drawing library or of the operating system.
    #[cfg(feature = "plots")]
    pub fn save_svg(&self, file: impl AsRef<std::path::Path>) -> Result<(), String> {
        let file = file.as_ref();
        let image = self.svg().map_err(|reason| format!("cannot write {}: {reason}", file.display()))?;
        grove_files::write_text(file, &image).map_err(|error| error.to_string())
    }

    /// Draws an SVG image with a row for each class and a column for each prediction. The shade of a cell is its
    /// fraction of the row.
    ///
    /// # Errors
    /// The message of the drawing library.
    #[cfg(feature = "plots")]
    pub fn svg(&self) -> Result<String, String> {
        plot::svg(&self.labels, &self.counts).map_err(|error| error.to_string())
    }
}

/// Shortens a name to at most `most` characters, the last of which is then `…`.
fn shortened(label: &str, most: usize) -> String {
    if label.chars().nth(most).is_none() {
        return label.to_owned();
    }
    label.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

fn part(some: usize, all: usize) -> f64 {
    if all == 0 { 0.0 } else { some as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-12, "{a} is not {b}");
    }

    /// Three classes counted by hand: 3 of 4 of "a" are correct and 1 of 2 of "b"; "c" has no examples and is predicted
    /// once.
    #[test]
    fn parts_of_a_small_table() {
        let mut found = ConfusionMatrix::new(["a", "b", "c"].map(String::from).to_vec());
        for (class, predicted) in [(0, 0), (0, 0), (0, 0), (0, 1), (1, 1), (1, 2)] {
            found.add(class, predicted);
        }
        assert_eq!(found.count(), 6);
        close(found.accuracy(), 4.0 / 6.0);
        close(found.precision(0), 1.0);
        close(found.recall(0), 0.75);
        close(found.f1(0), 6.0 / 7.0);
        close(found.precision(1), 0.5);
        close(found.f1(1), 0.5);
        assert_eq!((found.precision(2), found.recall(2), found.f1(2)), (0.0, 0.0, 0.0));
        // scikit-learn: f1_score([0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 2], average="macro")
        close(found.macro_f1(), (6.0 / 7.0 + 0.5) / 3.0);
        let lines: Vec<String> = found.table().lines().map(str::to_owned).collect();
        assert_eq!(lines[1], "a    100.0 %   75.0 %   85.7 %         4");
        assert_eq!(found.json()["classes"]["b"]["predicted"]["c"], 1);
    }

    /// A class that is neither among the examples nor predicted must not lower the mean.
    #[test]
    fn macro_f1_averages_over_classes_that_occur() {
        let mut found = ConfusionMatrix::new(["a", "b", "c", "d"].map(String::from).to_vec());
        for class in [0, 1, 1, 2] {
            found.add(class, class);
        }
        close(found.macro_f1(), 1.0);
        close(found.json()["macro_f1"].as_f64().unwrap(), 1.0);
        // scikit-learn: f1_score([0, 1, 1, 2, 0], [0, 1, 1, 2, 1], average="macro"); a: 2/3, b: 4/5, c: 1.
        found.add(0, 1);
        close(found.macro_f1(), (2.0 / 3.0 + 4.0 / 5.0 + 1.0) / 3.0);
        assert!(ConfusionMatrix::new(vec!["a".into(), "b".into()]).macro_f1().is_nan());
    }

    #[test]
    fn long_names_are_shortened_in_tables() {
        let mut found = ConfusionMatrix::new(vec!["x".repeat(70_000), "ä".repeat(61), "short".into()]);
        found.add(0, 1);
        let table = found.table();
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].starts_with(&format!("{}…  ", "x".repeat(59))), "{}", lines[1]);
        assert!(lines[2].starts_with(&format!("{}…  ", "ä".repeat(59))), "{}", lines[2]);
        assert!(lines[3].starts_with("short  "), "{}", lines[3]);
    }

    #[cfg(feature = "plots")]
    #[test]
    fn the_image_has_every_class_and_count() {
        let mut found = ConfusionMatrix::new(vec!["merry <b>".into(), "sad".into()]);
        (0..37).for_each(|_| found.add(0, 1));
        found.add(1, 1);
        let svg = found.svg().unwrap();
        for part in [
            "merry &lt;b&gt;",
            "sad",
            "37",
            "Confusion matrix",
            "predicted class",
            "actual class",
            " %",
            "</svg>",
            "prefers-color-scheme:dark",
        ] {
            assert!(svg.contains(part), "{part}");
        }
        let long = ConfusionMatrix::new(vec!["x".repeat(70_000), "ä".repeat(61)]);
        assert!(long.svg().unwrap().len() < 100_000);
        ConfusionMatrix::new((0..200).map(|i| i.to_string()).collect()).svg().unwrap();
    }

    #[cfg(feature = "plots")]
    #[test]
    fn twenty_classes_have_whole_names_and_percentages() {
        let name = "a class with a long name";
        let mut found = ConfusionMatrix::new((0..20).map(|i| format!("{name} {i}")).collect());
        (0..20).for_each(|class| found.add(class, class));
        let svg = found.svg().unwrap();
        assert_eq!(svg.matches("100 %").count(), 20);
        assert_eq!(svg.matches(&format!("{name} 19")).count(), 2, "of the row and the column");
    }
}
