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
const REPETITION: Duration = Duration::from_secs(2);

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
    let has_message = !ranks.is_shared();
    static STOP: Mutex<Option<Stop>> = Mutex::new(None);
    let mut known = STOP.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(stop) = &*known {
        return Ok(stop.clone());
    }
    let stop = Stop::default();
    let seen = stop.clone();
    let mut first = None;
    ctrlc::set_handler(move || match action(&mut first, Instant::now()) {
        Action::Stop => {
            seen.store(true, Ordering::Relaxed);
            if !has_message {
                return;
            }
            // Standard error may be closed; ignore the error.
            let _ = writeln!(
                std::io::stderr(),
                "\nstopping after this step, with a checkpoint; Ctrl-C once more, {} seconds from now or later, ends at \
                 once, without one",
                REPETITION.as_secs()
            );
        }
        Action::Ignore => {}
        Action::Exit => process::exit(130),
    })
    .map_err(|error| format!("cannot watch for Ctrl-C: {error}"))?;
    Ok(known.insert(stop).clone())
}

/// Action of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// End the run with a checkpoint.
    Stop,
    /// None, for a repetition of the first signal.
    Ignore,
    /// End the program at once.
    Exit,
}

/// Returns the action of a signal, given the time of the first one.
fn action(first: &mut Option<Instant>, now: Instant) -> Action {
    match *first {
        None => {
            *first = Some(now);
            Action::Stop
        }
        Some(first) if now.saturating_duration_since(first) < REPETITION => Action::Ignore,
        Some(_) => Action::Exit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_close_together_count_once() {
        let (mut first, begun) = (None, Instant::now());
        let mut at = |milliseconds| action(&mut first, begun + Duration::from_millis(milliseconds));
        assert_eq!([at(0), at(0), at(1), at(1999)], [Action::Stop, Action::Ignore, Action::Ignore, Action::Ignore]);
        assert_eq!([at(2000), at(60_000)], [Action::Exit; 2]);
    }
}
