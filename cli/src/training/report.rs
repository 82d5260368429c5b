//! Final report of a run.

use grove::train::{ClassifierScore, Fitted, RunSummary, log::summary_table};

use crate::prelude::*;

/// Results of a run, apart from its model.
pub struct Summary {
    /// Steps, time, best evaluation and reason for stopping.
    pub run: RunSummary,
    /// Directory of the saved model; `None` if the run was interrupted or saves nothing.
    pub directory: Option<PathBuf>,
    saved: bool,
}

impl Summary {
    /// Summarises the results of a run.
    pub fn new<M>(fitted: &Fitted<M>, output: &RunDirectory) -> Self {
        Self {
            run: fitted.summary(),
            directory: output.model().filter(|_| fitted.ended != Ended::Interrupted),
            saved: output.model().is_some(),
        }
    }

    /// Prints the results as JSON with the additional `measures`, or as a table with `more_rows`, whose loss is per `unit`.
    pub fn report_rows(
        &self,
        run: &RunArgs,
        measures: impl IntoIterator<Item = (&'static str, Value)>,
        unit: &str,
        more_rows: Vec<(String, String)>,
    ) -> Result<Ended, Exit> {
        let mut object = json!(self.run);
        measures.into_iter().for_each(|(name, value)| object[name] = value);
        object["model"] = json!(self.directory);
        let mut rows = self.run.rows(unit);
        rows.extend(more_rows);
        let mut add = |name: &str, value: String| rows.push((name.into(), value));
        match self.run.ended {
            Ended::Interrupted if self.saved => add("stopped", "the same command with --resume continues".into()),
            Ended::EarlyStop => {
                add("stopped", format!("the held-out {} did not improve", self.run.kept.metric()));
            }
            _ => {}
        }
        match &self.directory {
            Some(directory) => add("model", directory.display().to_string()),
            None if !self.saved => add("model", "not saved; --output DIR saves it".into()),
            None => {}
        }
        report(run.json, &object, &summary_table(&rows))?;
        Ok(self.run.ended)
    }

    /// Prints the results of a run with one additional measure: its value in JSON, or its formatted `text` in the table.
    pub fn report(
        &self,
        run: &RunArgs,
        unit: &str,
        (name, value): (&'static str, Option<f64>),
        text: impl Fn(f64) -> String,
    ) -> Result<Ended, Exit> {
        let row = value.map(|value| (name.to_owned(), text(value)));
        self.report_rows(run, [(name, value.into())], unit, row.into_iter().collect())
    }

    /// Prints the results of a classifier and saves the confusion matrix as an image. JSON has the fields of `scripts`; the table
    /// has the accuracy with `decimals` digits after the point.
    pub fn report_classifier(
        &self,
        run: &RunArgs,
        output: &RunDirectory,
        score: Option<&ClassifierScore>,
        (unit, decimals): (&str, usize),
        scripts: impl IntoIterator<Item = (&'static str, Value)>,
    ) -> Result<Ended, Exit> {
        if let (Some(score), Some(file)) = (score, output.path("confusion.svg")) {
            score.confusion.save_svg(file).map_err(failure)?;
        }
        let accuracy = score.map(|score| score.confusion.accuracy());
        let row = accuracy.map(|accuracy| ("accuracy".to_owned(), format!("{:.decimals$} %", 100.0 * accuracy)));
        let scripts = [("accuracy", accuracy.into())].into_iter().chain(scripts);
        let ended = self.report_rows(run, scripts, unit, row.into_iter().collect())?;
        if let Some(score) = score.filter(|_| !run.json) {
            write_line(&format!("\n{}", score.confusion.table()))?;
        }
        Ok(ended)
    }
}
