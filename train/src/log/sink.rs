//! Destinations of records.

use std::sync::{Arc, Mutex, PoisonError};

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

/// A sink that a run and the program share.
pub type SharedSink = Arc<Mutex<dyn Sink + Send>>;

impl<S: Sink + ?Sized> Sink for Arc<Mutex<S>> {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        self.lock().unwrap_or_else(PoisonError::into_inner).record(record)
    }

    fn flush(&mut self) -> Result<(), LogError> {
        self.lock().unwrap_or_else(PoisonError::into_inner).flush()
    }
}

/// Returns a sink that calls a function with each record: a callback of [`fit`](crate::fit).
///
/// ```
/// use grove_train::log::{Record, Sink, TRAIN_LOSS, on_record};
/// let mut sink = on_record(|record| {
///     if let Some(loss) = record.get(TRAIN_LOSS) {
///         println!("step {}: {loss:.3}", record.step);
///     }
/// });
/// sink.record(&Record::new(1, 0.1, 0.5).with(TRAIN_LOSS, 2.3))?;
/// # Ok::<(), grove_train::log::LogError>(())
/// ```
pub fn on_record(f: impl FnMut(&Record) + Send + 'static) -> SharedSink {
    Arc::new(Mutex::new(OnRecord(f)))
}

struct OnRecord<F>(F);

impl<F: FnMut(&Record)> Sink for OnRecord<F> {
    fn record(&mut self, record: &Record) -> Result<(), LogError> {
        (self.0)(record);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), LogError> {
        Ok(())
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
