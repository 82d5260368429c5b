//! Destinations of records.

use crate::log::{LogError, Record};

/// Something that takes the records of a run: a file, a plot, a progress bar.
///
/// Records come with steps that do not decrease. Several records of one step are fine, each with other values, say
/// one of training and one of the evaluation that followed.
pub trait Sink {
    /// Takes one record.
    ///
    /// # Errors
    /// When the record cannot be written. The sink remains usable: what it wrote before is whole, and the next
    /// record may succeed, for example when there is room on the disk again.
    fn record(&mut self, record: &Record) -> Result<(), LogError>;

    /// Brings what is on the disk, or on the screen, up to date: for checkpoints and for the end of a run.
    ///
    /// # Errors
    /// When it cannot be written.
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

/// All of them, in order. One that fails does not keep the record from the others; the first error is returned.
impl<S: Sink> Sink for Vec<S> {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        self.iter_mut().map(|sink| sink.record(record)).fold(Ok(()), Result::and)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.iter_mut().map(Sink::flush).fold(Ok(()), Result::and)
    }
}
