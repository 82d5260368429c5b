//! Asynchronous reads of results.

use burn::tensor::{TensorData, backend::ExecutionError};
use std::{fmt, thread};

type Wait = Box<dyn FnOnce() -> Result<TensorData, ExecutionError> + Send>;

/// A pending read of a tensor, started by [`Backend::start_read`](crate::Backend::start_read).
///
/// Dropping it also waits: the device may still be writing into memory that the read owns.
pub struct PendingRead {
    wait: Option<Wait>,
}

impl PendingRead {
    pub(super) fn new(wait: impl FnOnce() -> Result<TensorData, ExecutionError> + Send + 'static) -> Self {
        Self { wait: Some(Box::new(wait)) }
    }

    /// Waits until the device has computed the elements, and returns them, `[n]`.
    ///
    /// # Panics
    /// If the device failed.
    #[track_caller]
    pub fn wait(mut self) -> TensorData {
        let Some(wait) = self.wait.take() else { unreachable!("a read is waited for once") };
        wait().unwrap_or_else(|error| panic!("a tensor could not be read from the device: {error}"))
    }
}

impl Drop for PendingRead {
    fn drop(&mut self) {
        match self.wait.take() {
            // A failed device may never answer.
            Some(wait) if thread::panicking() => std::mem::forget(wait),
            // Errors are ignored, because the values are not used.
            Some(wait) => drop(wait()),
            None => {}
        }
    }
}

impl fmt::Debug for PendingRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingRead").finish_non_exhaustive()
    }
}
