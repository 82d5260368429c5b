//! Accuracy and loss of a classifier.

use grove::train::Confusion;
use std::path::Path;

use crate::common::{Exit, failure};

/// Results of an evaluation.
pub struct Score {
    /// Sum of all losses, in nats.
    sum: f64,
    /// Number of examples whose class is among the five most likely.
    in_five: usize,
    pub confusion: Confusion,
}

impl Score {
    /// Of nothing yet.
    pub fn new(labels: &[String]) -> Self {
        Self { sum: 0.0, in_five: 0, confusion: Confusion::new(labels.to_vec()) }
    }

    /// Takes the logits of a text, or a picture, of a class into account.
    pub fn add(&mut self, logits: &[f64], class: usize) {
        let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = logits.iter().map(|logit| (logit - most).exp()).sum();
        self.sum += sum.ln() + most - logits[class];
        let predicted = logits.iter().position(|logit| *logit == most).unwrap_or(0);
        self.confusion.add(class, predicted);
        self.in_five += usize::from(logits.iter().filter(|logit| **logit > logits[class]).count() < 5);
    }

    /// Draws which classes were taken for which.
    pub fn draw(&self, file: &Path) -> Result<(), Exit> {
        let cannot = |error: &dyn std::fmt::Display| failure(format!("cannot write {}: {error}", file.display()));
        let picture = self.confusion.svg().map_err(|error| cannot(&error))?;
        std::fs::write(file, picture).map_err(|error| cannot(&error))
    }

    /// The part of all whose class is among the five likeliest.
    pub fn top5(&self) -> f64 {
        self.in_five as f64 / self.confusion.count() as f64
    }

    /// Mean loss, in nats.
    pub fn loss(&self) -> f64 {
        self.sum / self.confusion.count() as f64
    }
}
