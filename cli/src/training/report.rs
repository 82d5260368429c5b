//! Report at the end of a run.

use grove::{
    models::ModelError,
    prelude::*,
    tensor::FloatDType,
    train::{ClassifierScore, Ended, Fitted, log::summary_table},
};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

use super::Output;
use crate::{Dtype, Exit, failure};

/// Results of a run, apart from its model.
pub struct Summary {
    /// Reason for the end.
    pub ended: Ended,
    steps: u64,
    /// Of them left out, with --skip-non-finite.
    skipped: u64,
    seconds: f64,
    /// Step and loss of the best evaluation.
    best: Option<(u64, f64)>,
    /// Directory of the saved model.
    directory: Option<PathBuf>,
    kept: bool,
}

impl Summary {
    /// Saves the model of a run that is not interrupted, and gives it back with what is to be told.
    pub fn save<B: Backend, M: Tree<B>>(
        fitted: Fitted<M>,
        output: Option<&Output>,
        dtype: Dtype,
        save: impl FnOnce(M, &Path) -> Result<(), ModelError>,
    ) -> Result<(M, Self), Exit> {
        let ended = fitted.ended;
        let summary = Self {
            ended,
            steps: fitted.steps,
            skipped: fitted.skipped,
            seconds: fitted.seconds,
            best: fitted.best.as_ref().map(|(_, step, loss)| (*step, *loss)),
            directory: output.filter(|_| ended != Ended::Interrupted).map(Output::model),
            kept: output.is_some(),
        };
        let model = fitted.into_model();
        if let Some(directory) = &summary.directory {
            save(tree::cast(model.clone(), FloatDType::from(dtype)), directory).map_err(failure)?;
        }
        Ok((model, summary))
    }

    /// The loss of the best evaluation.
    pub fn held_out_loss(&self) -> Option<f64> {
        self.best.map(|(_, loss)| loss)
    }

    /// For scripts; with another measure, by its name.
    pub fn json(&self, measure: &str, value: Option<f64>) -> Value {
        let ended = match self.ended {
            Ended::Finished => "finished",
            Ended::EarlyStop => "early_stop",
            Ended::Interrupted => "interrupted",
        };
        let (step, loss) = self.best.unzip();
        json!({
            "steps": self.steps, "skipped_steps": self.skipped, "seconds": self.seconds, "ended": ended, "best_step": step, "held_out_loss": loss,
            measure: value, "model": self.directory,
        })
    }

    /// For a person; the loss has a unit, and there is another measure.
    pub fn table(&self, unit: &str, measure: Option<(&str, String)>) -> String {
        let mut rows = vec![("steps".to_owned(), self.steps.to_string()), ("time".to_owned(), time(self.seconds))];
        if self.skipped > 0 {
            rows.push(("left out".into(), format!("{} steps, whose loss or gradient was not a number", self.skipped)));
        }
        if let Some((step, loss)) = self.best {
            rows.push(("held-out loss".into(), format!("{loss:.4} nats a {unit}, at step {step}")));
        }
        rows.extend(measure.map(|(name, value)| (name.into(), value)));
        match self.ended {
            Ended::Interrupted if self.kept => {
                rows.push(("stopped".into(), "the same command with --resume goes on".into()));
            }
            Ended::EarlyStop => rows.push(("stopped".into(), "the held-out loss did not get better".into())),
            _ => {}
        }
        match &self.directory {
            Some(directory) => rows.push(("model".into(), directory.display().to_string())),
            None if !self.kept => rows.push(("model".into(), "not kept; --output DIR keeps it".into())),
            None => {}
        }
        summary_table(&rows)
    }
}

/// Draws the confusion matrix of a classifier to a file.
pub fn draw_confusion(score: &ClassifierScore, file: &Path) -> Result<(), Exit> {
    let cannot = |error: &dyn std::fmt::Display| failure(format!("cannot write {}: {error}", file.display()));
    let image = score.confusion.svg().map_err(|error| cannot(&error))?;
    std::fs::write(file, image).map_err(|error| cannot(&error))
}

fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole / 60 % 60),
    }
}
