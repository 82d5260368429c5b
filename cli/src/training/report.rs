//! Report at the end of a run.

use grove::train::{ClassifierScore, Fitted, RunSummary, log::summary_table};

use crate::prelude::*;

/// Results of a run, apart from its model.
pub struct Summary {
    /// Steps, time, best evaluation, reason for the end.
    pub run: RunSummary,
    /// Directory of the saved model.
    pub directory: Option<PathBuf>,
    kept: bool,
}

impl Summary {
    /// The results of a run.
    pub fn new<M>(fitted: &Fitted<M>, output: &RunDirectory) -> Self {
        Self {
            run: fitted.summary(),
            directory: output.model().filter(|_| fitted.ended != Ended::Interrupted),
            kept: output.model().is_some(),
        }
    }

    /// For scripts; with other measures, by their names.
    fn json(&self, measures: impl IntoIterator<Item = (&'static str, Value)>) -> Value {
        let mut all = json!(self.run);
        measures.into_iter().for_each(|(name, value)| all[name] = value);
        all["model"] = json!(self.directory);
        all
    }

    /// For a person; the loss has a unit, and there is another measure.
    fn table(&self, unit: &str, measure: Option<(&str, String)>) -> String {
        let mut rows = self.run.rows(unit);
        rows.extend(measure.map(|(name, value)| (name.into(), value)));
        match self.run.ended {
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

    /// Tells what came of a run: prints an object for scripts, or a table, with the measure of this name, which people get
    /// as a text.
    pub fn report(
        &self,
        run: &RunArgs,
        unit: &str,
        (name, value): (&'static str, Option<f64>),
        text: impl Fn(f64) -> String,
    ) -> Result<Ended, Exit> {
        report(run.json, &self.json([(name, value.into())]), &self.table(unit, value.map(|x| (name, text(x)))))?;
        Ok(self.run.ended)
    }

    /// Tells how well a classifier does, by its accuracy with so many decimals: prints `scripts` with the rest for scripts, or
    /// a table; and draws the confusion matrix.
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
        let measure = accuracy.map(|accuracy| ("accuracy", format!("{:.decimals$} %", 100.0 * accuracy)));
        let scripts = [("accuracy", accuracy.into())].into_iter().chain(scripts);
        report(run.json, &self.json(scripts), &self.table(unit, measure))?;
        if let Some(score) = score.filter(|_| !run.json) {
            write_line(&format!("\n{}", score.confusion.table()))?;
        }
        Ok(self.run.ended)
    }
}
