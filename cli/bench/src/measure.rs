//! Measurement. All programs of a row run at the same time and take turns, so that a slowdown of the machine affects all equally.

use grove_terminal::{Exit, KernelArgs, failure, memory};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    path::PathBuf,
    time::{Duration, Instant},
};
use tempfile::TempDir;

use crate::{
    compute::write_gpt2,
    program::{Column, Failure, Peer, Worker},
    protocol::{ErrorKind, Event, Request},
    results::{ColumnResult, Measured, Outcome, RowResult},
    rows::Row,
    work::Work,
    worker::Spec,
};

/// Settings of a measurement.
pub struct Plan {
    pub columns: Vec<Column>,
    pub threads: usize,
    pub device_index: usize,
    pub dtype: String,
    /// Precision of f32 products, and effort of autotuning grove's kernels.
    pub kernels: KernelArgs,
    /// Seconds of steady-state runs of each program in a row.
    pub seconds: f64,
    pub rounds: usize,
    pub timeout: Duration,
    /// Time after which no further row is started.
    pub until: Option<Instant>,
}

/// Size of weights and training state, in bytes, above which programs do not share a GPU.
const LARGE: f64 = 1e9;

/// Maximum number of runs in a turn.
const MAX_RUNS: usize = 200;

impl Plan {
    /// Measures rows from the first, removes them from the list, and returns their number. `done` receives the results of each row
    /// as soon as it is measured.
    pub fn measure(
        &self,
        rows: &mut Vec<Row>,
        mut done: impl FnMut(RowResult) -> Result<(), Exit>,
    ) -> Result<usize, Exit> {
        let bar = ProgressBar::new(rows.len() as u64);
        let style = ProgressStyle::with_template("{bar:10} {pos}/{len}  {wide_msg}").map_err(failure)?;
        bar.set_style(style);
        let files = TempDir::with_prefix("grove-bench-").map_err(failure)?;
        let mut written: Option<PathBuf> = None;
        let mut number = 0;
        for row in rows.iter_mut() {
            if self.until.is_some_and(|until| Instant::now() >= until) {
                break;
            }
            bar.set_message(row.name.clone());
            if let Some((path, config)) = row.work.reads() {
                if written.is_none() {
                    let directory = files.path().join("gpt2");
                    write_gpt2(config, &directory).map_err(failure)?;
                    written = Some(directory);
                }
                *path = written.clone().unwrap_or_default();
            }
            let result = self.row(row);
            bar.suspend(|| eprintln!("{}", line(&result)));
            done(result)?;
            number += 1;
            bar.inc(1);
        }
        bar.finish_and_clear();
        rows.drain(..number);
        Ok(number)
    }

    fn row(&self, row: &Row) -> RowResult {
        let cost = row.work.cost();
        let columns: Vec<&Column> = self.columns.iter().filter(|column| column.has(&row.work)).collect();
        // Weights and, in training, gradients and two moments.
        let each = cost.parameters * 4.0 * if row.work.trains() { 4.0 } else { 1.0 };
        // A GPU's free memory is unknown, so the limit is fixed there.
        let on_gpu = columns.iter().any(|column| column.on_gpu);
        let together = match memory::available() {
            Some(_) if on_gpu && each > LARGE => false,
            Some(available) => each * 1.5 * columns.len() as f64 <= available as f64,
            None => true,
        };
        let columns = match together {
            true => self.take_turns(&row.work, &columns),
            // The memory is too small for all programs at once, so they run one after another.
            false => columns.iter().flat_map(|column| self.take_turns(&row.work, &[column])).collect(),
        };
        let (name, group) = (row.name.clone(), row.group);
        RowResult { name, group, operations: cost.operations, bytes: cost.bytes, columns }
    }

    fn take_turns(&self, work: &Work, columns: &[&Column]) -> Vec<ColumnResult> {
        let mut running: Vec<Running> = columns.iter().map(|column| self.start(work, column)).collect();
        let run_seconds = self.seconds / self.rounds as f64;
        for round in 0..self.rounds {
            // Rotates the order, so that no program is always first.
            for i in 0..running.len() {
                let at = (i + round) % columns.len();
                running[at].turn(Request::Run { run_seconds, max_runs: MAX_RUNS });
            }
        }
        running.into_iter().zip(columns).map(|(running, column)| running.finish(column)).collect()
    }

