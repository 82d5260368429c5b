//! Report at the end of a run.

use grove::train::{ClassifierScore, Ended, Fitted, log::summary_table};
use serde_json::{Value, json};
use std::path::PathBuf;

use super::{Output, RunArgs};
use crate::{Exit, failure, write_json, write_line};

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
    pub directory: Option<PathBuf>,
    kept: bool,
}

impl Summary {
    /// What is to be told of a run.
    pub fn new<M>(fitted: &Fitted<M>, output: &Output) -> Self {
        Self {
            ended: fitted.ended,
            steps: fitted.steps,
            skipped: fitted.skipped,
            seconds: fitted.seconds,
            best: fitted.best.as_ref().map(|(_, step, loss)| (*step, *loss)),
            directory: output.model().filter(|_| fitted.ended != Ended::Interrupted),
            kept: output.model().is_some(),
        }
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

    /// Tells how well a classifier does, by its accuracy with so many decimals: prints `scripts` with the rest for scripts, or
    /// a table; and draws the confusion matrix.
    pub fn report_classifier(
        &self,
        run: &RunArgs,
        output: &Output,
        score: Option<&ClassifierScore>,
        (unit, decimals): (&str, usize),
        scripts: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<Ended, Exit> {
        if let (Some(score), Some(file)) = (score, output.path("confusion.svg")) {
            let cannot = |error: &dyn std::fmt::Display| failure(format!("cannot write {}: {error}", file.display()));
            let image = score.confusion.svg().map_err(|error| cannot(&error))?;
            std::fs::write(&file, image).map_err(|error| cannot(&error))?;
        }
        let accuracy = score.map(|score| score.confusion.accuracy());
        if run.json {
            let mut all = self.json("accuracy", accuracy);
            scripts.into_iter().for_each(|(name, value)| all[name] = value);
            write_json(&all)?;
            return Ok(self.ended);
        }
        let measure = accuracy.map(|accuracy| ("accuracy", format!("{:.decimals$} %", 100.0 * accuracy)));
        write_line(&self.table(unit, measure))?;
        score.map_or(Ok(()), |score| write_line(&format!("\n{}", score.confusion.table())))?;
        Ok(self.ended)
    }
}

fn time(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole / 60 % 60),
    }
}
