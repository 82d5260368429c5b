//! Destinations of records.

use crate::log::{LogError, Record};

/// Destination of the records of a run: a file, a plot, a progress bar.
///
/// Steps of consecutive records do not decrease. Several records may have the same step with different values, such as
/// a training record and the evaluation after it.
pub trait Sink {
    /// Writes one record.
    ///
    /// # Errors
    /// If the record cannot be written. The sink remains usable: earlier records are complete, and later ones may
    /// succeed, for example when the disk has space again.
    fn record(&mut self, record: &Record) -> Result<(), LogError>;

    /// Writes all records to the disk or the screen: for checkpoints and at the end of a run.
    ///
    /// # Errors
    /// If the records cannot be written.
    fn flush(&mut self) -> Result<(), LogError>;
}

impl<S: Sink + ?Sized> Sink for Box<S> {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        (**self).record(record)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        (**self).flush()
    }
}

/// Writes to all sinks in order, even if one fails, and returns the first error.
impl<S: Sink> Sink for Vec<S> {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        self.iter_mut().map(|sink| sink.record(record)).fold(Ok(()), Result::and)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.iter_mut().map(Sink::flush).fold(Ok(()), Result::and)
    }
}
