//! The results of a run.

use serde::Serialize;

use super::KeepModel;

/// Reason for the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// All steps are done.
    Finished,
    /// Evaluations stopped improving; see [`FitOptions::patience`](crate::FitOptions::patience).
    EarlyStop,
    /// [`FitOptions::stop`](crate::FitOptions::stop) was set; the run can be resumed.
    Interrupted,
}

/// Result of a run.
#[derive(Clone, Debug)]
pub struct Fitted<M> {
    /// Model after the last step.
    pub model: M,
    /// Moving average of the model, if any.
    pub ema: Option<M>,
    /// Model (or its moving average, if any) with the best evaluation, the step of that evaluation, and its value of
    /// the metric of [`FitOptions::keep_model`](crate::FitOptions::keep_model). `None` without evaluations and with [`KeepModel::Last`].
    pub best: Option<(M, u64, f64)>,
    /// Choice of the model that [`into_model`](Self::into_model) returns.
    pub kept: KeepModel,
    /// Evaluation loss of that model.
    pub held_out_loss: Option<f64>,
    /// Number of completed steps, including those before a resume.
    pub steps: u64,
    /// Number of those steps that were skipped because their loss or gradient was not finite; see [`NonFinite`](crate::NonFinite).
    pub skipped: u64,
    /// Training time in seconds, summed over all resumes.
    pub seconds: f64,
    /// Number of ranks, since the last resume.
    pub ranks: usize,
    /// Reason for the end of the run.
    pub ended: Ended,
    /// Messages about the start of the run, one sentence each: the checkpoint that it resumed from, damaged checkpoints
    /// that it skipped. [`FitOptions::progress`](crate::FitOptions::progress) shows them.
    pub remarks: Vec<String>,
}

/// Results of a run, without the model.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RunSummary {
    /// Number of completed steps, including those before a resume.
    pub steps: u64,
    /// Number of those steps that were skipped; see [`NonFinite`](crate::NonFinite).
    #[serde(rename = "skipped_steps")]
    pub skipped: u64,
    /// Training time in seconds, summed over all resumes.
    pub seconds: f64,
    /// Number of ranks, since the last resume.
    pub ranks: usize,
    /// Reason for the end of the run.
    pub ended: Ended,
    /// Choice of the model that was kept.
    pub kept: KeepModel,
    /// Step of the model that was kept, if it has the best evaluation.
    pub best_step: Option<u64>,
    /// Held-out loss of the model that was kept.
    pub held_out_loss: Option<f64>,
}

impl RunSummary {
    /// Returns the rows of a [`summary_table`](crate::log::summary_table): steps, time, the held-out loss in nats per
    /// `unit` (without a unit if `unit` is empty), and the model that was kept.
    pub fn rows(&self, unit: &str) -> Vec<(String, String)> {
        let row = |name: &str, value: String| (name.to_owned(), value);
        let mut rows = vec![row("steps", self.steps.to_string()), row("time", duration(self.seconds))];
        if self.ranks > 1 {
            rows.push(row("ranks", self.ranks.to_string()));
        }
        if self.skipped > 0 {
            let steps = if self.skipped == 1 { "1 step" } else { &format!("{} steps", self.skipped) };
            rows.push(row("skipped", format!("{steps}, whose loss or gradient was not finite")));
        }
        if let Some(loss) = self.held_out_loss {
            let article = if unit.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
            let per = if unit.is_empty() { String::new() } else { format!(" nats {article} {unit}") };
            let step = self.best_step.unwrap_or(self.steps);
            rows.push(row("held-out loss", format!("{loss:.4}{per}, at step {step}")));
        }
        if let Some(step) = self.best_step {
            rows.push(row("kept", format!("the model of step {step}, which has {}", self.kept.reason())));
        }
        rows
    }
}

/// Formats a time in seconds: `12.3 s`, `4m 05s`, `2h 30m`.
fn duration(seconds: f64) -> String {
    let whole = seconds as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{}m {:02}s", whole / 60, whole % 60),
        _ => format!("{}h {:02}m", whole / 3600, whole / 60 % 60),
    }
}

impl<M> Fitted<M> {
    /// Returns the results of the run, without the model.
    pub fn summary(&self) -> RunSummary {
        let best_step = self.best.as_ref().map(|(_, step, _)| *step);
        let Self { steps, skipped, seconds, ranks, ended, kept, held_out_loss, .. } = *self;
        RunSummary { steps, skipped, seconds, ranks, ended, kept, best_step, held_out_loss }
    }

    /// Returns the model chosen by [`FitOptions::keep_model`](crate::FitOptions::keep_model): the best one, else the moving average, else the last.
    pub fn into_model(self) -> M {
        match (self.best, self.ema) {
            (Some((best, _, _)), _) => best,
            (None, Some(ema)) => ema,
            (None, None) => self.model,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_has_the_best_evaluation() {
        let best = Some(((), 20, 1.5));
        let fitted = Fitted {
            model: (),
            ema: None,
            best,
            kept: KeepModel::default(),
            held_out_loss: Some(1.5),
            steps: 30,
            skipped: 1,
            seconds: 245.0,
            ranks: 2,
            ended: Ended::EarlyStop,
            remarks: vec![],
        };
        let summary = fitted.summary();
        let rows = summary.rows("token").into_iter().map(|(_, value)| value).collect::<Vec<_>>();
        let found = (&*rows[0], &*rows[1], &*rows[2], &*rows[4]);
        assert_eq!(found, ("30", "4m 05s", "2", "1.5000 nats a token, at step 20"));
        assert_eq!(rows[5], "the model of step 20, which has the lowest held-out loss");
        let json = serde_json::to_value(summary).expect("JSON");
        assert_eq!(
            (&json["ended"], &json["best_step"], &json["skipped_steps"], &json["ranks"], &json["kept"]),
            (&"early_stop".into(), &20.into(), &1.into(), &2.into(), &"best:loss".into())
        );
    }
}
