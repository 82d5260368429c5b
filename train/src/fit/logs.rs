use grove_backend::Backend;
use std::{
    path::Path,
    time::{Duration, Instant},
};

use super::{Evaluation, FitOptions, NonFinite};
use crate::{
    Result, RunProgress,
    log::{EVAL_LOSS, LEARNING_RATE, MetricsFile, Progress, Record, SKIPPED_STEPS, Sink, TensorBoard},
};
use grove_optim::Schedule;

/// Logs of a run. [`RunProgress`] has the sums since the last record, so that a resumed run writes the same records as
/// an uninterrupted one.
pub(super) struct Logs {
    sinks: Vec<Box<dyn Sink>>,
    progress: Option<Progress>,
    learning_rate: Option<Schedule>,
    unit: Option<(&'static str, u64)>,
    /// True if steps may be skipped, so that records include their number.
    skipping: bool,
    /// Number of steps of this process since the last record, for the rate.
    steps: u64,
    /// Time of the last record, plus pauses since then.
    since: Instant,
}

impl Logs {
    pub(super) fn open<B: Backend>(
        options: &FitOptions<B>,
        steps: u64,
        progressed: &RunProgress,
        remarks: &[String],
    ) -> Result<Self> {
        let mut sinks: Vec<Box<dyn Sink>> = Vec::new();
        if let Some(directory) = &options.directory {
            let step = progressed.step;
            let (metrics, records) = MetricsFile::resume(directory.join("metrics.jsonl"), step)?;
            let board = match step {
                0 => TensorBoard::create(directory.join("tensorboard"))?,
                _ => TensorBoard::resume(directory.join("tensorboard"), step)?,
            };
            sinks.push(Box::new(metrics));
            sinks.push(Box::new(board));
            sinks.extend(loss_curve(directory, &records));
        }
        sinks.extend(options.sinks.iter().map(|sink| Box::new(sink.clone()) as Box<dyn Sink>));
        let mut progress = options.progress.then(|| Progress::new(steps).starting_at(progressed.step));
        if let Some(progress) = &mut progress {
            remarks.iter().for_each(|remark| progress.println(remark));
        }
        let unit = options.unit.map(|(name, count)| (name, count * options.accumulate as u64));
        let learning_rate = options.learning_rate.clone();
        let skipping = options.non_finite != NonFinite::Stop;
        Ok(Self { sinks, progress, learning_rate, unit, skipping, steps: 0, since: Instant::now() })
    }

    /// Adds the metrics of one step.
    pub(super) fn measured(
        &mut self,
        progressed: &mut RunProgress,
        step: u64,
        values: impl IntoIterator<Item = (String, f64)>,
    ) {
        for (name, value) in values {
            let (sum, count) = progressed.unrecorded.entry(name).or_default();
            (*sum, *count) = (*sum + value, *count + 1);
        }
        self.stepped(step);
    }

    /// Counts a step without metrics.
    pub(super) fn stepped(&mut self, step: u64) {
        self.steps += 1;
        if let Some(progress) = &mut self.progress {
            progress.step(step);
        }
    }

    /// Writes a record with the means since the last one.
    pub(super) fn record(&mut self, progressed: &mut RunProgress, epoch: f64) -> Result<()> {
        if progressed.unrecorded.is_empty() && (self.steps == 0 || !self.skipping) {
            return Ok(());
        }
        let mut record = Record::new(progressed.step, epoch, progressed.seconds);
        for (name, (sum, count)) in std::mem::take(&mut progressed.unrecorded) {
            record = record.with(name, sum / count as f64);
        }
        if let Some(schedule) = &self.learning_rate {
            record = record.with(LEARNING_RATE, schedule.value(progressed.step.saturating_sub(1)));
        }
        if self.skipping {
            record = record.with(SKIPPED_STEPS, progressed.skipped as f64);
        }
        let rate = self.steps as f64 / self.since.elapsed().as_secs_f64().max(1e-9);
        record = match self.unit {
            Some((name, count)) => record.with(format!("{name}_per_second"), rate * count as f64),
            None => record.with("steps_per_second", rate),
        };
        (self.steps, self.since) = (0, Instant::now());
        self.write(&record)
    }

    /// Excludes time that was not training from the rate.
    pub(super) fn pause(&mut self, time: Duration) {
        self.since += time;
    }

    /// Writes an evaluation.
    pub(super) fn evaluated(&mut self, progressed: &RunProgress, epoch: f64, evaluation: Evaluation) -> Result<()> {
        let record = Record::new(progressed.step, epoch, progressed.seconds);
        let name = |name: String| if name == "loss" { EVAL_LOSS.to_owned() } else { format!("eval/{name}") };
        let record = evaluation.into_iter().fold(record, |record, (key, value)| record.with(name(key), value));
        self.write(&record)
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        self.sinks.flush()?;
        if let Some(progress) = &mut self.progress {
            progress.flush()?;
        }
        Ok(())
    }

    fn write(&mut self, record: &Record) -> Result<()> {
        self.sinks.record(record)?;
        if let Some(progress) = &mut self.progress {
            progress.record(record)?;
        }
        Ok(())
    }
}

/// `loss.svg`.
#[cfg(feature = "plots")]
fn loss_curve(directory: &Path, records: &[Record]) -> Option<Box<dyn Sink>> {
    let run = directory.file_name().map_or_else(|| directory.to_string_lossy(), |name| name.to_string_lossy());
    let curve = crate::log::LossCurve::new(directory.join("loss.svg")).title(format!("Loss of {run} by step"));
    Some(Box::new(curve.with_records(records)))
}

/// No curve without the feature `plots`.
#[cfg(not(feature = "plots"))]
fn loss_curve(_: &Path, _: &[Record]) -> Option<Box<dyn Sink>> {
    None
}
