//! The ranks of a program started by `mpirun`.

use grove::{
    distributed::{Communicator, world},
    train::Ended,
};
use std::{sync::OnceLock, thread, time::Duration};

use crate::{Exit, failure};

static RANKS: OnceLock<Communicator> = OnceLock::new();

/// Time within which the launcher ends this rank after another rank has reported the error.
const TO_BE_ENDED: Duration = Duration::from_secs(10);

/// Returns the communicator of this program's ranks, which is a single rank outside `mpirun`.
pub fn ranks() -> Communicator {
    RANKS.get().cloned().unwrap_or_default()
}

/// Prints a message to standard error, on rank 0 only.
pub fn tell(text: impl std::fmt::Display) {
    if ranks().rank() == 0 {
        eprintln!("{text}");
    }
}

/// Starts the ranks. Ranks of one machine share its processors, so each rank gets an equal part of the threads.
pub(crate) fn start() -> Result<(), Exit> {
    let ranks = world().map_err(failure)?;
    if ranks.is_shared() && std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let threads = thread::available_parallelism().map_or(1, |threads| threads.get() / ranks.neighbours());
        // Fails only if the pool has been started before, in which case its size stays.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads.max(1)).build_global();
    }
    #[cfg(feature = "xla")]
    grove::xla::use_ranks(&ranks);
    if ranks.rank() > 0 {
        grove_terminal::keep_silent();
    }
    let _ = RANKS.set(ranks);
    Ok(())
}

/// Ends all ranks together. If this rank has failed, the other ranks end too, and the lowest failed rank reports the error.
pub(crate) fn end(result: Result<Ended, Exit>) -> Result<Ended, Exit> {
    let ranks = ranks();
    match result {
        // A single rank started by `mpirun` must finalise MPI too.
        Ok(ended) => match ranks.close() {
            Ok(()) => Ok(ended),
            Err(error) => ranks.end_job(&error),
        },
        Err(exit) if !ranks.is_shared() => Err(exit),
        Err(exit) if ranks.fails_first() => Err(exit),
        Err(_) => {
            thread::sleep(TO_BE_ENDED);
            ranks.abort(1)
        }
    }
}
