//! Plot of the loss curves, redrawn during the run.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use grove_files::write_text;

use crate::log::plot::Plot;
use crate::log::series::Series;
use crate::log::{EVAL_LOSS, LEARNING_RATE, LogError, Record, Sink, TRAIN_LOSS};

/// Name of the perplexity in records of evaluations.
const PERPLEXITY: &str = "eval/perplexity";

/// SVG plot of values by step: training and evaluation loss, unless [`LossCurve::values`] selects others. Below them, a thin
/// curve shows the learning rate. If an evaluation has a perplexity, the right axis has the perplexities of the losses.
///
/// The file is replaced atomically, so that viewers never see a partial image, at most every ten seconds
/// ([`LossCurve::every`]) and when [flushed](Sink::flush). Memory and drawing time do not grow with the run: beyond
/// about a thousand points, neighbours are merged into one point with a band that spans their values.
pub struct LossCurve {
    path: PathBuf,
    title: String,
    log_y: bool,
    every: Duration,
    curves: Vec<(String, Series)>,
    rate: Series,
    /// True if an evaluation has a perplexity.
    perplexity: bool,
    drawn: Option<Instant>,
    /// True if there are points that were not drawn yet.
    stale: bool,
}

impl LossCurve {
    /// Creates a plot. The file is written when there is something to draw.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            title: "Loss".into(),
            log_y: false,
            every: Duration::from_secs(10),
            curves: Vec::new(),
            rate: Series::new(),
            perplexity: false,
            drawn: None,
            stale: false,
        }
        .values([TRAIN_LOSS, EVAL_LOSS])
    }

    /// Sets the title, such as the name of the run.
    pub fn title(mut self, title: impl Into<String>) -> Self {
        self.title = title.into();
        self
    }

    /// Sets whether the value axis is logarithmic. Values that are not positive are then marked instead of drawn.
    pub fn log_y(mut self, log_y: bool) -> Self {
        self.log_y = log_y;
        self
    }

    /// Sets the minimum time between redraws.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// Selects the values to plot, one curve for each name. Call this before adding records.
    pub fn values<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.curves = names.into_iter().map(|name| (name.into(), Series::new())).collect();
        self
    }

    /// Adds the records of a resumed or finished run. They are drawn with the next record or flush.
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
        if let Some(rate) = record.get(LEARNING_RATE) {
            self.rate.push(record.step, rate);
        }
        self.perplexity |= record.get(PERPLEXITY).is_some();
    }

    fn draw(&mut self) -> Result<(), LogError> {
        // Failed attempts count too, so that a full disk does not slow every step.
        self.drawn = Some(Instant::now());
        let Self { path, title, log_y, curves, rate, perplexity, .. } = &*self;
        let svg = Plot { title, log_y: *log_y, curves, rate, perplexity: *perplexity }
            .svg()
            .map_err(|reason| LogError::Plot { path: path.clone(), reason })?;
        write_text(path, &svg)?;
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