    fn start(&self, work: &Work, column: &Column) -> Running {
        let spec = Spec {
            row: work.clone(),
            form: column.form.clone(),
            threads: self.threads,
            device: column.device().to_owned(),
            device_index: self.device_index,
            dtype: self.dtype.clone(),
            kernels: self.kernels,
        };
        let begin = || -> Result<(Worker, Measured), Failure> {
            let mut worker = Worker::start(&column.start, &spec, self.timeout)?;
            let mut measured = Measured::default();
            loop {
                match worker.next()? {
                    (Event::First { seconds, version, .. }, since) => {
                        (measured.start_seconds, measured.first_seconds) = (since.as_secs_f64(), seconds);
                        measured.version = version;
                    }
                    (Event::Second { seconds }, _) => {
                        measured.second_seconds = seconds;
                        return Ok((worker, measured));
                    }
                    (other, _) => return Err(unexpected(&other)),
                }
            }
        };
        let (worker, measured) = match begin() {
            Ok((worker, measured)) => (Ok(worker), measured),
            Err(trouble) => (Err(trouble), Measured::default()),
        };
        Running { worker, measured, seconds: Vec::new() }
    }
}

/// State of a program during a row.
struct Running {
    worker: Result<Worker, Failure>,
    measured: Measured,
    seconds: Vec<f64>,
}

impl Running {
    fn turn(&mut self, request: Request) {
        let Ok(worker) = &mut self.worker else { return };
        match worker.send(request).and_then(|()| worker.next()) {
            Ok((Event::Times { seconds }, _)) => self.seconds.extend(seconds),
            Ok((other, _)) => self.worker = Err(unexpected(&other)),
            Err(trouble) => self.worker = Err(trouble),
        }
    }

    fn finish(self, column: &Column) -> ColumnResult {
        let Self { worker, mut measured, seconds } = self;
        let end = worker.and_then(|mut worker| {
            worker.send(Request::Quit { quit: true })?;
            let (end, since) = worker.next()?;
            let panicked = if column.peer.is_none() { worker.panicked() } else { None };
            panicked.map_or(Ok((end, since)), Err)
        });
        let outcome = match end {
            Ok((Event::End { peak_bytes, device_peak_bytes }, _)) => {
                (measured.peak_bytes, measured.device_peak_bytes) = (peak_bytes, device_peak_bytes);
                Outcome::Measured(measured.steady(seconds))
            }
            Ok((other, _)) => unexpected(&other).into(),
            Err(trouble) => trouble.into(),
        };
        let (name, is_grove) = (column.name.clone(), column.peer.is_none());
        ColumnResult { name, is_grove, on_gpu: column.on_gpu, outcome }
    }
}

impl From<Failure> for Outcome {
    fn from(Failure { kind, message }: Failure) -> Self {
        Self::Nothing { error: kind, message }
    }
}

fn unexpected(event: &Event) -> Failure {
    Failure { kind: ErrorKind::Failed, message: format!("the process sent an unexpected event: {event:?}") }
}

impl Column {
    /// Returns true if the column includes this work.
    pub fn has(&self, work: &Work) -> bool {
        let images = matches!(work, Work::Conv { .. } | Work::Resnet { .. });
        let compiled = !matches!(
            work,
            Work::Rnn { .. } | Work::Optimizer { .. } | Work::Load { .. } | Work::Start { .. } | Work::Decode { .. }
        );
        match (self.peer, &*self.form) {
            (Some(Peer::Torch), "channels_last") => images,
            (Some(Peer::Torch), "compile") => compiled,
            _ => true,
        }
    }

    /// Returns the device name for a peer.
    fn device(&self) -> &'static str {
        if self.on_gpu { "cuda" } else { "cpu" }
    }
}

/// Formats the results of a row as one line of progress.
fn line(result: &RowResult) -> String {
    let column = |column: &ColumnResult| match &column.outcome {
        Outcome::Measured(measured) => format!("{} {}", column.name, crate::markdown::time(measured.median_seconds)),
        Outcome::Nothing { message, .. } => format!("{}: {message}", column.name),
    };
    let columns: Vec<String> = result.columns.iter().map(column).collect();
    format!("{}: {}", result.name, columns.join(", "))
}
