//! An image of the losses, redrawn while the run goes on.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use grove_files::write_atomically;

use crate::log::plot::Plot;
use crate::log::series::Series;
use crate::log::{EVAL_LOSS, LogError, Record, Sink, TRAIN_LOSS};

/// An SVG of curves by step: training and evaluation loss unless [`LossCurve::values`] says otherwise.
///
/// The file is replaced at once each time, so that a viewer never sees half of it, and at most every ten seconds
/// ([`LossCurve::every`]) and when [flushed](Sink::flush). Memory and the time to draw do not grow with the run: past
/// a thousand points, neighbours become one point, with a band as wide as they spread.
pub struct LossCurve {
    path: PathBuf,
    title: String,
    log_y: bool,
    every: Duration,
    curves: Vec<(String, Series)>,
    drawn: Option<Instant>,
    /// True if there are points that are not drawn yet.
    stale: bool,
}

impl LossCurve {
    /// A plot for this file, which is written when there is something to draw.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            title: "Loss".into(),
            log_y: false,
            every: Duration::from_secs(10),
            curves: Vec::new(),
            drawn: None,
            stale: false,
        }
        .values([TRAIN_LOSS, EVAL_LOSS])
    }

    /// With this title; a run's name, say.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// With a logarithmic axis of values. Values that are not positive are then marked and not drawn.
    pub fn log_y(mut self, log_y: bool) -> Self {
        self.log_y = log_y;
        self
    }

    /// Redrawn at most this often.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// With a curve for each of these names of values. Give it before records.
    pub fn values<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.curves = names.into_iter().map(|name| (name.into(), Series::new())).collect();
        self
    }

    /// With the records of a run that is resumed, or of one that ended; nothing is drawn before the next record or
    /// flush.
    pub fn with_records(mut self, records: &[Record]) -> Self {
        records.iter().for_each(|record| self.take(record));
        self
    }

    /// Path of the image.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn take(&mut self, record: &Record) {
        for (name, series) in &mut self.curves {
            if let Some(value) = record.get(name) {
                series.push(record.step, value);
                self.stale = true;
            }
        }
    }

    fn draw(&mut self) -> Result<(), LogError> {
        // An attempt that fails counts, lest a full disk make every step of the run slow.
        self.drawn = Some(Instant::now());
        let Self { path, title, log_y, curves, .. } = &*self;
        let svg = Plot { title, log_y: *log_y, curves }
            .svg()
            .map_err(|reason| LogError::Plot { path: path.clone(), reason })?;
        write_atomically(path, |writer| writer.write_all(svg.as_bytes()))?;
        self.stale = false;
        Ok(())
    }
}

impl Sink for LossCurve {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        self.take(record);
        let due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= self.every);
        if self.stale && due { self.draw() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), LogError> {
        if self.stale { self.draw() } else { Ok(()) }
    }
}
