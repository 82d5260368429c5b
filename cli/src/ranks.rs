//! The ranks of a program that `mpirun` has started.

use grove::{
    distributed::{Communicator, world},
    train::Ended,
};
use std::{sync::OnceLock, thread, time::Duration};

use crate::{Exit, failure};

static RANKS: OnceLock<Communicator> = OnceLock::new();

/// Time in which the launcher ends this rank, where another one has told why.
const TO_BE_ENDED: Duration = Duration::from_secs(10);

/// The ranks of this program; one where it runs alone.
pub fn ranks() -> Communicator {
    RANKS.get().cloned().unwrap_or_default()
}

/// Tells a person something, once and not by every rank.
pub fn tell(text: impl std::fmt::Display) {
    if ranks().rank() == 0 {
        eprintln!("{text}");
    }
}

/// Starts the ranks, and gives each its share of the threads of the processors that it shares with others.
pub(crate) fn start() -> Result<(), Exit> {
    let ranks = world().map_err(failure)?;
    if ranks.is_shared() && std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let threads = thread::available_parallelism().map_or(1, |threads| threads.get() / ranks.neighbours());
        // It fails only where the threads have been started before, with their number.
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

/// Ends the ranks together. Where this one has failed, the others end too, and the lowest rank that has the error tells it.
pub(crate) fn end(result: Result<Ended, Exit>) -> Result<Ended, Exit> {
    let ranks = ranks();
    match result {
        // One rank that mpirun has started ends MPI too.
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
