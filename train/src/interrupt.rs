use grove_distributed::Communicator;
use std::{
    io::Write,
    process,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Flag that asks a run to end. The run then writes a checkpoint and returns.
pub type Stop = Arc<AtomicBool>;

/// Signals within this time of the first count as the same interrupt. `timeout`, terminals and job schedulers send two:
/// one to the process and one to its group.
const ONE_WISH: Duration = Duration::from_secs(2);

/// Installs a handler that sets a [`Stop`] on Ctrl-C, SIGTERM or SIGHUP, so that the run ends with a checkpoint.
/// Another signal two seconds later or more ends the program at once, with status 130. For programs, not for libraries:
/// a process has only one such handler.
///
/// # Errors
/// A message, if the program already has such a handler.
pub fn stop_on_interrupt() -> Result<Stop, String> {
    stop_on_interrupt_of(&Communicator::single())
}

/// [`stop_on_interrupt`] for one rank of a job. With several ranks no message is printed: the launcher sends the signal
/// to all of them, also if one has died.
///
/// # Errors
/// As [`stop_on_interrupt`].
pub fn stop_on_interrupt_of(ranks: &Communicator) -> Result<Stop, String> {
    let speaks = !ranks.is_shared();
    static STOP: Mutex<Option<Stop>> = Mutex::new(None);
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = &*known {
        return Ok(stop.clone());
    }
    let stop = Stop::default();
    let seen = stop.clone();
    let mut signals = Signals::default();
    ctrlc::set_handler(move || match signals.next(Instant::now()) {
        Wish::Stop => {
            seen.store(true, Ordering::Relaxed);
            if !speaks {
                return;
            }
            // Standard error may be closed; ignore the error.
            let _ = writeln!(
                std::io::stderr(),
                "\nstopping after this step, with a checkpoint; Ctrl-C once more, {} seconds from now or later, ends at \
                 once, without one",
                ONE_WISH.as_secs()
            );
        }
        Wish::Same => {}
        Wish::AtOnce => process::exit(130),
    })
    .map_err(|error| format!("cannot watch for Ctrl-C: {error}"))?;
    Ok(known.insert(stop).clone())
}

/// Meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wish {
    /// End the run with a checkpoint.
    Stop,
    /// Repetition of the first signal.
    Same,
    /// End the program at once.
    AtOnce,
}

/// Interprets the signals of a process.
#[derive(Default)]
struct Signals {
    first: Option<Instant>,
}

impl Signals {
    fn next(&mut self, now: Instant) -> Wish {
        match self.first {
            None => {
                self.first = Some(now);
                Wish::Stop
            }
            Some(first) if now.saturating_duration_since(first) < ONE_WISH => Wish::Same,
            Some(_) => Wish::AtOnce,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_close_together_count_once() {
        let (mut signals, begun) = (Signals::default(), Instant::now());
        let mut at = |milliseconds| signals.next(begun + Duration::from_millis(milliseconds));
        assert_eq!([at(0), at(0), at(1), at(1999)], [Wish::Stop, Wish::Same, Wish::Same, Wish::Same]);
        assert_eq!([at(2000), at(60_000)], [Wish::AtOnce; 2]);
    }
}
