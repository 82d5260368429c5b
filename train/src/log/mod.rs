//! Progress and logs of a run.
//!
//! A training loop writes its metrics as [`Record`]s to [`Sink`]s:
//!
//! | sink | output |
//! |---|---|
//! | [`Progress`] | a bar with loss, rate and time left; plain lines if there is no terminal |
//! | [`MetricsFile`] | `metrics.jsonl`, one JSON object per line |
//! | [`TensorBoard`] | event files for TensorBoard |
//! | [`LossCurve`] | an SVG plot of the losses, redrawn during the run (feature `plots`, on by default) |
//!
//! [`summary_table`] and [`records_table`] format the results. Every sink can resume a run that was killed: records
//! after the step of the checkpoint are dropped, so that no step occurs twice.
//!
//! ```
//! use grove_train::log::{EVAL_LOSS, LossCurve, MetricsFile, Record, Sink, TRAIN_LOSS, TensorBoard};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let directory = tempfile::tempdir()?;
//! let mut sinks: Vec<Box<dyn Sink>> = vec![
//!     Box::new(MetricsFile::create(directory.path().join("metrics.jsonl"))?),
//!     Box::new(TensorBoard::create(directory.path().join("tensorboard"))?),
//!     Box::new(LossCurve::new(directory.path().join("loss.svg"))),
//! ];
//! sinks.record(&Record::new(1, 0.5, 0.8).with(TRAIN_LOSS, 2.31))?;
//! sinks.record(&Record::new(2, 1.0, 1.6).with(TRAIN_LOSS, 2.12).with(EVAL_LOSS, 2.2))?;
//! sinks.flush()?;
//!
//! // The run is killed, and resumes from its checkpoint of step 1:
//! let (file, records) = MetricsFile::resume(directory.path().join("metrics.jsonl"), 1)?;
//! let board = TensorBoard::resume(directory.path().join("tensorboard"), 1)?;
//! let curve = LossCurve::new(directory.path().join("loss.svg")).with_records(&records);
//! assert_eq!(records.len(), 1);
//! # let _ = (file, board, curve);
//! # Ok(())
//! # }
//! ```

mod append;
#[cfg(feature = "plots")]
mod axis;
#[cfg(feature = "plots")]
mod curve;
mod error;
mod event;
mod metrics;
#[cfg(feature = "plots")]
mod plot;
mod progress;
mod record;
#[cfg(feature = "plots")]
mod series;
mod sink;
mod table;
mod tensorboard;

#[cfg(feature = "plots")]
pub use curve::LossCurve;
pub use error::LogError;
pub use metrics::{MetricsFile, read_metrics};
#[cfg(feature = "plots")]
pub(crate) use plot::INK;
#[cfg(feature = "plots")]
pub use plot::with_dark_colors;
pub use progress::Progress;
pub use record::{EVAL_LOSS, GRAD_NORM, LEARNING_RATE, Record, SKIPPED_STEPS, TOKENS_PER_SECOND, TRAIN_LOSS};
pub use sink::{SharedSink, Sink, on_record};
pub(crate) use table::printable;
pub use table::{bar, records_table, summary_table};
pub use tensorboard::TensorBoard;
